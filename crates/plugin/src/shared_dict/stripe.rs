//! A part of a dictionary with a lock of its own, and the bytes that all parts share.

use super::{DictError, DictValue};
use indexmap::IndexMap;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Bytes of an entry beside those of its key and its value: with those of the allocations, and room to grow.
const ENTRY_BYTES: usize = 256;
/// Bytes of an element of a list beside those of its value, counted alike.
const ELEMENT_BYTES: usize = 64;
/// Room for fewer entries, or elements of a list, is kept though it is not used.
const MIN_ROOM: usize = 64;
/// How many expired entries each new one removes, so that expired entries are freed without a sweep.
const EXPIRED_PER_INSERT: usize = 2;
/// The end of the order of use.
const END: usize = usize::MAX;

/// The bytes of a dictionary, and its clock, which counts writes.
pub(super) struct Budget {
    max: AtomicUsize,
    used: AtomicUsize,
    clock: AtomicU64,
}

impl Budget {
    pub(super) fn new(max: usize) -> Self {
        Self { max: AtomicUsize::new(max), used: AtomicUsize::new(0), clock: AtomicU64::new(0) }
    }

    pub(super) fn max(&self) -> usize {
        self.max.load(Relaxed)
    }

    pub(super) fn set_max(&self, max: usize) {
        self.max.store(max, Relaxed);
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    fn take(&self, bytes: usize) -> Result<(), Blocked> {
        let max = self.max();
        let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= max);
        self.used.fetch_update(Relaxed, Relaxed, more).map(drop).map_err(|_| Blocked::Full)
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Relaxed);
    }
}

/// Why a stripe cannot make a change.
pub(super) enum Blocked {
    /// Other entries have to be evicted first.
    Full,
    /// It never can.
    Refused(DictError),
}

impl From<DictError> for Blocked {
    fn from(error: DictError) -> Self {
        Blocked::Refused(error)
    }
}

/// Whether so much room is given back, because what is counted is far less.
fn is_roomy(used: usize, room: usize) -> bool {
    room > MIN_ROOM && used < room / 4
}

/// What a key holds.
pub(super) enum Stored {
    Value(DictValue),
    List { elements: VecDeque<DictValue>, bytes: usize },
}

impl Stored {
    pub(super) fn empty_list() -> Self {
        Stored::List { elements: VecDeque::new(), bytes: 0 }
    }

    fn bytes(&self) -> usize {
        match self {
            Stored::Value(value) => value.len(),
            Stored::List { bytes, .. } => *bytes,
        }
    }
}

/// What is to be kept under a key.
pub(super) struct Entry {
    pub(super) value: Stored,
    pub(super) flags: u32,
    pub(super) expires: Option<Instant>,
}

impl Entry {
    pub(super) fn is_live(&self) -> bool {
        self.expires.is_none_or(|expires| Instant::now() < expires)
    }

    fn bytes(&self, key: &[u8]) -> usize {
        ENTRY_BYTES + key.len() + self.value.bytes()
    }
}

/// An entry between those that were used before and after it.
struct Linked {
    entry: Entry,
    /// The dictionary's clock when it was used last.
    used: u64,
    newer: usize,
    older: usize,
}

/// The entries of a stripe, in the order of their use.
pub(super) struct Entries {
    linked: IndexMap<Box<[u8]>, Linked, foldhash::fast::RandomState>,
    newest: usize,
    oldest: usize,
}

impl Default for Entries {
    fn default() -> Self {
        Self { linked: IndexMap::default(), newest: END, oldest: END }
    }
}

impl Entries {
    /// The entry of a key, be it expired or not.
    pub(super) fn peek(&mut self, key: &[u8]) -> Option<&mut Entry> {
        self.linked.get_mut(key).map(|linked| &mut linked.entry)
    }

    /// The same, which counts as a use.
    pub(super) fn find(&mut self, key: &[u8], budget: &Budget) -> Option<&mut Entry> {
        let index = self.linked.get_index_of(key)?;
        self.touch(index, budget.clock.load(Relaxed));
        Some(&mut self.linked[index].entry)
    }

    /// The same, unless it has expired.
    pub(super) fn find_live(&mut self, key: &[u8], budget: &Budget) -> Option<&mut Entry> {
        self.find(key, budget).filter(|entry| entry.is_live())
    }

    /// Puts an entry in the place of the one that the key has.
    pub(super) fn put(&mut self, key: &[u8], entry: Entry, budget: &Budget) -> Result<(), Blocked> {
        let bytes = entry.bytes(key);
        if bytes > budget.max() {
            return Err(DictError::NoMemory.into());
        }
        let clock = budget.clock.fetch_add(1, Relaxed) + 1;
        if let Some(index) = self.linked.get_index_of(key) {
            // The newest now, so that it is not evicted to make room for what replaces it.
            self.touch(index, clock);
            let before = self.linked[index].entry.bytes(key);
            budget.take(bytes.saturating_sub(before))?;
            budget.give_back(before.saturating_sub(bytes));
            self.linked[index].entry = entry;
            return Ok(());
        }
        for _ in 0..EXPIRED_PER_INSERT {
            if self.evict(false, budget).is_none() {
                break;
            }
        }
        budget.take(bytes)?;
        let linked = Linked { entry, used: clock, newer: END, older: END };
        let (index, _) = self.linked.insert_full(key.into(), linked);
        self.link(index);
        Ok(())
    }

    /// Adds a value at one end of the list that the key has, and returns the list's length.
    pub(super) fn push(
        &mut self,
        key: &[u8],
        value: DictValue,
        at_front: bool,
        budget: &Budget,
    ) -> Result<usize, Blocked> {
        let more = ELEMENT_BYTES + value.len();
        if self.find_live(key, budget).is_none() {
            let list = Entry { value: Stored::empty_list(), flags: 0, expires: None };
            self.put(key, list, budget)?;
        }
        let Some(Entry { value: Stored::List { elements, bytes }, .. }) = self.peek(key) else {
            return Err(DictError::NotAList.into());
        };
        if let Err(blocked) = budget.take(more) {
            if elements.is_empty() {
                self.remove(key, budget);
            }
            return Err(blocked);
        }
        *bytes += more;
        if at_front {
            elements.push_front(value)
        } else {
            elements.push_back(value)
        }
        Ok(elements.len())
    }

    /// Takes a value from one end of the list that the key has; the last one takes the key with it.
    pub(super) fn pop(
        &mut self,
        key: &[u8],
        at_front: bool,
        budget: &Budget,
    ) -> Result<Option<DictValue>, DictError> {
        let Some(entry) = self.find_live(key, budget) else { return Ok(None) };
        let Stored::List { elements, bytes } = &mut entry.value else { return Err(DictError::NotAList) };
        let value = if at_front { elements.pop_front() } else { elements.pop_back() };
        let freed = value.as_ref().map_or(0, |value| ELEMENT_BYTES + value.len());
        *bytes -= freed;
        if is_roomy(elements.len(), elements.capacity()) {
            elements.shrink_to(elements.len() * 2);
        }
        let is_empty = elements.is_empty();
        budget.give_back(freed);
        if is_empty {
            self.remove(key, budget);
        }
        Ok(value)
    }

    /// Removes the entry of a key, and returns it.
    pub(super) fn remove(&mut self, key: &[u8], budget: &Budget) -> Option<Entry> {
        self.remove_at(self.linked.get_index_of(key)?, budget)
    }

    /// Removes the entry that was used the longest time ago, where it has expired or may be evicted; says whether it was
    /// live.
    pub(super) fn evict(&mut self, may_be_live: bool, budget: &Budget) -> Option<bool> {
        let (_, oldest) = self.linked.get_index(self.oldest)?;
        let is_live = oldest.entry.is_live();
        if is_live && !may_be_live {
            return None;
        }
        self.remove_at(self.oldest, budget).map(|_| is_live)
    }

    /// Removes expired entries, at most so many; says how many.
    pub(super) fn remove_expired(&mut self, max: usize, budget: &Budget) -> usize {
        let expired = self.linked.iter().filter(|(_, linked)| !linked.entry.is_live());
        let expired: Vec<_> = expired.take(max).map(|(key, _)| key.clone()).collect();
        expired.iter().filter(|key| self.remove(key, budget).is_some()).count()
    }

    /// Removes all.
    pub(super) fn clear(&mut self, budget: &Budget) {
        let bytes = self.linked.iter().map(|(key, linked)| linked.entry.bytes(key)).sum();
        *self = Self::default();
        budget.give_back(bytes);
    }

    /// How many there are, be they expired or not.
    pub(super) fn count(&self) -> usize {
        self.linked.len()
    }

    /// The keys that have not expired.
    pub(super) fn live_keys(&self) -> impl Iterator<Item = &[u8]> {
        self.linked.iter().filter(|(_, linked)| linked.entry.is_live()).map(|(key, _)| &**key)
    }

    fn oldest_use(&self) -> u64 {
        self.linked.get_index(self.oldest).map_or(u64::MAX, |(_, oldest)| oldest.used)
    }

    fn touch(&mut self, index: usize, clock: u64) {
        self.linked[index].used = clock;
        if self.newest != index {
            self.unlink(index);
            self.link(index);
        }
    }

    /// Makes an entry the newest.
    fn link(&mut self, index: usize) {
        let older = std::mem::replace(&mut self.newest, index);
        (self.linked[index].newer, self.linked[index].older) = (END, older);
        if older == END { self.oldest = index } else { self.linked[older].newer = index }
    }

    fn unlink(&mut self, index: usize) {
        let Linked { newer, older, .. } = self.linked[index];
        self.join(newer, older);
    }

    /// Makes two entries, or ends, neighbours.
    fn join(&mut self, newer: usize, older: usize) {
        if newer == END {
            self.newest = older
        } else {
            self.linked[newer].older = older
        }
        if older == END { self.oldest = newer } else { self.linked[older].newer = newer }
    }

    fn remove_at(&mut self, index: usize, budget: &Budget) -> Option<Entry> {
        self.unlink(index);
        let (key, removed) = self.linked.swap_remove_index(index)?;
        budget.give_back(removed.entry.bytes(&key));
        if is_roomy(self.linked.len(), self.linked.capacity()) {
            self.linked.shrink_to(self.linked.len() * 2);
        }
        // The last entry stands here now.
        if let Some((_, &Linked { newer, older, .. })) = self.linked.get_index(index) {
            if newer == END {
                self.newest = index
            } else {
                self.linked[newer].older = index
            }
            if older == END { self.oldest = index } else { self.linked[older].newer = index }
        }
        Some(removed.entry)
    }
}

/// A part of a dictionary with a lock of its own.
pub(super) struct Stripe {
    entries: Mutex<Entries>,
    /// When its oldest entry was used, for those that look for the oldest of all without the lock.
    oldest_use: AtomicU64,
}

impl Default for Stripe {
    fn default() -> Self {
        Self { entries: Mutex::default(), oldest_use: AtomicU64::new(u64::MAX) }
    }
}

impl Stripe {
    /// Works on its entries under the lock.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Entries) -> T) -> T {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let result = work(&mut entries);
        self.oldest_use.store(entries.oldest_use(), Relaxed);
        result
    }

    pub(super) fn oldest_use(&self) -> u64 {
        self.oldest_use.load(Relaxed)
    }
}
