//! Shared dictionaries: what all workers of a node see alike, and what outlives configurations; as `ngx.shared` has it.

use crate::build::BuildContext;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many parts a dictionary has, each with a lock of its own: workers that use different keys do not wait for each other.
const SHARDS: usize = 16;

/// What a key takes beside its own bytes and those of its value.
const ENTRY_BYTES: usize = 96;

/// A dictionary of the node, by keys and values of bytes. Clones are the same.
///
/// It holds no more bytes than it was made for: where there is no room for a new value, those that were written the longest
/// time ago go.
#[derive(Clone)]
pub struct SharedDict(Arc<Shards>);

struct Shards {
    shards: [Mutex<Shard>; SHARDS],
    hasher: foldhash::fast::RandomState,
}

/// Why a value was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DictError {
    /// The key is there already, and was to be added.
    Exists,
    /// The key is not there, and was to be changed.
    NotFound,
    /// The value is no number.
    NotANumber,
    /// The value is larger than what the dictionary may hold.
    TooLarge,
}

impl std::fmt::Display for DictError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DictError::Exists => "the key exists",
            DictError::NotFound => "the key is not found",
            DictError::NotANumber => {
                "the value is not a number: only values that `incr` has written can be incremented"
            }
            DictError::TooLarge => "the value is larger than the shared dictionary: make it with more bytes",
        })
    }
}

impl std::error::Error for DictError {}

#[derive(Clone)]
enum Value {
    Bytes(Arc<[u8]>),
    Number(f64),
}

struct Entry {
    value: Value,
    expires: Option<Instant>,
    /// Tells the entry from those that were written under its key before.
    written: u64,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<Box<[u8]>, Entry, foldhash::fast::RandomState>,
    /// Keys in the order in which they were written, and which entry of each.
    order: VecDeque<(Box<[u8]>, u64)>,
    written: u64,
    bytes: usize,
    most: usize,
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
    /// The node's dictionary of this name, which may hold so many bytes. Whoever asks for the same name gets the same
    /// dictionary, now and after reloads; the size is the one that was asked for last.
    pub fn shared_dict(&self, name: &str, bytes: usize) -> SharedDict {
        self.retained.get::<SharedDicts>().get(name, bytes)
    }
}

impl SharedDict {
    pub(crate) fn new(bytes: usize) -> Self {
        let shard = || Mutex::new(Shard { most: bytes / SHARDS, ..Shard::default() });
        Self(Arc::new(Shards { shards: std::array::from_fn(|_| shard()), hasher: Default::default() }))
    }

    fn resize(&self, bytes: usize) {
        for at in 0..SHARDS {
            let mut shard = self.lock(at);
            shard.most = bytes / SHARDS;
            shard.make_room(0);
        }
    }

    fn lock(&self, at: usize) -> MutexGuard<'_, Shard> {
        self.0.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        use std::hash::BuildHasher;
        self.lock(self.0.hasher.hash_one(key) as usize % SHARDS)
    }

    /// The value of a key. A number is written as text.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Arc<[u8]>> {
        match self.shard(key.as_ref()).live(key.as_ref())?.value.clone() {
            Value::Bytes(bytes) => Some(bytes),
            Value::Number(number) => Some(number.to_string().into_bytes().into()),
        }
    }

    /// The number of a key that [`incr`](Self::incr) has written.
    pub fn get_number(&self, key: impl AsRef<[u8]>) -> Option<f64> {
        match self.shard(key.as_ref()).live(key.as_ref())?.value {
            Value::Number(number) => Some(number),
            Value::Bytes(_) => None,
        }
    }

    /// Writes a value, which is gone after `ttl` if there is one.
    pub fn set(&self, key: impl AsRef<[u8]>, value: &[u8], ttl: Option<Duration>) -> Result<(), DictError> {
        self.shard(key.as_ref()).write(key.as_ref(), Value::Bytes(value.into()), ttl)
    }

    /// The same, where the key is not there.
    pub fn add(&self, key: impl AsRef<[u8]>, value: &[u8], ttl: Option<Duration>) -> Result<(), DictError> {
        let mut shard = self.shard(key.as_ref());
        match shard.live(key.as_ref()) {
            Some(_) => Err(DictError::Exists),
            None => shard.write(key.as_ref(), Value::Bytes(value.into()), ttl),
        }
    }

    /// The same, where the key is there.
    pub fn replace(
        &self,
        key: impl AsRef<[u8]>,
        value: &[u8],
        ttl: Option<Duration>,
    ) -> Result<(), DictError> {
        let mut shard = self.shard(key.as_ref());
        match shard.live(key.as_ref()) {
            Some(_) => shard.write(key.as_ref(), Value::Bytes(value.into()), ttl),
            None => Err(DictError::NotFound),
        }
    }

    /// Adds to a number, and returns it. A key that is not there begins at `init` and is gone after its `ttl`, if there
    /// is one; without `init` it is an error.
    pub fn incr(
        &self,
        key: impl AsRef<[u8]>,
        by: f64,
        init: Option<(f64, Option<Duration>)>,
    ) -> Result<f64, DictError> {
        let mut shard = self.shard(key.as_ref());
        let Some(entry) = shard.live(key.as_ref()) else {
            let (first, ttl) = init.ok_or(DictError::NotFound)?;
            shard.write(key.as_ref(), Value::Number(first + by), ttl)?;
            return Ok(first + by);
        };
        let Value::Number(number) = &mut entry.value else { return Err(DictError::NotANumber) };
        *number += by;
        Ok(*number)
    }

    /// How long a key is still there: `Some(None)` for one that does not expire, `None` for one that is not there.
    pub fn ttl(&self, key: impl AsRef<[u8]>) -> Option<Option<Duration>> {
        let expires = self.shard(key.as_ref()).live(key.as_ref())?.expires;
        Some(expires.map(|expires| expires.saturating_duration_since(Instant::now())))
    }

    /// Has a key be gone after `ttl`, or never; whether it is there.
    pub fn expire(&self, key: impl AsRef<[u8]>, ttl: Option<Duration>) -> bool {
        let mut shard = self.shard(key.as_ref());
        let entry = shard.live(key.as_ref());
        entry.map(|entry| entry.expires = ttl.and_then(expiry)).is_some()
    }

    /// Removes a key; whether it was there.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> bool {
        let mut shard = self.shard(key.as_ref());
        let was_there = shard.live(key.as_ref()).is_some();
        shard.remove(key.as_ref());
        was_there
    }

    /// Removes all keys.
    pub fn flush_all(&self) {
        (0..SHARDS).for_each(|at| self.lock(at).clear());
    }

    /// Some of the keys that are there, at most so many. For administration: it goes through all of them.
    pub fn keys(&self, most: usize) -> Vec<Box<[u8]>> {
        let now = Instant::now();
        let mut keys = Vec::new();
        for at in 0..SHARDS {
            let shard = self.lock(at);
            let live = shard.entries.iter().filter(|(_, entry)| entry.is_live(now));
            keys.extend(live.map(|(key, _)| key.clone()).take(most - keys.len()));
        }
        keys
    }

    /// How many bytes it may hold, and how many it holds.
    pub fn capacity(&self) -> (usize, usize) {
        let shards = (0..SHARDS).map(|at| self.lock(at));
        shards.fold((0, 0), |(most, used), shard| (most + shard.most, used + shard.bytes))
    }
}

impl Entry {
    fn is_live(&self, now: Instant) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }

    fn bytes(&self, key: &[u8]) -> usize {
        size(key, &self.value)
    }
}

fn size(key: &[u8], value: &Value) -> usize {
    let value = match value {
        Value::Bytes(bytes) => bytes.len(),
        Value::Number(_) => 0,
    };
    // The key stands in the table and in the order.
    ENTRY_BYTES + 2 * key.len() + value
}

impl Shard {
    /// The entry of a key that has not expired.
    fn live(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let entry = self.entries.get(key)?;
        if entry.expires.is_some() && !entry.is_live(Instant::now()) {
            self.remove(key);
            return None;
        }
        self.entries.get_mut(key)
    }

    fn write(&mut self, key: &[u8], value: Value, ttl: Option<Duration>) -> Result<(), DictError> {
        let bytes = size(key, &value);
        if bytes > self.most {
            return Err(DictError::TooLarge);
        }
        self.remove(key);
        self.make_room(bytes);
        self.written += 1;
        let expires = ttl.and_then(expiry);
        self.bytes += bytes;
        self.order.push_back((key.into(), self.written));
        self.entries.insert(key.into(), Entry { value, expires, written: self.written });
        self.forget_overwritten();
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.bytes(key);
        }
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
        self.bytes = 0;
    }

    /// Removes what is oldest until there is room for so many bytes.
    fn make_room(&mut self, bytes: usize) {
        while self.bytes + bytes > self.most
            && let Some((key, written)) = self.order.pop_front()
        {
            if self.entries.get(&key).is_some_and(|entry| entry.written == written) {
                self.remove(&key);
            }
        }
    }

    /// Keeps the order no longer than twice what is there.
    fn forget_overwritten(&mut self) {
        if self.order.len() > 2 * self.entries.len() + 16 {
            let entries = &self.entries;
            self.order
                .retain(|(key, written)| entries.get(key).is_some_and(|entry| entry.written == *written));
        }
    }
}

/// When a value is gone; never, if the clock cannot count that far.
fn expiry(ttl: Duration) -> Option<Instant> {
    Instant::now().checked_add(ttl)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Option<Duration> = Some(Duration::from_secs(60));
    const GONE: Option<Duration> = Some(Duration::ZERO);

    fn text(dict: &SharedDict, key: &str) -> Option<String> {
        dict.get(key).map(|value| String::from_utf8(value.to_vec()).unwrap())
    }

    #[test]
    fn values_are_there_until_they_expire_or_are_deleted() {
        let dict = SharedDict::new(1 << 20);
        dict.set("a", b"one", LONG).unwrap();
        assert_eq!(text(&dict, "a").as_deref(), Some("one"));
        assert!(dict.ttl("a").unwrap().unwrap() > Duration::from_secs(50));
        assert!(dict.expire("a", None));
        assert_eq!(dict.ttl("a"), Some(None));
        dict.set("b", b"two", GONE).unwrap();
        assert_eq!((text(&dict, "b"), dict.ttl("b")), (None, None));
        assert_eq!((dict.delete("a"), dict.delete("a")), (true, false));
        assert_eq!(dict.capacity().1, 0, "nothing is left of what is gone");
    }

    #[test]
    fn keys_are_added_replaced_and_counted() {
        let dict = SharedDict::new(1 << 20);
        assert_eq!(dict.replace("a", b"one", None), Err(DictError::NotFound));
        dict.add("a", b"one", None).unwrap();
        assert_eq!(dict.add("a", b"two", None), Err(DictError::Exists));
        dict.replace("a", b"two", None).unwrap();
        assert_eq!(text(&dict, "a").as_deref(), Some("two"));
        assert_eq!(dict.incr("a", 1.0, None), Err(DictError::NotANumber));
        assert_eq!(dict.incr("n", 1.0, None), Err(DictError::NotFound));
        assert_eq!(dict.incr("n", 1.0, Some((10.0, LONG))), Ok(11.0));
        assert_eq!(dict.incr("n", 2.5, Some((0.0, None))), Ok(13.5));
        assert_eq!((dict.get_number("n"), text(&dict, "n").as_deref()), (Some(13.5), Some("13.5")));
        let mut keys = dict.keys(10);
        keys.sort();
        assert_eq!(keys, [b"a".as_slice().into(), b"n".as_slice().into()] as [Box<[u8]>; 2]);
        assert_eq!(dict.keys(1).len(), 1);
        dict.flush_all();
        assert!(dict.keys(10).is_empty());
    }

    #[test]
    fn the_oldest_make_room_and_the_size_is_kept() {
        let dict = SharedDict::new(SHARDS * 4_000);
        assert_eq!(dict.set("a", &[0; 4_000], None), Err(DictError::TooLarge));
        for n in 0..10_000 {
            dict.set(format!("key {n}"), &[0; 100], None).unwrap();
            let (most, used) = dict.capacity();
            assert!(used <= most);
        }
        assert!(dict.get("key 9999").is_some() && dict.get("key 0").is_none());
        for _ in 0..10_000 {
            dict.set("the same", &[0; 100], None).unwrap();
        }
        let order: usize = (0..SHARDS).map(|at| dict.lock(at).order.len()).sum();
        assert!(order < 2_000, "{order}: what was overwritten is forgotten");
    }

    #[test]
    fn a_name_stands_for_one_dictionary_and_a_smaller_size_takes_effect() {
        let dicts = SharedDicts::default();
        for n in 0..100 {
            dicts.get("a", 1 << 20).set(format!("key {n}"), &[0; 1_000], None).unwrap();
        }
        assert_eq!(dicts.get("a", 1 << 20).keys(1_000).len(), 100);
        let small = dicts.get("a", SHARDS * 2_500);
        assert!(small.keys(1_000).len() <= 2 * SHARDS);
        assert!(dicts.get("b", 1 << 20).get("key 99").is_none());
    }

    #[test]
    fn workers_count_together() {
        let dict = SharedDict::new(1 << 20);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let dict = dict.clone();
                scope.spawn(move || {
                    (0..1_000).for_each(|_| assert!(dict.incr("n", 1.0, Some((0.0, None))).is_ok()));
                });
            }
        });
        assert_eq!(dict.get_number("n"), Some(4_000.0));
    }

    #[test]
    fn a_ttl_beyond_the_clock_is_for_ever() {
        let dict = SharedDict::new(1 << 20);
        dict.set("a", b"one", Some(Duration::MAX)).unwrap();
        assert!(dict.expire("a", Some(Duration::MAX)) && dict.get("a").is_some());
    }
}
