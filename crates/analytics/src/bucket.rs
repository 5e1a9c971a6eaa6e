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

/// The bits of a float's mantissa.
const MANTISSA_BITS: u32 = f64::MANTISSA_DIGITS - 1;
/// Linear cells of an octave, as a power of two. One cell is narrower than any bucket, so it has one boundary at most.
const CELL_BITS: u32 = 6;

/// A cell of an octave.
#[derive(Clone, Copy)]
struct Cell {
    /// The first boundary that is not below the start of the cell, as the mantissa of a float.
    boundary: u64,
    /// The number of boundaries below it, and the bucket 0.
    bucket: u16,
}

const CELLS: [Cell; 1 << CELL_BITS] = cells();

/// The boundaries within an octave as mantissas: 2^(j/32) from square roots of two, and one that no value exceeds.
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
        boundaries[j] = (value as u64 - (1 << 63)) >> (63 - MANTISSA_BITS);
        j += 1;
    }
    boundaries
}

const fn cells() -> [Cell; 1 << CELL_BITS] {
    let boundaries = boundaries();
    let mut cells = [Cell { boundary: 0, bucket: 1 }; 1 << CELL_BITS];
    let (mut cell, mut below) = (0, 0);
    while cell < cells.len() {
        while boundaries[below] < (cell as u64) << (MANTISSA_BITS - CELL_BITS) {
            below += 1;
        }
        cells[cell] = Cell { boundary: boundaries[below], bucket: below as u16 + 1 };
        cell += 1;
    }
    cells
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
        Bucket::of_float(value as f64)
    }

    /// The bucket of a duration.
    #[inline]
    pub fn of_duration(duration: Duration) -> Bucket {
        Bucket::of_nanos(duration.as_nanos() as u64)
    }

    /// The bucket of a duration in nanoseconds.
    #[inline]
    pub fn of_nanos(nanos: u64) -> Bucket {
        const UNITS_PER_NANO: f64 = (1u64 << UNIT_BITS) as f64 / 1e9;
        // A signed number is converted by one instruction.
        Bucket::of_float(nanos as i64 as f64 * UNITS_PER_NANO)
    }

    /// The bucket of a value that is 0 or at least 1. The exponent of a float is its octave.
    #[inline]
    fn of_float(value: f64) -> Bucket {
        const ONE: u64 = 1.0f64.to_bits() >> MANTISSA_BITS;
        let bits = value.to_bits();
        let Some(octave) = (bits >> MANTISSA_BITS).checked_sub(ONE) else { return Bucket(0) };
        let mantissa = bits & ((1 << MANTISSA_BITS) - 1);
        let cell = &CELLS[(mantissa >> (MANTISSA_BITS - CELL_BITS)) as usize];
        let above = u16::from(mantissa > cell.boundary);
        Bucket(octave as u16 * PER_OCTAVE + cell.bucket + above)
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
