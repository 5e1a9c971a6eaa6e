//! Shared dictionaries: state that all workers of a node share and that survives reloads, with the semantics of
//! OpenResty's `ngx.shared`.

mod list;
mod stripe;
#[cfg(test)]
mod tests;
mod value;

pub use value::DictValue;

use crate::build::BuildContext;
use crate::retained::Retained;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use stripe::{Blocked, Budget, Entries, Entry, Stored, Stripe};

/// The parts of a dictionary, each with a lock of its own: workers that use different keys do not wait for each other.
const STRIPES: usize = 16;

/// A dictionary of the node: values by keys of bytes. Clones are the same dictionary.
///
/// It holds no more bytes than it was made for, keys and the memory of its entries included. To make room for a new value
/// it evicts the entries that were used the longest time ago, be it by a read or by a write.
#[derive(Clone)]
pub struct SharedDict(Arc<Parts>);

struct Parts {
    stripes: [Stripe; STRIPES],
    hasher: foldhash::fast::RandomState,
    budget: Budget,
}

/// Why a dictionary does not do what it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DictError {
    /// The key exists, and was to be added.
    Exists,
    /// The key does not exist, and was to be changed.
    NotFound,
    /// The value is not a number.
    NotANumber,
    /// The value is a list, which only the methods for lists read.
    IsAList,
    /// The value is not a list.
    NotAList,
    /// There is no room: the value is larger than the dictionary, or nothing may be evicted for it.
    NoMemory,
}

impl std::fmt::Display for DictError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DictError::Exists => "the key exists",
            DictError::NotFound => "the key is not found",
            DictError::NotANumber => "the value is not a number, so it cannot be incremented",
            DictError::IsAList => "the value is a list: read it with `lpop` or `rpop`",
            DictError::NotAList => "the value is not a list: delete the key first",
            DictError::NoMemory => {
                "there is no room for the value: make the shared dictionary with more bytes, or let it evict entries"
            }
        })
    }
}

impl std::error::Error for DictError {}

/// On which condition a value is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WriteCondition {
    /// On none.
    #[default]
    Always,
    /// Where the key does not exist.
    Absent,
    /// Where the key exists.
    Present,
}

/// How a value is written.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteOptions {
    /// On which condition.
    pub when: WriteCondition,
    /// After which time it expires, if ever.
    pub ttl: Option<Duration>,
    /// A number that is kept with it.
    pub flags: u32,
    /// Whether it is an error if entries that have not expired had to be evicted.
    pub keep_others: bool,
}

/// A value that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteOutcome {
    /// Whether entries that had not expired were evicted for it: the dictionary is too small for what is kept in it.
    pub evicted: bool,
}

/// A value that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct DictEntry {
    /// The value.
    pub value: DictValue,
    /// The number that was kept with it.
    pub flags: u32,
    /// Whether it has expired, and was not removed yet.
    pub is_stale: bool,
}

/// The dictionaries of a node, by name.
#[derive(Default)]
pub(crate) struct SharedDicts(Mutex<HashMap<String, SharedDict>>);

impl SharedDicts {
    fn get(&self, name: &str, bytes: usize) -> SharedDict {
        let mut dicts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let dict = dicts.entry(name.to_owned()).or_insert_with(|| SharedDict::new(bytes)).clone();
        dict.resize(bytes);
        dict
    }
}

impl BuildContext<'_> {
    /// The node's dictionary of this name, which may hold so many bytes. All plugins that ask for the same name get the
    /// same dictionary, now and after reloads; its size is the one that was asked for last.
    pub fn shared_dict(&self, name: &str, bytes: usize) -> SharedDict {
        self.retained.shared_dict(name, bytes)
    }
}

impl Retained {
    /// The node's dictionary of this name, as [`BuildContext::shared_dict`] has it.
    pub fn shared_dict(&self, name: &str, bytes: usize) -> SharedDict {
        self.get::<SharedDicts>().get(name, bytes)
    }
}

impl SharedDict {
    pub(crate) fn new(bytes: usize) -> Self {
        let stripes = std::array::from_fn(|_| Stripe::default());
        Self(Arc::new(Parts { stripes, hasher: Default::default(), budget: Budget::new(bytes) }))
    }

    fn resize(&self, bytes: usize) {
        self.0.budget.set_max(bytes);
        while self.0.budget.used() > bytes && self.evict_oldest(true).is_some() {}
    }

    fn with<T>(&self, key: &[u8], work: impl FnOnce(&mut Entries, &Budget) -> T) -> T {
        let stripe = &self.0.stripes[self.0.hasher.hash_one(key) as usize % STRIPES];
        stripe.with(|entries| work(entries, &self.0.budget))
    }

    fn each<T>(&self, work: impl Fn(&mut Entries, &Budget) -> T) -> impl Iterator<Item = T> {
        self.0.stripes.iter().map(move |stripe| stripe.with(|entries| work(entries, &self.0.budget)))
    }

    /// Makes a change, and room for it as often as it takes; says whether live entries were evicted. No lock is held while
    /// another is taken.
    fn change<T>(
        &self,
        key: &[u8],
        may_evict: bool,
        mut change: impl FnMut(&mut Entries, &Budget) -> Result<T, Blocked>,
    ) -> Result<(T, WriteOutcome), DictError> {
        let mut evicted = false;
        loop {
            match self.with(key, &mut change) {
                Ok(done) => return Ok((done, WriteOutcome { evicted })),
                Err(Blocked::Refused(error)) => return Err(error),
                Err(Blocked::Full) => {}
            }
            match self.evict_oldest(may_evict) {
                Some(was_live) => evicted |= was_live,
                // Other workers have evicted what was there and are about to add something.
                None if may_evict && self.0.budget.used() > 0 => std::thread::yield_now(),
                None => return Err(DictError::NoMemory),
            }
        }
    }

    /// Evicts the entry of all that was used the longest time ago; says whether it was live. Live ones are evicted only if
    /// they may be.
    fn evict_oldest(&self, may_be_live: bool) -> Option<bool> {
        let budget = &self.0.budget;
        let oldest = self.0.stripes.iter().min_by_key(|stripe| stripe.oldest_use())?;
        // Another worker may have used it meanwhile, or may be about to add the only entry there is.
        oldest
            .with(|entries| entries.evict(may_be_live, budget))
            .or_else(|| self.each(|entries, budget| entries.evict(may_be_live, budget)).flatten().next())
    }

    /// The value of a key, unless it is a list.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<DictValue> {
        let found = self.find(key).ok().flatten();
        found.filter(|found| !found.is_stale).map(|found| found.value)
    }

    /// The value of a key with its flags, also if it has expired and was not removed yet.
    pub fn find(&self, key: impl AsRef<[u8]>) -> Result<Option<DictEntry>, DictError> {
        self.with(key.as_ref(), |entries, budget| {
            let Some(entry) = entries.find(key.as_ref(), budget) else { return Ok(None) };
            let is_stale = !entry.is_live();
            match &entry.value {
                Stored::Value(value) => {
                    Ok(Some(DictEntry { value: value.clone(), flags: entry.flags, is_stale }))
                }
                Stored::List { .. } if is_stale => Ok(None),
                Stored::List { .. } => Err(DictError::IsAList),
            }
        })
    }

    /// Writes a value as the options say; the other methods that write are short for this.
    pub fn write(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<DictValue>,
        options: WriteOptions,
    ) -> Result<WriteOutcome, DictError> {
        let (key, value) = (key.as_ref(), value.into());
        let expires = options.ttl.and_then(expiry);
        let change = |entries: &mut Entries, budget: &Budget| {
            let exists = options.when != WriteCondition::Always
                && entries.peek(key).is_some_and(|entry| entry.is_live());
            match options.when {
                WriteCondition::Absent if exists => return Err(DictError::Exists.into()),
                WriteCondition::Present if !exists => return Err(DictError::NotFound.into()),
                _ => {}
            }
            let value = Stored::Value(value.clone());
            entries.put(key, Entry { value, flags: options.flags, expires }, budget)
        };
        self.change(key, !options.keep_others, change).map(|(_, written)| written)
    }

    /// Writes a value, which expires after `ttl` if there is one.
    pub fn set(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<DictValue>,
        ttl: Option<Duration>,
    ) -> Result<WriteOutcome, DictError> {
        self.write(key, value, WriteOptions { ttl, ..WriteOptions::default() })
    }

    /// The same, without evicting entries that have not expired.
    pub fn safe_set(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<DictValue>,
        ttl: Option<Duration>,
    ) -> Result<WriteOutcome, DictError> {
        self.write(key, value, WriteOptions { ttl, keep_others: true, ..WriteOptions::default() })
    }

    /// Writes a value where the key does not exist.
    pub fn add(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<DictValue>,
        ttl: Option<Duration>,
    ) -> Result<WriteOutcome, DictError> {
        self.write(key, value, WriteOptions { when: WriteCondition::Absent, ttl, ..WriteOptions::default() })
    }

    /// Writes a value where the key exists.
    pub fn replace(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<DictValue>,
        ttl: Option<Duration>,
    ) -> Result<WriteOutcome, DictError> {
        self.write(key, value, WriteOptions { when: WriteCondition::Present, ttl, ..WriteOptions::default() })
    }

    /// Adds to a number, and returns it. A key that does not exist begins at `init` and expires after its `ttl`, if there
    /// is one; without `init` it is an error.
    pub fn incr(
        &self,
        key: impl AsRef<[u8]>,
        by: f64,
        init: Option<(f64, Option<Duration>)>,
    ) -> Result<f64, DictError> {
        self.increment(key, by, init).map(|(number, _)| number)
    }

    /// The same, which also says what became of other entries.
    pub fn increment(
        &self,
        key: impl AsRef<[u8]>,
        by: f64,
        init: Option<(f64, Option<Duration>)>,
    ) -> Result<(f64, WriteOutcome), DictError> {
        let key = key.as_ref();
        let change = |entries: &mut Entries, budget: &Budget| match entries.find_live(key, budget) {
            Some(Entry { value: Stored::Value(DictValue::Number(number)), .. }) => {
                *number += by;
                Ok(*number)
            }
            Some(_) => Err(DictError::NotANumber.into()),
            None => {
                let (first, ttl) = init.ok_or(DictError::NotFound)?;
                let value = Stored::Value(DictValue::Number(first + by));
                entries.put(key, Entry { value, flags: 0, expires: ttl.and_then(expiry) }, budget)?;
                Ok(first + by)
            }
        };
        self.change(key, true, change)
    }

    /// After which time a key expires: `Some(None)` for one that never does, `None` for one that does not exist.
    pub fn ttl(&self, key: impl AsRef<[u8]>) -> Option<Option<Duration>> {
        let now = Instant::now();
        self.with(key.as_ref(), |entries, _| {
            let entry = entries.peek(key.as_ref()).filter(|entry| entry.is_live())?;
            Some(entry.expires.map(|expires| expires.saturating_duration_since(now)))
        })
    }

    /// Has a key expire after `ttl`, or never; says whether it exists.
    pub fn expire(&self, key: impl AsRef<[u8]>, ttl: Option<Duration>) -> bool {
        self.with(key.as_ref(), |entries, budget| {
            let entry = entries.find_live(key.as_ref(), budget);
            entry.map(|entry| entry.expires = ttl.and_then(expiry)).is_some()
        })
    }

    /// Removes a key; says whether it existed.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> bool {
        self.with(key.as_ref(), |entries, budget| entries.remove(key.as_ref(), budget))
            .is_some_and(|removed| removed.is_live())
    }

    /// Removes all keys.
    pub fn flush_all(&self) {
        self.each(Entries::clear).for_each(drop);
    }

    /// Removes expired keys, at most so many; says how many. It goes through all keys.
    pub fn flush_expired(&self, max: usize) -> usize {
        let mut left = max;
        for stripe in &self.0.stripes {
            left -= stripe.with(|entries| entries.remove_expired(left, &self.0.budget));
        }
        max - left
    }

    /// How many keys it has, with those that have expired and were not removed yet.
    pub fn count(&self) -> usize {
        self.each(|entries, _| entries.count()).sum()
    }

    /// Some of the keys that exist, at most so many. For administration: it goes through all keys.
    pub fn keys(&self, max: usize) -> Vec<Box<[u8]>> {
        let mut keys = Vec::new();
        for stripe in &self.0.stripes {
            let left = max - keys.len();
            stripe.with(|entries| keys.extend(entries.live_keys().take(left).map(Box::from)));
        }
        keys
    }

    /// How many bytes it may hold.
    pub fn capacity(&self) -> usize {
        self.0.budget.max()
    }

    /// How many bytes it has room for without evicting anything.
    pub fn free_space(&self) -> usize {
        self.capacity().saturating_sub(self.0.budget.used())
    }
}

/// When a value expires; never, if the clock cannot count that far.
fn expiry(ttl: Duration) -> Option<Instant> {
    Instant::now().checked_add(ttl)
}
