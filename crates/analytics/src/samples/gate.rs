//! Which requests a worker samples: decided without looking at other workers.
use super::sample::Reason;
use crate::aggregate::Outcome;
use crate::bucket::Bucket;
use crate::record::Record;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

/// A worker samples at most so many requests a second, so that a flood of errors does not cost more than requests do.
const MAX_SAMPLES_PER_SECOND: u32 = 512;

/// What the aggregator decides for all workers.
#[derive(Debug)]
pub struct Rates {
    /// One in so many requests is sampled; 0 for none.
    every: AtomicU32,
    /// Requests of this bucket and above are slow.
    slow: AtomicU16,
}

impl Default for Rates {
    fn default() -> Rates {
        Rates { every: AtomicU32::new(0), slow: AtomicU16::new(Bucket::NONE.0) }
    }
}

impl Rates {
    /// Samples one in so many requests, for those who watch; 0 for none.
    pub fn sample_one_in(&self, every: u32) {
        self.every.store(every, Ordering::Relaxed);
    }

    /// Samples requests that take at least this long.
    pub fn sample_slow(&self, total: Bucket) {
        self.slow.store(total.0, Ordering::Relaxed);
    }
}

/// The decision of one worker.
#[derive(Debug)]
pub struct Gate {
    rates: Arc<Rates>,
    /// Requests until the next one by chance.
    until_next: Cell<u32>,
    second: Cell<u64>,
    sampled: Cell<u32>,
}

impl Gate {
    /// The gate of a worker.
    pub fn new(rates: Arc<Rates>) -> Gate {
        Gate { rates, until_next: Cell::new(0), second: Cell::new(0), sampled: Cell::new(0) }
    }

    /// Why to sample a request that ended now, if so.
    #[inline]
    pub fn admit(&self, record: &Record, now: u64) -> Option<Reason> {
        let reason = if (Outcome { status: record.status, cause: record.cause }).is_error() {
            Reason::Error
        } else if record.total.is_some() && record.total.0 >= self.rates.slow.load(Ordering::Relaxed) {
            Reason::Slow
        } else if self.is_next() {
            Reason::Chance
        } else {
            return None;
        };
        self.has_allowance(now / 1_000).then_some(reason)
    }

    fn is_next(&self) -> bool {
        let every = self.rates.every.load(Ordering::Relaxed);
        if every == 0 {
            return false;
        }
        let left = self.until_next.get().min(every - 1);
        self.until_next.set(if left == 0 { every - 1 } else { left - 1 });
        left == 0
    }

    fn has_allowance(&self, second: u64) -> bool {
        if self.second.replace(second) != second {
            self.sampled.set(0);
        }
        self.sampled.set(self.sampled.get().saturating_add(1));
        self.sampled.get() <= MAX_SAMPLES_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::record;

    #[test]
    fn errors_and_slow_requests_and_one_in_n() {
        let rates = Arc::new(Rates::default());
        let gate = Gate::new(Arc::clone(&rates));
        let fine = record(1);
        assert_eq!(gate.admit(&fine, 0), None);
        assert_eq!(gate.admit(&Record { status: 502, ..fine }, 0), Some(Reason::Error));
        rates.sample_slow(Bucket::of_nanos(900_000));
        assert_eq!(gate.admit(&fine, 0), Some(Reason::Slow));
        rates.sample_slow(Bucket::NONE);
        rates.sample_one_in(10);
        assert_eq!((0..100).filter(|_| gate.admit(&fine, 0).is_some()).count(), 10);
    }

    #[test]
    fn a_flood_of_errors_is_bounded() {
        let gate = Gate::new(Arc::default());
        let error = Record { status: 500, ..record(1) };
        assert_eq!((0..10_000).filter(|_| gate.admit(&error, 1_000).is_some()).count(), 512);
        assert!(gate.admit(&error, 2_000).is_some());
    }
}
