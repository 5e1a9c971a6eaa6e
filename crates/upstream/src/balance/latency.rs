//! The response latency of a target: an exponentially weighted moving average (EWMA), as in Kong's `latency` algorithm.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The time constant of the decay, in seconds: after it, old samples weigh about a third.
const DECAY: f64 = 10.0;

static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The average of one target. Two updates at once may lose one of them, which does no harm to an average.
#[derive(Default)]
pub struct Latency {
    /// Seconds.
    average: AtomicU64,
    /// Microseconds after the beginning; 0 stands for never.
    updated: AtomicU64,
}

impl Latency {
    /// The average as of now; `None` if nothing was measured.
    pub fn now(&self) -> Option<f64> {
        self.decayed(since_beginning(Instant::now())).map(|(average, _)| average)
    }

    /// The average without a decay, if something was measured not long before `now`.
    pub(crate) fn recent(&self, now: u64) -> Option<f64> {
        let updated = self.updated.load(Ordering::Relaxed);
        let is_recent = updated > 0 && now.saturating_sub(updated) as f64 / 1e6 < DECAY;
        is_recent.then(|| f64::from_bits(self.average.load(Ordering::Relaxed)))
    }

    /// Records the latency of a response.
    pub fn add(&self, took: Duration) {
        self.add_at(took, since_beginning(Instant::now()));
    }

    /// The same at a moment.
    pub(crate) fn add_at(&self, took: Duration, now: u64) {
        let took = took.as_secs_f64();
        let average = self.decayed(now).map_or(took, |(average, weight)| average + took * (1.0 - weight));
        self.average.store(average.to_bits(), Ordering::Relaxed);
        self.updated.store(now, Ordering::Relaxed);
    }

    /// The average decayed until now, and the factor of the decay.
    fn decayed(&self, now: u64) -> Option<(f64, f64)> {
        let updated = self.updated.load(Ordering::Relaxed);
        let average = f64::from_bits(self.average.load(Ordering::Relaxed));
        let weight = (-(now.saturating_sub(updated) as f64) / 1e6 / DECAY).exp();
        (updated > 0).then_some((average * weight, weight))
    }
}

/// The microseconds since the process first asked, and one.
pub(crate) fn since_beginning(now: Instant) -> u64 {
    now.saturating_duration_since(*BEGINNING).as_micros() as u64 + 1
}
