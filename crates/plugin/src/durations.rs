//! Histograms of the durations of hooks.

use super::count::Count;
use std::time::Duration;

/// Ten bounds per power of ten.
const STEPS: [u64; 10] = [10, 12, 15, 20, 25, 30, 40, 50, 60, 80];

/// The upper bounds of the buckets, in nanoseconds: from 10 ns to 100 ms. The last bucket is unbounded.
pub const BOUNDS: [u64; 71] = {
    let mut bounds = [0; 71];
    let mut index = 0;
    while index < bounds.len() {
        bounds[index] = STEPS[index % STEPS.len()] * 10u64.pow((index / STEPS.len()) as u32);
        index += 1;
    }
    bounds
};

/// The durations of one hook on one worker. A call counts as often as its request stands for others in the sample.
#[derive(Debug)]
pub struct Durations {
    measured: Count,
    nanos: Count,
    buckets: [Count; BOUNDS.len() + 1],
}

impl Default for Durations {
    fn default() -> Self {
        let buckets = std::array::from_fn(|_| Count::default());
        Self { measured: Count::default(), nanos: Count::default(), buckets }
    }
}

impl Durations {
    /// Records a call that stands for this many.
    pub fn observe(&self, spent: Duration, weight: u64) {
        let nanos = spent.as_nanos() as u64;
        self.measured.add(1);
        self.nanos.add(nanos.saturating_mul(weight));
        self.buckets[BOUNDS.partition_point(|bound| *bound < nanos)].add(weight);
    }
}

/// The durations of one hook on all workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spread {
    /// Calls that were measured.
    pub measured: u64,
    /// Their sum in nanoseconds, estimated for all calls.
    pub nanos: u64,
    /// Estimated calls per bucket: up to each of [`BOUNDS`] and above the one before it; the last bucket is unbounded.
    pub buckets: [u64; BOUNDS.len() + 1],
}

impl Default for Spread {
    fn default() -> Self {
        Self { measured: 0, nanos: 0, buckets: [0; BOUNDS.len() + 1] }
    }
}

impl Spread {
    /// Adds the durations of one worker.
    pub fn add(&mut self, durations: &Durations) {
        self.measured += durations.measured.get();
        self.nanos += durations.nanos.get();
        self.buckets.iter_mut().zip(&durations.buckets).for_each(|(sum, bucket)| *sum += bucket.get());
    }

    /// Adds another histogram.
    pub fn merge(&mut self, other: &Spread) {
        self.measured += other.measured;
        self.nanos += other.nanos;
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(sum, bucket)| *sum += bucket);
    }

    /// The estimated number of calls.
    pub fn calls(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The duration in nanoseconds that this share of the calls did not exceed, interpolated; 0 without any call.
    pub fn quantile(&self, share: f64) -> f64 {
        let wanted = share * self.calls() as f64;
        let mut below = 0;
        for (index, count) in self.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            if (below + count) as f64 >= wanted {
                let low = if index == 0 { 0 } else { BOUNDS[index - 1] } as f64;
                let high = BOUNDS.get(index).map_or(low, |bound| *bound as f64);
                return low + (high - low) * (wanted - below as f64) / *count as f64;
            }
            below += count;
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spread(observed: &[(u64, u64)]) -> Spread {
        let (durations, mut spread) = (Durations::default(), Spread::default());
        observed.iter().for_each(|(nanos, weight)| durations.observe(Duration::from_nanos(*nanos), *weight));
        spread.add(&durations);
        spread
    }

    #[test]
    fn bounds_ascend_from_10_ns_to_100_ms() {
        assert!(BOUNDS.is_sorted());
        assert_eq!((BOUNDS[0], BOUNDS[70]), (10, 100_000_000));
    }

    #[test]
    fn what_took_longer_than_any_bound_is_at_the_last() {
        assert_eq!(spread(&[(5_000_000_000, 1)]).quantile(0.5), 1e8);
        assert_eq!(Spread::default().quantile(0.5), 0.0);
    }

    proptest! {
        #[test]
        fn a_quantile_is_in_the_bucket_of_the_run_that_has_it(
            mut observed in prop::collection::vec((1u64..100_000_000, 1u64..100), 1..50),
            share in 0.01f64..1.0,
        ) {
            let spread = spread(&observed);
            observed.sort_unstable();
            let calls: u64 = observed.iter().map(|(_, weight)| weight).sum();
            prop_assert_eq!(spread.calls(), calls);
            prop_assert_eq!(spread.nanos, observed.iter().map(|(nanos, weight)| nanos * weight).sum::<u64>());
            let mut below = 0;
            let has_it = |(_, weight): &&(u64, u64)| {
                below += weight;
                below as f64 >= share * calls as f64
            };
            let truth = observed.iter().find(has_it).unwrap().0;
            let bucket = BOUNDS.partition_point(|bound| *bound < truth);
            let low = if bucket == 0 { 0 } else { BOUNDS[bucket - 1] } as f64;
            let found = spread.quantile(share);
            prop_assert!(low <= found && found <= BOUNDS[bucket] as f64, "{found} for {truth}");
        }
    }
}
