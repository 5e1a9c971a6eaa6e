//! The adaptive limit as all workers share it: windows of time, each of which one of them closes.

use super::gradient::{Gradient, Window};
use super::latencies::Latencies;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// The shortest window. It is at least twice the latency, because a window must see what the one before it has changed.
const MIN_WINDOW: Duration = Duration::from_millis(100);
const MAX_WINDOW: Duration = Duration::from_secs(10);
/// How many responses are enough for a window that is so much longer.
const MIN_SAMPLES_OF_LONG: usize = 5;
const LONGER: Duration = Duration::from_secs(1);

/// A limit that follows the latency.
pub(super) struct Adaptive {
    limit: AtomicUsize,
    latencies: Latencies,
    samples: AtomicUsize,
    min_samples: AtomicUsize,
    most_in_flight: AtomicUsize,
    /// When the window may end, in microseconds since the start.
    end: AtomicU64,
    /// Never waited for: who finds it locked leaves the window to the one that closes it.
    gradient: Mutex<Gradient>,
}

impl Adaptive {
    pub(super) fn new() -> Adaptive {
        let gradient = Gradient::new();
        Adaptive {
            limit: AtomicUsize::new(gradient.limit()),
            latencies: Latencies::new(),
            samples: AtomicUsize::new(0),
            min_samples: AtomicUsize::new(gradient.min_samples()),
            most_in_flight: AtomicUsize::new(0),
            end: AtomicU64::new(micros(MIN_WINDOW)),
            gradient: Mutex::new(gradient),
        }
    }

    /// The requests that may be in flight.
    pub(super) fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }

    /// So many requests are in flight.
    pub(super) fn saw(&self, in_flight: usize) {
        if in_flight > self.most_in_flight.load(Relaxed) {
            self.most_in_flight.fetch_max(in_flight, Relaxed);
        }
    }

    /// Takes the latency of a response that came at `now`, a time since the start.
    pub(super) fn record(&self, latency: Duration, now: Duration) {
        self.latencies.add(latency);
        let samples = self.samples.fetch_add(1, Relaxed) + 1;
        let (now, end) = (micros(now), self.end.load(Relaxed));
        let is_long = now >= end.saturating_add(micros(LONGER)) && samples >= MIN_SAMPLES_OF_LONG;
        if now >= end && (samples >= self.min_samples.load(Relaxed) || is_long) {
            self.close(end, now);
        }
    }

    /// Ends the window, unless another worker does.
    fn close(&self, end: u64, now: u64) {
        let Ok(mut gradient) = self.gradient.try_lock() else { return };
        if self.end.load(Relaxed) != end {
            return;
        }
        let responses = self.samples.swap(0, Relaxed);
        let most_in_flight = self.most_in_flight.swap(0, Relaxed);
        let Some(median) = self.latencies.take_median() else { return };
        gradient.update(Window { median, most_in_flight, responses }, Duration::from_micros(now));
        self.limit.store(gradient.limit(), Relaxed);
        self.min_samples.store(gradient.min_samples(), Relaxed);
        let length = Duration::from_secs_f64(median * 2.0).clamp(MIN_WINDOW, MAX_WINDOW);
        self.end.store(now + micros(length), Relaxed);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
