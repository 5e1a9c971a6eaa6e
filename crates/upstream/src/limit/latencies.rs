//! The latencies of a window of time, counted by how long they were. All workers add to them without a lock.

use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// Buckets for each power of two of microseconds, as bits.
const BITS: u32 = 3;
/// Latencies of up to 2^36 microseconds, which is 19 hours.
const BUCKETS: usize = 36 << BITS;

/// Counts by latency; a bucket is at most an eighth wide.
pub(super) struct Latencies([AtomicU32; BUCKETS]);

impl Latencies {
    pub(super) fn new() -> Latencies {
        Latencies(std::array::from_fn(|_| AtomicU32::default()))
    }

    pub(super) fn add(&self, latency: Duration) {
        self.0[bucket(latency.as_micros())].fetch_add(1, Relaxed);
    }

    /// The median in seconds, and begins anew; none if nothing was added.
    pub(super) fn take_median(&self) -> Option<f64> {
        let counts: Vec<u64> = self.0.iter().map(|count| count.swap(0, Relaxed).into()).collect();
        let mut left = counts.iter().sum::<u64>() as f64 / 2.0;
        for (bucket, count) in counts.into_iter().map(|count| count as f64).enumerate() {
            if count > 0.0 && count >= left {
                let [start, end] = [bucket, bucket + 1].map(|bucket| start_of(bucket) as f64);
                return Some((start + (end - start) * left / count) / 1e6);
            }
            left -= count;
        }
        None
    }
}

fn bucket(micros: u128) -> usize {
    let micros = micros.min((1 << 36) - 1) as u64;
    let exponent = (micros | (1 << BITS)).ilog2() - BITS;
    ((exponent as usize) << BITS) + (micros >> exponent) as usize
}

/// The least latency of a bucket, in microseconds.
fn start_of(bucket: usize) -> u64 {
    let exponent = (bucket >> BITS).saturating_sub(1);
    ((bucket - (exponent << BITS)) as u64) << exponent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_they_say() {
        for micros in
            (0..5_000).chain((1..36).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1]))
        {
            let bucket = bucket(micros.into());
            assert!((start_of(bucket)..start_of(bucket + 1)).contains(&micros), "{micros} in {bucket}");
            assert!(start_of(bucket + 1) - start_of(bucket) <= (start_of(bucket) / 8).max(1), "{micros}");
        }
        assert!(bucket(u128::MAX) < BUCKETS);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        let latencies = Latencies::new();
        assert_eq!(latencies.take_median(), None);
        (1..=999).for_each(|millis| latencies.add(Duration::from_millis(millis)));
        let median = latencies.take_median().unwrap();
        assert!((median - 0.5).abs() < 0.01, "{median}");
        assert_eq!(latencies.take_median(), None);
    }
}
