//! How often values fell into each bucket. Merging adds, so no information is lost by it.
use crate::bucket::Bucket;
use crate::pairs::{self, Pairs};
use crate::varint::{DecodeError, Reader};

pub mod export;

/// The window grows by so many buckets at once.
const CHUNK: u16 = 16;

/// Counts of a window of consecutive buckets, which grows to where the values are.
///
/// Counting is an addition to an array, and the window never exceeds 2,064 buckets. As bytes, only buckets that have
/// counts are kept.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    first: u16,
    counts: Vec<u64>,
}

impl PartialEq for Histogram {
    fn eq(&self, other: &Histogram) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Histogram {
    /// Counts a value, if there is one.
    #[inline]
    pub fn record(&mut self, bucket: Bucket) {
        match self.counts.get_mut(usize::from(bucket.0.wrapping_sub(self.first))) {
            Some(count) => *count += 1,
            None => self.record_outside(bucket),
        }
    }

    /// Counts a value outside of the window, where the bucket of no value is too.
    #[cold]
    fn record_outside(&mut self, bucket: Bucket) {
        if bucket.is_some() {
            self.add(bucket, 1);
        }
    }

    /// Adds to the count of a bucket. One above [`Bucket::MAX`] counts as that.
    #[inline]
    pub fn add(&mut self, bucket: Bucket, count: u64) {
        let bucket = bucket.min(Bucket::MAX).0;
        let index = usize::from(bucket.wrapping_sub(self.first));
        match self.counts.get_mut(index) {
            Some(sum) => *sum = sum.saturating_add(count),
            None => self.grow(bucket, count),
        }
    }

    #[cold]
    fn grow(&mut self, bucket: u16, count: u64) {
        let chunk = bucket / CHUNK * CHUNK;
        if self.counts.is_empty() {
            self.first = chunk;
        }
        if chunk < self.first {
            let missing = usize::from(self.first - chunk);
            self.counts.splice(..0, std::iter::repeat_n(0, missing));
            self.first = chunk;
        }
        let index = usize::from(bucket - self.first);
        let needed = usize::from(chunk + CHUNK - self.first);
        if self.counts.len() < needed {
            self.counts.reserve_exact(needed - self.counts.len());
            self.counts.resize(needed, 0);
        }
        self.counts[index] = count;
    }

    /// Removes all counts. The window stays where it is.
    pub(crate) fn clear(&mut self) {
        self.counts.fill(0);
    }

    /// Adds the counts of another.
    pub fn merge(&mut self, other: &Histogram) {
        for (bucket, count) in other.iter() {
            self.add(bucket, count);
        }
    }

    /// What has been added since this was the histogram.
    pub(crate) fn since(&self, earlier: &Histogram) -> Histogram {
        let mut added = self.clone();
        for (bucket, before) in earlier.iter() {
            if let Some(count) = added.counts.get_mut(usize::from(bucket.0.wrapping_sub(self.first))) {
                *count = count.saturating_sub(before);
            }
        }
        added
    }

    /// The buckets that have counts, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (Bucket, u64)> + '_ {
        let counted = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counted.map(|(index, count)| (Bucket(self.first + index as u16), *count))
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The sum of the values, within 1.1 %.
    pub fn sum(&self) -> f64 {
        self.iter().map(|(bucket, count)| bucket.middle() * count as f64).sum()
    }

    /// The value that this share of values does not exceed (0.99 for the 99th percentile), within 1.1 %.
    pub fn percentile(&self, share: f64) -> Option<f64> {
        let rank = (share.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0) as u64;
        let mut below = 0u64;
        for (bucket, count) in self.iter() {
            below = below.saturating_add(count);
            if below >= rank {
                return Some(bucket.middle());
            }
        }
        None
    }

    /// The memory beyond the struct itself, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.counts.capacity() * size_of::<u64>()
    }

    /// Appends the histogram as bytes.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        let counted = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let first = u32::from(self.first);
        pairs::put(bytes, counted.map(|(index, count)| (first + index as u32, *count)));
    }

    /// Adds a histogram that was encoded.
    pub(crate) fn merge_encoded(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        let mut pairs = Pairs::new(reader)?;
        while let Some((key, count)) = pairs.next()? {
            let bucket = u16::try_from(key).ok().map(Bucket).filter(|bucket| *bucket <= Bucket::MAX);
            self.add(bucket.ok_or(DecodeError::OutOfRange)?, count);
        }
        Ok(())
    }
}
