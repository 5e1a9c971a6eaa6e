//! The bucket that a value falls into: exponential, 32 to each power of two.
//!
//! Bucket boundaries are powers of 2^(1/32), which is schema 5 of Prometheus' native histograms and scale 5 of OTLP's
//! exponential ones. A bucket is 2.19 % wide, so its middle is at most 1.1 % off. Durations are counted in units of
//! 2^-30 seconds: a boundary of ours is then a boundary of theirs in seconds, and the mapping loses nothing.
use std::time::Duration;

/// Buckets for each power of two.
pub const PER_OCTAVE: u16 = 32;
/// Duration units in a second, as a power of two.
pub const UNIT_BITS: u16 = 30;

/// Linear cells in which the first guess is made. One cell is narrower than any bucket, so it has one boundary at most.
const CELLS: usize = 64;

/// The boundaries within an octave as multiples of 2^-63, and one that no value exceeds.
const BOUNDARIES: [u64; 33] = boundaries();
/// The number of boundaries below the start of each cell.
const BELOW: [u8; CELLS] = boundaries_below();

/// 2^63 times 2^(j/32), from square roots of two.
const fn boundaries() -> [u64; 33] {
    let mut roots = [0u128; 5];
    let (mut root, mut i) = (2u128 << 63, 0);
    while i < 5 {
        root = (root << 63).isqrt();
        roots[i] = root;
        i += 1;
    }
    let mut boundaries = [u64::MAX; 33];
    let mut j = 0;
    while j < 32 {
        let (mut value, mut i) = (1u128 << 63, 0);
        while i < 5 {
            if j & (16 >> i) != 0 {
                value = (value * roots[i]) >> 63;
            }
            i += 1;
        }
        boundaries[j] = value as u64;
        j += 1;
    }
    boundaries
}

const fn boundaries_below() -> [u8; CELLS] {
    let mut below = [0; CELLS];
    let mut cell = 0;
    while cell < CELLS {
        let start = (1u64 << 63) + ((cell as u64) << 57);
        while BOUNDARIES[below[cell] as usize] < start {
            below[cell] += 1;
        }
        cell += 1;
    }
    below
}

/// The number of a bucket. Bucket 0 holds the value 0; bucket n those in (2^((n-2)/32), 2^((n-1)/32)].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bucket(pub u16);

impl Bucket {
    /// Stands for a value that does not exist, such as the latency of an upstream that was not asked.
    pub const NONE: Bucket = Bucket(u16::MAX);
    /// The bucket of the largest value.
    pub const MAX: Bucket = Bucket(64 * PER_OCTAVE + 1);

    /// The bucket of a value.
    #[inline]
    pub fn of(value: u64) -> Bucket {
        if value == 0 {
            return Bucket(0);
        }
        let zeros = value.leading_zeros();
        let mantissa = value << zeros;
        let below = BELOW[(mantissa >> 57) as usize & (CELLS - 1)];
        let above = u16::from(mantissa > BOUNDARIES[below as usize]);
        Bucket((63 - zeros as u16) * PER_OCTAVE + u16::from(below) + above + 1)
    }

    /// The bucket of a duration.
    #[inline]
    pub fn of_duration(duration: Duration) -> Bucket {
        Bucket::of_nanos(duration.as_nanos() as u64)
    }

    /// The bucket of a duration in nanoseconds.
    #[inline]
    pub fn of_nanos(nanos: u64) -> Bucket {
        /// 2^30 / 10^9, as a multiple of 2^-62.
        const UNITS_PER_NANO: u128 = (1 << 92) / 1_000_000_000;
        Bucket::of(((u128::from(nanos) * UNITS_PER_NANO) >> 62) as u64)
    }

    /// Whether there is a value.
    pub fn is_some(self) -> bool {
        self != Bucket::NONE
    }

    /// The largest value of the bucket.
    pub fn upper(self) -> f64 {
        self.boundary(1.0)
    }

    /// The geometric middle of the bucket: what its values are reported as.
    pub fn middle(self) -> f64 {
        self.boundary(1.5)
    }

    fn boundary(self, offset: f64) -> f64 {
        if self.0 == 0 { 0.0 } else { ((f64::from(self.0) - offset) / f64::from(PER_OCTAVE)).exp2() }
    }
}

/// Duration units as seconds.
pub fn seconds(units: f64) -> f64 {
    units / (1u64 << UNIT_BITS) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn powers_of_two_end_a_bucket() {
        for power in 0..64 {
            let value = 1u64 << power;
            assert_eq!(Bucket::of(value), Bucket(power * 32 + 1));
            assert!(Bucket::of(value.saturating_add(value / 1000 + 1)) > Bucket::of(value));
        }
        assert_eq!(Bucket::of(0), Bucket(0));
        assert_eq!(Bucket::of(u64::MAX), Bucket::MAX);
    }

    #[test]
    fn a_second_is_two_to_the_thirty() {
        assert_eq!(Bucket::of_duration(Duration::from_secs(1)), Bucket(30 * 32 + 1));
        assert_eq!(seconds(Bucket::of_duration(Duration::from_secs(8)).upper()), 8.0);
    }

    proptest! {
        #[test]
        fn a_value_lies_within_its_bucket(exponent in 0.0f64..50.0) {
            let value = exponent.exp2() as u64;
            let bucket = Bucket::of(value);
            let (lower, upper) = (Bucket(bucket.0 - 1).upper(), bucket.upper());
            prop_assert!((value as f64) <= upper * (1.0 + 1e-12), "{value} is above {upper}");
            prop_assert!(bucket.0 == 1 || value as f64 > lower * (1.0 - 1e-12), "{value} is not above {lower}");
            prop_assert!((bucket.middle() / value as f64 - 1.0).abs() < 0.0111);
        }
    }
}
