//! What one thread counts within the measured window.
use crate::result::{Histogram, Latencies};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::time::Duration;

/// What can go wrong with a request or its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Connect,
    Tls,
    Read,
    Write,
    Closed,
    Timeout,
    Malformed,
    Status,
    Body,
    Stuck,
}

/// In the order of [`Class`].
pub(super) const CLASSES: [&str; 10] =
    ["connect", "tls", "read", "write", "closed", "timeout", "malformed", "status", "body", "stuck"];

/// The length of one element of a series, in nanoseconds.
pub(super) const TENTH: u64 = 100_000_000;

/// Counts and histograms that merge.
#[derive(Debug)]
pub(super) struct LoadCounters {
    pub(super) answers: u64,
    pub(super) good: u64,
    pub(super) bytes: u64,
    statuses: Vec<u64>,
    errors: [u64; CLASSES.len()],
    pub(super) latencies: Latencies,
    pub(super) lateness: Histogram,
    pub(super) connect: Histogram,
    pub(super) opened: u64,
    pub(super) series: Vec<u64>,
    pub(super) cpu: Duration,
    /// Arrivals within the window (open loop).
    pub(super) arrivals: u64,
    /// Of which were yet to be answered at its end.
    pub(super) outstanding: u64,
}

impl LoadCounters {
    /// One for a window of about this length, so that the series need not grow.
    pub(super) fn new(window: Duration) -> LoadCounters {
        LoadCounters {
            answers: 0,
            good: 0,
            bytes: 0,
            statuses: vec![0; 1000],
            errors: [0; CLASSES.len()],
            latencies: Latencies::default(),
            lateness: Histogram::default(),
            connect: Histogram::default(),
            opened: 0,
            series: Vec::with_capacity((window.as_nanos() as u64 / TENTH) as usize + 2),
            cpu: Duration::ZERO,
            arrivals: 0,
            outstanding: 0,
        }
    }

    /// Counts an answer that came `at` nanoseconds after the window began.
    pub(super) fn answer(&mut self, status: u16, at: u64) {
        self.answers += 1;
        if let Some(count) = self.statuses.get_mut(usize::from(status)) {
            *count += 1;
        }
        let tenth = (at / TENTH) as usize;
        if tenth >= self.series.len() {
            self.series.resize(tenth + 1, 0);
        }
        self.series[tenth] += 1;
    }

    pub(super) fn error(&mut self, class: Class) {
        self.errors[class as usize] += 1;
    }

    pub(super) fn merge(&mut self, other: &LoadCounters) {
        self.answers += other.answers;
        self.good += other.good;
        self.bytes += other.bytes;
        add(&mut self.statuses, &other.statuses);
        add(&mut self.errors, &other.errors);
        self.latencies.merge(&other.latencies);
        self.lateness.merge(&other.lateness);
        self.connect.merge(&other.connect);
        self.opened += other.opened;
        self.series.resize(self.series.len().max(other.series.len()), 0);
        add(&mut self.series, &other.series);
        self.cpu += other.cpu;
        self.arrivals += other.arrivals;
        self.outstanding += other.outstanding;
    }

    pub(super) fn statuses(&self) -> BTreeMap<u16, u64> {
        let all = (0..).zip(&self.statuses);
        all.filter(|(_, count)| **count > 0).map(|(status, count)| (status, *count)).collect()
    }

    pub(super) fn errors(&self) -> BTreeMap<String, u64> {
        let all = CLASSES.iter().zip(&self.errors);
        all.filter(|(_, count)| **count > 0).map(|(class, count)| ((*class).to_owned(), *count)).collect()
    }
}

fn add(to: &mut [u64], from: &[u64]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
}

/// The CPU time that the calling thread has used.
pub(super) fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
