//! A histogram as Prometheus and OTLP have it. No count moves to another bucket, because the boundaries are the same.
use super::Histogram;
use crate::bucket::{Bucket, UNIT_BITS};

/// What the values of a histogram are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Durations, exported in seconds.
    Duration,
    /// Plain numbers, such as bytes.
    One,
}

impl Unit {
    /// How many buckets the boundary 1 of the exported unit is above the one of ours.
    fn offset(self) -> i32 {
        match self {
            Self::Duration => i32::from(UNIT_BITS) * 32,
            Self::One => 0,
        }
    }

    fn scale(self, value: f64) -> f64 {
        match self {
            Self::Duration => crate::bucket::seconds(value),
            Self::One => value,
        }
    }
}

/// A native histogram of Prometheus: integer counts, schema 5.
#[derive(Debug, Clone, PartialEq)]
pub struct NativeHistogram {
    /// Boundaries are powers of 2^(2^-schema).
    pub schema: i32,
    /// The number of values.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
    /// How many are 0.
    pub zero_count: u64,
    /// Runs of buckets: the distance from the end of the previous run (the first: the index), and the length.
    pub spans: Vec<(i32, u32)>,
    /// The count of each bucket less that of the one before.
    pub deltas: Vec<i64>,
}

/// An exponential histogram of OTLP with the scale 5.
#[derive(Debug, Clone, PartialEq)]
pub struct ExponentialHistogram {
    /// Boundaries are powers of 2^(2^-scale).
    pub scale: i32,
    /// The number of values.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
    /// How many are 0.
    pub zero_count: u64,
    /// The index of the first bucket.
    pub offset: i32,
    /// The counts from there on, without a gap.
    pub bucket_counts: Vec<u64>,
}

impl Histogram {
    /// The histogram for Prometheus.
    pub fn to_native(&self, unit: Unit) -> NativeHistogram {
        let mut native = NativeHistogram {
            schema: 5,
            count: self.count(),
            sum: unit.scale(self.sum()),
            zero_count: self.zeros(),
            spans: Vec::new(),
            deltas: Vec::new(),
        };
        let (mut next, mut last) = (0, 0);
        for (index, count) in self.positive(unit) {
            match native.spans.last_mut() {
                Some((_, length)) if index == next => *length += 1,
                _ => native.spans.push((index - next, 1)),
            }
            native.deltas.push(count as i64 - last);
            (next, last) = (index + 1, count as i64);
        }
        native
    }

    /// The histogram for OTLP.
    pub fn to_exponential(&self, unit: Unit) -> ExponentialHistogram {
        // OTLP names a bucket by its lower boundary, Prometheus by its upper one.
        let offset = self.positive(unit).next().map_or(0, |(index, _)| index - 1);
        let mut bucket_counts = Vec::new();
        for (index, count) in self.positive(unit) {
            bucket_counts.resize((index - 1 - offset) as usize, 0);
            bucket_counts.push(count);
        }
        ExponentialHistogram {
            scale: 5,
            count: self.count(),
            sum: unit.scale(self.sum()),
            zero_count: self.zeros(),
            offset,
            bucket_counts,
        }
    }

    fn zeros(&self) -> u64 {
        self.iter().next().filter(|(bucket, _)| *bucket == Bucket(0)).map_or(0, |(_, count)| count)
    }

    /// Prometheus' index of each bucket above 0, and its count.
    fn positive(&self, unit: Unit) -> impl Iterator<Item = (i32, u64)> + '_ {
        let above_zero = self.iter().filter(|(bucket, _)| *bucket > Bucket(0));
        above_zero.map(move |(bucket, count)| (i32::from(bucket.0) - 1 - unit.offset(), count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn sample() -> Histogram {
        let mut histogram = Histogram::default();
        for (seconds, times) in [(0.0, 2), (0.5, 3), (1.0, 4), (1.01, 5)] {
            histogram.add(Bucket::of_duration(Duration::from_secs_f64(seconds)), times);
        }
        histogram
    }

    #[test]
    fn prometheus_gets_the_same_buckets() {
        let native = sample().to_native(Unit::Duration);
        // 0.5 s is the upper boundary of bucket -32, 1 s that of bucket 0.
        assert_eq!(native.spans, [(-32, 1), (31, 2)]);
        assert_eq!(native.deltas, [3, 1, 1]);
        assert_eq!((native.zero_count, native.count), (2, 14));
        assert!((native.sum / (1.5 + 4.0 + 5.05) - 1.0).abs() < 0.02);
    }

    #[test]
    fn otlp_gets_the_same_buckets() {
        let exponential = sample().to_exponential(Unit::Duration);
        assert_eq!((exponential.scale, exponential.offset), (5, -33));
        assert_eq!(exponential.bucket_counts.len(), 34);
        assert_eq!(exponential.bucket_counts.iter().sum::<u64>() + exponential.zero_count, 14);
        assert_eq!(exponential.bucket_counts[32..], [4, 5]);
    }

    #[test]
    fn bytes_keep_their_unit() {
        let mut histogram = Histogram::default();
        histogram.record(Bucket::of(1024));
        assert_eq!(histogram.to_native(Unit::One).spans, [(320, 1)]);
    }
}
