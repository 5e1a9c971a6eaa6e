//! What the coordinating thread and the workers share.
use super::LoadError;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

/// The part of the load that is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    WarmUp,
    Measure,
    Done,
}

/// Phase, clock and progress.
pub(super) struct Shared {
    origin: Instant,
    phase: AtomicU8,
    begin: AtomicU64,
    end: AtomicU64,
    answers: Vec<Counter>,
    /// Connections that have been open at least once.
    opened: AtomicU64,
    /// Connections that had at least one answer.
    answered: AtomicU64,
    /// Readable once the load is over.
    pub(super) over: OwnedFd,
}

/// A counter on a cache line of its own: one thread writes it, another reads it.
#[repr(align(128))]
#[derive(Default)]
struct Counter(AtomicU64);

impl Shared {
    pub(super) fn new(threads: usize) -> Result<Shared, LoadError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let over = eventfd(0, flags).map_err(|error| LoadError::System("eventfd", error.into()))?;
        Ok(Shared {
            origin: Instant::now(),
            phase: AtomicU8::new(Phase::WarmUp as u8),
            begin: AtomicU64::new(0),
            end: AtomicU64::new(0),
            answers: (0..threads).map(|_| Counter::default()).collect(),
            opened: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            over,
        })
    }

    /// Nanoseconds since the load began.
    pub(super) fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::WarmUp,
            1 => Phase::Measure,
            _ => Phase::Done,
        }
    }

    /// Begins the measured window.
    pub(super) fn begin(&self) {
        self.begin.store(self.now(), Ordering::Relaxed);
        self.phase.store(Phase::Measure as u8, Ordering::Release);
    }

    /// Ends it.
    pub(super) fn finish(&self) {
        self.end.store(self.now(), Ordering::Relaxed);
        self.phase.store(Phase::Done as u8, Ordering::Release);
    }

    /// Wakes the workers that wait, so that they see the end.
    pub(super) fn wake(&self) {
        // Writing 1 to an empty counter cannot fail.
        let _ = rustix::io::write(&self.over, &1u64.to_ne_bytes());
    }

    /// The window's borders, as far as they were crossed.
    pub(super) fn window(&self) -> (u64, u64) {
        (self.begin.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed))
    }

    /// Says how many answers a thread has had.
    pub(super) fn report(&self, thread: usize, answers: u64) {
        self.answers[thread].0.store(answers, Ordering::Relaxed);
    }

    /// Counts a connection that is open for the first time.
    pub(super) fn note_opened(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    /// How many connections have been open.
    pub(super) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Counts the first answer on a connection.
    pub(super) fn note_first_answer(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// How many connections have had an answer.
    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Answers so far, of all threads.
    pub(super) fn answers(&self) -> u64 {
        self.answers.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum()
    }
}
