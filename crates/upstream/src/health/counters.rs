//! The health of one address and its success and failure counters, in one atomic word.

use crate::sync::atomic::{AtomicU64, Ordering};

/// What is counted, each in eight bits of the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counter {
    Successes = 0,
    HttpFailures = 8,
    TcpFailures = 16,
    Timeouts = 24,
}

impl Counter {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Counter::Successes => "successes",
            Counter::HttpFailures => "HTTP failures",
            Counter::TcpFailures => "TCP failures",
            Counter::Timeouts => "timeouts",
        }
    }
}

const SUCCESSES: u64 = 0xff;
const FAILURES: u64 = 0xffff_ff00;
const UNHEALTHY: u64 = 1 << 32;

/// Health and counters of one address; healthy at first.
#[derive(Default)]
pub(super) struct HealthCounters(AtomicU64);

impl HealthCounters {
    pub(super) fn is_healthy(&self) -> bool {
        self.0.load(Ordering::Relaxed) & UNHEALTHY == 0
    }

    /// Health and counters as one number, for a process that replaces this one.
    pub(super) fn number(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes over those of another process; returns whether that changed the health.
    pub(super) fn restore(&self, number: u64) -> bool {
        (self.0.swap(number, Ordering::Relaxed) ^ number) & UNHEALTHY != 0
    }

    /// Counts an outcome; returns the new health if it has changed.
    pub(super) fn count(&self, counter: Counter, limit: u16) -> Option<bool> {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let next = counted(word, counter, limit)?;
            match self.0.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return ((word ^ next) & UNHEALTHY != 0).then_some(next & UNHEALTHY == 0),
                Err(other) => word = other,
            }
        }
    }

    /// Sets the health and resets the counters; returns whether that changed the health.
    pub(super) fn set(&self, healthy: bool) -> bool {
        let word = if healthy { 0 } else { UNHEALTHY };
        (self.0.swap(word, Ordering::Relaxed) ^ word) & UNHEALTHY != 0
    }
}

/// The word after one more of these; `None` if it is not counted, because it agrees with a settled state. A success
/// resets the failures, and a failure the successes. A limit of 0 disables the counter.
fn counted(word: u64, counter: Counter, limit: u16) -> Option<u64> {
    let (success, healthy) = (counter == Counter::Successes, word & UNHEALTHY == 0);
    let against = word & if success { FAILURES } else { SUCCESSES };
    if limit == 0 || (success == healthy && against == 0) {
        return None;
    }
    let kept = word & (UNHEALTHY | if success { SUCCESSES } else { FAILURES });
    let shift = counter as u32;
    let count = ((kept >> shift) & 0xff).min(0xfe) + 1;
    let next = (kept & !(0xff << shift)) | (count << shift);
    Some(match count >= u64::from(limit) {
        true if success => next & !UNHEALTHY,
        true => next | UNHEALTHY,
        false => next,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Counter::{HttpFailures, Successes, TcpFailures, Timeouts};

    const NOTHING: [bool; 0] = [];

    /// Counts these in turn, and returns each change.
    fn changes(counters: &HealthCounters, counted: &[(Counter, u16)]) -> Vec<bool> {
        counted.iter().filter_map(|(counter, limit)| counters.count(*counter, *limit)).collect()
    }

    #[test]
    fn limits_are_reached_kind_by_kind() {
        let counters = HealthCounters::default();
        assert_eq!(changes(&counters, &[(HttpFailures, 2), (TcpFailures, 2), (Timeouts, 2)]), NOTHING);
        assert_eq!(changes(&counters, &[(Timeouts, 2)]), [false]);
        assert!(!counters.is_healthy());
        assert_eq!(changes(&counters, &[(Timeouts, 1), (Successes, 2)]), NOTHING);
        assert_eq!(changes(&counters, &[(Successes, 2), (Successes, 2)]), [true]);
        assert!(counters.is_healthy());
    }

    #[test]
    fn what_speaks_against_a_change_begins_the_count_anew() {
        let counters = HealthCounters::default();
        assert_eq!(changes(&counters, &[(TcpFailures, 2), (Successes, 9), (TcpFailures, 2)]), NOTHING);
        assert_eq!(changes(&counters, &[(TcpFailures, 2)]), [false]);
        assert_eq!(changes(&counters, &[(Successes, 2), (HttpFailures, 5), (Successes, 2)]), NOTHING);
        assert_eq!(changes(&counters, &[(Successes, 2)]), [true]);
    }

    #[test]
    fn without_a_limit_nothing_counts() {
        let counters = HealthCounters::default();
        assert_eq!(changes(&counters, &[(TcpFailures, 0); 300]), NOTHING);
        assert_eq!(changes(&counters, &[(TcpFailures, 255); 300]), [false]);
        assert_eq!(changes(&counters, &[(Successes, 0); 300]), NOTHING);
    }

    #[test]
    fn an_operator_is_believed_and_counting_begins_anew() {
        let counters = HealthCounters::default();
        counters.count(TcpFailures, 2);
        assert!(counters.set(false) && !counters.set(false) && counters.set(true));
        assert_eq!(changes(&counters, &[(TcpFailures, 2)]), NOTHING);
        assert_eq!(changes(&counters, &[(TcpFailures, 2)]), [false]);
    }
}
