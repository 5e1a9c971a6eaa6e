//! The responses that a node has cached, and the requests in flight that fetch one. All workers share them; a worker
//! finds those that it used last without a lock.

use super::rules::Term;
use indexmap::IndexMap;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use weir_plugin::Retained;
use weir_plugin::{Bytes, Exchange, Fingerprint, FingerprintMap, FingerprintState, Fingerprinter, Headers};

/// The size of the cache in bytes.
const MAX_BYTES: usize = 128 * 1024 * 1024;
/// The size of one body in bytes.
pub(super) const MAX_BODY_LEN: usize = 8 * 1024 * 1024;
/// Responses under one key, which differ by what their `Vary` names.
const VARIANTS: usize = 16;
/// The approximate overhead of an entry in bytes.
const OVERHEAD: usize = 512;
/// How long requests do not wait for each other after a response was not cacheable.
const UNCACHEABLE_TIME: Duration = Duration::from_secs(5);
/// How long a request waits for the response to another one with the same key.
pub(super) const WAIT_TIMEOUT: Duration = Duration::from_secs(5);
const SHARDS: usize = 32;
/// Responses in each worker's own cache.
const RECENT: usize = 128;

/// A cached response.
pub(super) struct Stored {
    pub(super) key: Arc<str>,
    pub(super) status: u16,
    pub(super) headers: Arc<Headers>,
    pub(super) body: Bytes,
    pub(super) since: Instant,
    /// `since` in seconds since 1970.
    pub(super) timestamp: u64,
    pub(super) term: Term,
    /// The request headers that the response varies by, and their values.
    pub(super) vary: Vec<(String, Vec<Vec<u8>>)>,
    /// It was removed or replaced.
    pub(super) is_gone: AtomicBool,
    /// It was requested since the last check.
    pub(super) is_used: AtomicBool,
}

impl Stored {
    fn suits(&self, exchange: &Exchange, now: Instant) -> bool {
        let headers = &exchange.request.headers;
        let is_same = |(name, values): &(String, Vec<Vec<u8>>)| headers.get_all(name).eq(values);
        !self.is_over(now) && self.vary.iter().all(is_same)
    }

    fn is_over(&self, now: Instant) -> bool {
        let is_old = |stored_for| now.saturating_duration_since(self.since) >= stored_for;
        self.is_gone.load(Relaxed) || self.term.stored_for.is_some_and(is_old)
    }

    fn bytes(&self) -> usize {
        let headers = self.headers.iter().map(|field| field.name.len() + field.value.len() + 32);
        let varying =
            self.vary.iter().flat_map(|(name, values)| values.iter().map(|value| name.len() + value.len()));
        OVERHEAD + self.body.len() + headers.sum::<usize>() + varying.sum::<usize>()
    }

    fn shown(&self) -> Value {
        let mut headers = serde_json::Map::new();
        for field in self.headers.iter() {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let (name, value) = (text(field.name), Value::String(text(field.value)));
            match headers.get_mut(&name) {
                None => drop(headers.insert(name, value)),
                Some(Value::Array(values)) => values.push(value),
                Some(one) => *one = json!([one.take(), value]),
            }
        }
        json!({
            "version": 1, "status": self.status, "headers": headers, "body": String::from_utf8_lossy(&self.body),
            "body_len": self.body.len(), "timestamp": self.timestamp, "ttl": self.term.lifetime.as_secs(),
        })
    }
}

/// All responses under one key.
#[derive(Default)]
struct Slot {
    variants: Vec<Arc<Stored>>,
    /// Until when requests do not wait for each other, because the response was not cacheable.
    uncacheable: Option<Instant>,
}

impl Slot {
    fn bytes(&self) -> usize {
        OVERHEAD + self.variants.iter().map(|stored| stored.bytes()).sum::<usize>()
    }

    /// Marks the responses as gone, so that no worker uses them from its own cache.
    fn forget(&self) {
        self.variants.iter().for_each(|stored| stored.is_gone.store(true, Relaxed));
    }

    fn is_over(&self, now: Instant) -> bool {
        self.uncacheable.is_none_or(|until| until <= now)
            && self.variants.iter().all(|stored| stored.is_over(now))
    }

    /// Whether any was requested since the last call.
    fn was_used(&self) -> bool {
        self.variants.iter().filter(|stored| stored.is_used.swap(false, Relaxed)).count() > 0
    }
}

#[derive(Default)]
struct Shard {
    slots: IndexMap<Fingerprint, Slot, FingerprintState>,
    /// The requests in flight: when they began, and a channel that closes when they end.
    fetched: FingerprintMap<(Instant, watch::Receiver<()>)>,
    /// Where the next eviction begins.
    hand: usize,
}

/// The cache of a node.
pub(super) struct Cache {
    /// Hashes keys, with a random key of this process.
    pub(super) key: Fingerprinter,
    shards: Box<[Mutex<Shard>]>,
    bytes: AtomicUsize,
    most: usize,
}

impl Default for Cache {
    fn default() -> Self {
        Self::of(MAX_BYTES)
    }
}

thread_local! {
    static RECENTLY: RefCell<Vec<(Fingerprint, Weak<Stored>)>> = const { RefCell::new(Vec::new()) };
}

/// How a request gets a response that is not in the cache.
pub(super) enum Joined {
    /// It goes to the upstream; others wait for it.
    Leads(Lead),
    /// It waits for another one: the channel closes when that ends.
    Follows(watch::Receiver<()>),
    /// It goes to the upstream; no other request waits for it.
    Alone,
}

/// Other requests wait as long as this exists, but no longer than `WAIT_TIMEOUT`.
pub(super) struct Lead {
    cache: Arc<Cache>,
    fingerprint: Fingerprint,
    waited: watch::Sender<()>,
}

impl Lead {
    /// The response is not cacheable: requests do not wait for each other for a while.
    pub(super) fn uncacheable(self) {
        let mut shard = self.cache.shard(self.fingerprint);
        let before = shard.slots.get(&self.fingerprint).map_or(0, Slot::bytes);
        let slot = shard.slots.entry(self.fingerprint).or_default();
        slot.uncacheable = Some(Instant::now() + UNCACHEABLE_TIME);
        let after = slot.bytes();
        drop(shard);
        self.cache.count(before, after);
        self.cache.make_room(self.fingerprint);
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        let mut shard = self.cache.shard(self.fingerprint);
        let own = self.waited.subscribe();
        if shard.fetched.get(&self.fingerprint).is_some_and(|(_, waited)| waited.same_channel(&own)) {
            shard.fetched.remove(&self.fingerprint);
        }
    }
}

impl Cache {
    /// A cache of this size in bytes.
    pub(super) fn of(most: usize) -> Self {
        Self {
            key: Fingerprinter::with_random_key(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            bytes: AtomicUsize::new(0),
            most,
        }
    }

    /// The size of all cached responses.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    fn shard(&self, fingerprint: Fingerprint) -> MutexGuard<'_, Shard> {
        lock(&self.shards[(fingerprint >> 64) as usize % SHARDS])
    }

    /// The response for this request, fresh or stale.
    pub(super) fn find(
        &self,
        fingerprint: Fingerprint,
        exchange: &Exchange,
        now: Instant,
    ) -> Option<Arc<Stored>> {
        RECENTLY.with_borrow_mut(|recent| {
            recent.resize_with(RECENT, || (0, Weak::new()));
            let at_hand = &mut recent[fingerprint as usize % RECENT];
            let known = (at_hand.0 == fingerprint).then(|| at_hand.1.upgrade()).flatten();
            let found = known.filter(|stored| stored.suits(exchange, now)).or_else(|| {
                let shard = self.shard(fingerprint);
                let mut variants = shard.slots.get(&fingerprint)?.variants.iter();
                let found = variants.find(|stored| stored.suits(exchange, now))?.clone();
                *at_hand = (fingerprint, Arc::downgrade(&found));
                Some(found)
            })?;
            if !found.is_used.load(Relaxed) {
                found.is_used.store(true, Relaxed);
            }
            Some(found)
        })
    }

    /// Joins a request in flight, or begins one. A slow client does not block others for longer than `WAIT_TIMEOUT`.
    pub(super) fn join(self: &Arc<Self>, fingerprint: Fingerprint, now: Instant) -> Joined {
        let mut shard = self.shard(fingerprint);
        if let Some((since, waited)) = shard.fetched.get(&fingerprint)
            && now.saturating_duration_since(*since) < WAIT_TIMEOUT
        {
            return Joined::Follows(waited.clone());
        }
        let uncacheable = shard.slots.get(&fingerprint).and_then(|slot| slot.uncacheable);
        if uncacheable.is_some_and(|until| until > now) {
            return Joined::Alone;
        }
        let (sender, receiver) = watch::channel(());
        shard.fetched.insert(fingerprint, (now, receiver));
        Joined::Leads(Lead { cache: self.clone(), fingerprint, waited: sender })
    }

    /// Stores a response; it replaces one for the same requests.
    pub(super) fn insert(&self, fingerprint: Fingerprint, stored: Stored) {
        let now = Instant::now();
        let mut shard = self.shard(fingerprint);
        let before = shard.slots.get(&fingerprint).map_or(0, Slot::bytes);
        let slot = shard.slots.entry(fingerprint).or_default();
        slot.uncacheable = None;
        slot.variants.retain(|other| {
            let stays = other.vary != stored.vary && !other.is_over(now);
            other.is_gone.fetch_or(!stays, Relaxed);
            stays
        });
        if slot.variants.len() >= VARIANTS {
            slot.variants.remove(0).is_gone.store(true, Relaxed);
        }
        slot.variants.push(Arc::new(stored));
        let after = slot.bytes();
        drop(shard);
        self.count(before, after);
        self.make_room(fingerprint);
    }

    fn count(&self, before: usize, after: usize) {
        // In this order, so that the sum never falls below zero.
        self.bytes.fetch_add(after, Relaxed);
        self.bytes.fetch_sub(before, Relaxed);
    }

    /// Evicts responses that are over or were not used lately, until the rest fits; the shard of the insertion comes
    /// last.
    fn make_room(&self, fingerprint: Fingerprint) {
        let first = (fingerprint >> 64) as usize % SHARDS;
        // Twice, because the first pass may find that everything was used.
        for at in (first + 1..=first + 2 * SHARDS).map(|at| at % SHARDS) {
            if self.bytes.load(Relaxed) <= self.most {
                return;
            }
            self.make_room_in(&mut lock(&self.shards[at]));
        }
    }

    fn make_room_in(&self, shard: &mut Shard) {
        let now = Instant::now();
        for _ in 0..shard.slots.len() {
            if self.bytes.load(Relaxed) <= self.most {
                return;
            }
            shard.hand = if shard.hand < shard.slots.len() { shard.hand } else { 0 };
            let Some((_, slot)) = shard.slots.get_index(shard.hand) else { return };
            if !slot.is_over(now) && slot.was_used() {
                shard.hand += 1;
                continue;
            }
            if let Some((_, slot)) = shard.slots.swap_remove_index(shard.hand) {
                slot.forget();
                self.count(slot.bytes(), 0);
                // The last insertion was moved here: it must not go first.
                shard.hand += 1;
            }
        }
    }

    /// Removes the slots that meet a condition; returns how many.
    fn remove(&self, condition: impl Fn(&Slot) -> bool) -> usize {
        let mut removed = 0;
        for shard in &self.shards {
            lock(shard).slots.retain(|_, slot| {
                let goes = condition(slot);
                if goes {
                    slot.forget();
                    self.count(slot.bytes(), 0);
                    removed += 1;
                }
                !goes
            });
        }
        removed
    }

    fn shown(&self, key: &str) -> Option<Value> {
        let now = Instant::now();
        self.shards.iter().find_map(|shard| {
            let shard = lock(shard);
            let mut all = shard.slots.values().flat_map(|slot| &slot.variants);
            all.find(|stored| *stored.key == *key && !stored.is_over(now)).map(|stored| stored.shown())
        })
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the size of the cache in bytes, and its limit.
pub(crate) fn usage(retained: &Retained) -> impl Fn() -> (usize, usize) + Send + Sync + use<> {
    let cache = retained.get::<Cache>();
    move || (cache.bytes(), cache.most)
}

/// The cached response under a key, as JSON.
pub(super) fn shown(retained: &Retained, key: &str) -> Option<Value> {
    retained.get::<Cache>().shown(key)
}

/// Purges the responses under a key; returns whether there were any.
pub(super) fn purge(retained: &Retained, key: &str) -> bool {
    let now = Instant::now();
    let has = |slot: &Slot| slot.variants.iter().any(|stored| *stored.key == *key && !stored.is_over(now));
    retained.get::<Cache>().remove(has) > 0
}

/// Purges the whole cache.
pub(super) fn purge_all(retained: &Retained) {
    retained.get::<Cache>().remove(|_| true);
}
