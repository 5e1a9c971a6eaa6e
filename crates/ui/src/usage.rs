//! How much of the CPU the node uses: its CPU time at one moment beside that of a moment before.
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How far moments are apart at least.
const INTERVAL: Duration = Duration::from_secs(1);

/// The last reading, and what came of the one before.
#[derive(Debug, Default)]
pub(crate) struct CpuUsage(Mutex<Option<Reading>>);

#[derive(Debug, Clone, Copy)]
struct Reading {
    at: Instant,
    cpu_seconds: f64,
    /// The cores in use between the reading before and this one.
    cores: Option<f64>,
}

impl CpuUsage {
    /// The cores in use, from the CPU time of the process now; none before a second reading.
    pub(crate) fn cores(&self, cpu_seconds: f64, at: Instant) -> Option<f64> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = last.map(|last| at.saturating_duration_since(last.at));
        if elapsed.is_some_and(|elapsed| elapsed < INTERVAL) {
            return last.and_then(|last| last.cores);
        }
        let used =
            last.zip(elapsed).map(|(last, elapsed)| (cpu_seconds - last.cpu_seconds) / elapsed.as_secs_f64());
        let cores = used.map(|cores| cores.max(0.0));
        *last = Some(Reading { at, cpu_seconds, cores });
        cores
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_that_since_the_reading_before() {
        let (usage, start) = (CpuUsage::default(), Instant::now());
        let at = |millis, cpu_seconds| usage.cores(cpu_seconds, start + Duration::from_millis(millis));
        assert_eq!(at(0, 10.0), None);
        assert_eq!(at(500, 10.4), None, "too soon for a second reading");
        assert_eq!(at(2_000, 11.0), Some(0.5));
        assert_eq!(at(2_100, 20.0), Some(0.5), "two who look see the same");
        assert_eq!(at(4_000, 14.0), Some(1.5));
    }
}
