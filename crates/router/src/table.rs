//! A hash table of positions, a look-up in which reads one cache line. It stores no keys: the caller compares what is at the
//! position found.
use foldhash::fast::RandomState;
use std::hash::BuildHasher;

/// So many slots fill a cache line.
const SLOTS: usize = 8;

/// So many slots of a line are used on average, so that few lines overflow into the next.
const USED: usize = 5;

/// Marks a free slot. The slots of a line are used in their order.
const FREE: u32 = u32::MAX;

/// Positions by the hash of a key.
#[derive(Debug)]
pub(super) struct Table<S = RandomState> {
    lines: Box<[Line]>,
    hasher: S,
}

#[derive(Debug, Clone)]
#[repr(align(64))]
struct Line {
    /// A part of each key's hash.
    tags: [u32; SLOTS],
    positions: [u32; SLOTS],
}

impl Line {
    const EMPTY: Line = Line { tags: [0; SLOTS], positions: [FREE; SLOTS] };

    fn is_full(&self) -> bool {
        self.positions[SLOTS - 1] != FREE
    }

    fn find(&self, tag: u32, mut accept: impl FnMut(u32) -> bool) -> Option<u32> {
        let slots = self.tags.iter().zip(&self.positions);
        slots.filter(|slot| *slot.0 == tag && *slot.1 != FREE).map(|slot| *slot.1).find(|at| accept(*at))
    }
}

impl<S: BuildHasher + Default> Table<S> {
    /// A table with room for so many keys.
    pub(super) fn with_capacity(keys: usize) -> Table<S> {
        let lines = vec![Line::EMPTY; keys.div_ceil(USED)];
        Table { lines: lines.into(), hasher: S::default() }
    }

    /// Adds a key, which need not be new. The table must have room.
    pub(super) fn insert(&mut self, key: &[u8], position: u32) {
        let (start, tag) = self.place(key);
        let (before, from) = self.lines.split_at_mut(start);
        let Some(line) = from.iter_mut().chain(before).find(|line| !line.is_full()) else { return };
        let slot = line.positions.iter().position(|position| *position == FREE).unwrap_or_default();
        (line.tags[slot], line.positions[slot]) = (tag, position);
    }

    /// The first position that is accepted among those of this key, and of any key of the same hash.
    pub(super) fn find(&self, key: &[u8], mut accept: impl FnMut(u32) -> bool) -> Option<u32> {
        if self.lines.is_empty() {
            return None;
        }
        let (start, tag) = self.place(key);
        let (before, from) = self.lines.split_at(start);
        for line in from.iter().chain(before) {
            let found = line.find(tag, &mut accept);
            if found.is_some() || !line.is_full() {
                return found;
            }
        }
        None
    }

    /// The first line that may hold the key, and its tag.
    fn place(&self, key: &[u8]) -> (usize, u32) {
        let hash = self.hasher.hash_one(key);
        let line = ((hash >> 32) * self.lines.len() as u64) >> 32;
        (line as usize, hash as u32)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::hash::{BuildHasherDefault, Hasher};

    /// Gives every key the same hash.
    #[derive(Default)]
    pub(crate) struct Constant;

    impl Hasher for Constant {
        fn write(&mut self, _: &[u8]) {}

        fn finish(&self) -> u64 {
            u64::MAX
        }
    }

    /// Hashes whose every look-up meets other keys.
    pub(crate) type Colliding = BuildHasherDefault<Constant>;

    fn each_key_is_found<S: BuildHasher + Default>(count: u32) {
        let keys: Vec<String> = (0..count).map(|number| format!("key-{number}")).collect();
        let mut table = Table::<S>::with_capacity(keys.len());
        (0..).zip(&keys).for_each(|(at, key)| table.insert(key.as_bytes(), at));
        for (at, key) in (0..).zip(&keys) {
            assert_eq!(table.find(key.as_bytes(), |found| keys[found as usize] == *key), Some(at));
        }
        assert_eq!(table.find(b"another", |found| keys[found as usize] == "another"), None);
    }

    #[test]
    fn every_key_is_found_and_no_other() {
        for count in [0, 1, 4, 5, 6, 9, 1000] {
            each_key_is_found::<RandomState>(count);
            each_key_is_found::<Colliding>(count);
        }
        assert_eq!(size_of::<Line>(), 64);
    }
}
