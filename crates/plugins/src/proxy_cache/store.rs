//! The responses that a node has cached, and the requests in flight that fetch one. All workers share them; a worker
//! finds those that it used last without a lock.

use super::in_flight::Fetched;
use super::resources::Resources;
use super::stored::{OVERHEAD, Stored};
use indexmap::IndexMap;
use serde_json::Value;
use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use weir_plugin::Retained;
use weir_plugin::{Exchange, Fingerprint, FingerprintState, Fingerprinter};

/// The size of the cache in bytes.
const MAX_BYTES: usize = 128 * 1024 * 1024;
/// The size of one body in bytes.
pub(super) const MAX_BODY_LEN: usize = 8 * 1024 * 1024;
/// Responses under one key, which differ by what their `Vary` names.
const VARIANTS: usize = 16;
/// How long requests do not wait for each other after a response was not cacheable.
const UNCACHEABLE_TIME: Duration = Duration::from_secs(5);
pub(super) const SHARDS: usize = 32;
/// Responses in each worker's own cache.
const RECENT: usize = 128;

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
pub(super) struct Shard {
    slots: IndexMap<Fingerprint, Slot, FingerprintState>,
    /// The requests in flight.
    pub(super) fetched: Fetched,
    /// Where the next eviction begins.
    hand: usize,
}

/// The cache of a node.
pub(super) struct Cache {
    /// Hashes keys, with the node's key.
    pub(super) key: Fingerprinter,
    shards: Box<[Mutex<Shard>]>,
    resources: Resources,
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

impl Cache {
    /// A cache of this size in bytes.
    pub(super) fn of(most: usize) -> Self {
        Self {
            key: Fingerprinter::with_node_key(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            resources: Resources::default(),
            bytes: AtomicUsize::new(0),
            most,
        }
    }

    /// The size of all cached responses.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    pub(super) fn shard(&self, fingerprint: Fingerprint) -> MutexGuard<'_, Shard> {
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

    /// Whether requests with this key do not wait for each other, because the response was not cacheable.
    pub(super) fn is_uncacheable(shard: &Shard, fingerprint: Fingerprint, now: Instant) -> bool {
        let uncacheable = shard.slots.get(&fingerprint).and_then(|slot| slot.uncacheable);
        uncacheable.is_some_and(|until| until > now)
    }

    /// Requests with this key do not wait for each other for a while.
    pub(super) fn mark_uncacheable(&self, fingerprint: Fingerprint) {
        let mut shard = self.shard(fingerprint);
        let before = shard.slots.get(&fingerprint).map_or(0, Slot::bytes);
        let slot = shard.slots.entry(fingerprint).or_default();
        slot.uncacheable = Some(Instant::now() + UNCACHEABLE_TIME);
        let after = slot.bytes();
        drop(shard);
        self.count(before, after);
        self.make_room(fingerprint);
    }

    /// Stores a response; it replaces one for the same requests.
    pub(super) fn insert(&self, fingerprint: Fingerprint, stored: Arc<Stored>) {
        let now = Instant::now();
        self.resources.add(stored.subject.resource.fingerprint, fingerprint);
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
        slot.variants.push(stored);
        let after = slot.bytes();
        drop(shard);
        self.count(before, after);
        self.make_room(fingerprint);
    }

    /// All that can be used.
    pub(super) fn all(&self) -> Vec<(Fingerprint, Arc<Stored>)> {
        let (now, mut all) = (Instant::now(), Vec::new());
        for shard in &self.shards {
            for (fingerprint, slot) in &lock(shard).slots {
                let variants = slot.variants.iter().filter(|stored| !stored.is_over(now));
                all.extend(variants.map(|stored| (*fingerprint, stored.clone())));
            }
        }
        all
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
            if let Some((fingerprint, slot)) = shard.slots.swap_remove_index(shard.hand) {
                self.forget(fingerprint, &slot);
                // The last insertion was moved here: it must not go first.
                shard.hand += 1;
            }
        }
    }

    fn forget(&self, fingerprint: Fingerprint, slot: &Slot) {
        slot.forget();
        for stored in &slot.variants {
            self.resources.remove(stored.subject.resource.fingerprint, fingerprint);
        }
        self.count(slot.bytes(), 0);
    }

    /// Removes the slots with a response that meets a condition; returns how many.
    fn remove(&self, condition: impl Fn(&Stored) -> bool) -> usize {
        let mut removed = 0;
        for shard in &self.shards {
            lock(shard).slots.retain(|fingerprint, slot| {
                let goes = slot.variants.iter().any(|stored| condition(stored));
                if goes {
                    self.forget(*fingerprint, slot);
                    removed += 1;
                }
                !goes
            });
        }
        removed
    }

    /// Removes the responses of a resource; returns whether there were any.
    pub(super) fn invalidate(&self, resource: Fingerprint) -> bool {
        let mut was_there = false;
        for fingerprint in self.resources.take(resource) {
            let mut shard = self.shard(fingerprint);
            if let Some(slot) = shard.slots.swap_remove(&fingerprint) {
                self.forget(fingerprint, &slot);
                was_there = true;
            }
        }
        was_there
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
    retained.get::<Cache>().remove(|stored| *stored.key == *key && !stored.is_over(now)) > 0
}

/// Purges what has this tag, if one is given, and whose path begins with this prefix, if one is given.
pub(super) fn purge_all(retained: &Retained, tag: Option<&str>, prefix: Option<&str>) {
    retained.get::<Cache>().remove(|stored| {
        let subject = &stored.subject;
        tag.is_none_or(|tag| subject.tags.iter().any(|known| known == tag))
            && prefix.is_none_or(|prefix| subject.path.starts_with(prefix))
    });
}
