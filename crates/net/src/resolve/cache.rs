//! The DNS cache. Readers take no lock; a new name copies one small shard.

use super::stats::Counters;
use super::{Addresses, Lookup, ResolveError};
use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use foldhash::HashMap;
use foldhash::fast::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

const SHARDS: usize = 64;

type Shard = HashMap<Box<str>, Arc<Slot>>;

/// A bounded number of names.
pub(super) struct Cache {
    shards: Box<[ArcSwap<Shard>]>,
    hasher: RandomState,
    shard_size: usize,
}

impl Cache {
    pub(super) fn new(size: usize) -> Self {
        let shards = (0..SHARDS).map(|_| ArcSwap::default()).collect();
        Self { shards, hasher: RandomState::default(), shard_size: size.div_ceil(SHARDS).max(1) }
    }

    /// The slot of a name, created if it has none. A full cache evicts the name whose answer expires first.
    pub(super) fn slot(&self, name: &str) -> Arc<Slot> {
        let shard = &self.shards[self.hasher.hash_one(name) as usize % SHARDS];
        if let Some(slot) = shard.load().get(name) {
            return slot.clone();
        }
        let fresh = Arc::new(Slot::new(name));
        shard.rcu(|names| {
            let mut names = Shard::clone(names);
            if !names.contains_key(name) {
                make_room(&mut names, self.shard_size);
                names.insert(name.into(), fresh.clone());
            }
            names
        });
        shard.load().get(name).cloned().unwrap_or(fresh)
    }

    /// All slots, in no order.
    pub(super) fn slots(&self) -> impl Iterator<Item = Arc<Slot>> {
        self.shards.iter().flat_map(|shard| shard.load().values().cloned().collect::<Vec<_>>())
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.load().len()).sum()
    }
}

fn make_room(names: &mut Shard, size: usize) {
    if names.len() < size {
        return;
    }
    // A name whose query is in flight is evicted last.
    let expiry = |slot: &Slot| match &*slot.answer() {
        Some(answer) => (false, Some(answer.fresh_until)),
        None => (true, None),
    };
    let first = names.iter().min_by_key(|(_, slot)| expiry(slot)).map(|(name, _)| name.clone());
    if let Some(name) = first {
        names.remove(&name);
    }
}

/// The cache entry of one name.
pub(super) struct Slot {
    pub(super) name: Box<str>,
    answer: ArcSwapOption<Answer>,
    renewing: AtomicBool,
    news: Notify,
    pub(super) counters: Counters,
}

/// The result of a query.
pub(super) struct Answer {
    pub(super) result: Result<Arc<Addresses>, ResolveError>,
    /// The type of the records in the answer.
    pub(super) source: Option<Lookup>,
    /// When the answer expires. Until then the name is not queried again.
    pub(super) fresh_until: Instant,
    /// Until when a stale answer is served while the name is queried.
    pub(super) stale_until: Instant,
}

impl Slot {
    fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            answer: ArcSwapOption::empty(),
            renewing: AtomicBool::new(false),
            news: Notify::new(),
            counters: Counters::default(),
        }
    }

    pub(super) fn answer(&self) -> Guard<Option<Arc<Answer>>> {
        self.answer.load()
    }

    /// Completes when a query has ended. Enable it before reading the answer.
    pub(super) fn news(&self) -> Notified<'_> {
        self.news.notified()
    }

    /// Starts a query for the name, unless one is in flight.
    pub(super) fn begin_renewal(self: &Arc<Self>) -> Option<Renewal> {
        let idle = !self.renewing.swap(true, Ordering::AcqRel);
        idle.then(|| Renewal(self.clone()))
    }
}

/// A query in flight. Dropping it wakes the tasks that wait for the name, whatever the result.
pub(super) struct Renewal(Arc<Slot>);

impl Renewal {
    pub(super) fn slot(&self) -> &Slot {
        &self.0
    }

    pub(super) fn complete(self, answer: Answer) {
        self.0.answer.store(Some(Arc::new(answer)));
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.renewing.store(false, Ordering::Release);
        self.0.news.notify_waiters();
    }
}
