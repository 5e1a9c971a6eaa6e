//! Exact counts by a small key, such as a status with its cause.
use crate::varint::{self, DecodeError, Reader};

/// Counts by key, sorted. There are few keys, and the last one often comes again.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    entries: Vec<(u32, u64)>,
}

impl Counts {
    /// Adds to the count of a key.
    #[inline]
    pub fn add(&mut self, key: u32, count: u64) {
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

    /// Adds the counts of another.
    pub fn merge(&mut self, other: &Counts) {
        for (key, count) in other.iter() {
            self.add(key, count);
        }
    }

    /// Keys and counts, by key.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.entries.iter().copied()
    }

    /// The sum of all counts.
    pub fn total(&self) -> u64 {
        self.sum(|_| true)
    }

    /// The sum of the counts whose key fulfils a condition.
    pub fn sum(&self, condition: impl Fn(u32) -> bool) -> u64 {
        let counts = self.iter().filter(|(key, _)| condition(*key));
        counts.fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// The memory beyond the struct itself, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<(u32, u64)>()
    }

    /// Appends the counts as bytes: their number, then the distance to each key and its count.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        varint::put(bytes, self.entries.len() as u64);
        let mut previous = 0;
        for (key, count) in self.iter() {
            varint::put(bytes, u64::from(key - previous));
            varint::put(bytes, count);
            previous = key;
        }
    }

    /// Adds counts that were encoded. `translate` may give a key another number.
    pub(crate) fn merge_encoded(
        &mut self,
        reader: &mut Reader<'_>,
        translate: &mut dyn FnMut(u32) -> Result<u32, DecodeError>,
    ) -> Result<(), DecodeError> {
        let mut key = 0u32;
        for place in 0..reader.number()? {
            let distance: u32 = reader.small()?;
            if distance == 0 && place > 0 {
                return Err(DecodeError::Unordered);
            }
            key = key.checked_add(distance).ok_or(DecodeError::OutOfRange)?;
            self.add(translate(key)?, reader.number()?);
        }
        Ok(())
    }
}
