//! Exact counts by a small key, such as a status with its cause.
use crate::pairs::{self, Pairs};
use crate::varint::{DecodeError, Reader};

/// Counts by key, sorted. There are few keys, and the last one often comes again.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Counts {
    entries: Vec<(u32, u64)>,
}

impl Counts {
    /// Adds to the count of a key.
    #[inline]
    pub(crate) fn add(&mut self, key: u32, count: u64) {
        match self.entries.first_mut() {
            Some((first, sum)) if *first == key => *sum = sum.saturating_add(count),
            _ => self.search(key, count),
        }
    }

    fn search(&mut self, key: u32, count: u64) {
        match self.entries.binary_search_by_key(&key, |(key, _)| *key) {
            Ok(place) => self.entries[place].1 = self.entries[place].1.saturating_add(count),
            Err(place) => self.entries.insert(place, (key, count)),
        }
    }

    /// Removes all counts.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Adds the counts of another.
    pub(crate) fn merge(&mut self, other: &Counts) {
        for (key, count) in other.iter() {
            self.add(key, count);
        }
    }

    /// Keeps the largest counts, so many at most with the key that stands for all others.
    pub(crate) fn fold(&mut self, limit: usize, others: u32) {
        if self.entries.len() <= limit {
            return;
        }
        self.entries.sort_unstable_by_key(|(key, count)| (*key == others, std::cmp::Reverse(*count)));
        let folded = self.entries.split_off(limit.saturating_sub(1));
        let sum = folded.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(*count));
        self.entries.sort_unstable();
        self.add(others, sum);
    }

    /// What has been added since these were the counts.
    pub(crate) fn since(&self, earlier: &Counts) -> Counts {
        let before = |key| earlier.sum(|other| other == key);
        let added = self.iter().map(|(key, count)| (key, count.saturating_sub(before(key))));
        Counts { entries: added.filter(|(_, count)| *count > 0).collect() }
    }

    /// Keys and counts, by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.entries.iter().copied()
    }

    /// The sum of all counts.
    pub(crate) fn total(&self) -> u64 {
        self.sum(|_| true)
    }

    /// The sum of the counts whose key fulfils a condition.
    pub(crate) fn sum(&self, condition: impl Fn(u32) -> bool) -> u64 {
        let counts = self.iter().filter(|(key, _)| condition(*key));
        counts.fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// The memory beyond the struct itself, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<(u32, u64)>()
    }

    /// Appends the counts as bytes.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        pairs::put(bytes, self.entries.iter().copied());
    }

    /// Adds counts that were encoded. `translate` may give a key another number.
    pub(crate) fn merge_encoded(
        &mut self,
        reader: &mut Reader<'_>,
        translate: &mut dyn FnMut(u32) -> Result<u32, DecodeError>,
    ) -> Result<(), DecodeError> {
        let mut pairs = Pairs::new(reader)?;
        while let Some((key, count)) = pairs.next()? {
            self.add(translate(key)?, count);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_keeps_the_sum_and_the_largest() {
        let mut counts = Counts::default();
        (1..=10).for_each(|key| counts.add(key, u64::from(key)));
        counts.fold(10, 99);
        assert_eq!(counts.iter().count(), 10, "they fit");
        for _ in 0..2 {
            counts.add(50, 0);
            counts.fold(4, 99);
            assert_eq!(counts.iter().collect::<Vec<_>>(), [(8, 8), (9, 9), (10, 10), (99, 28)]);
        }
    }
}
