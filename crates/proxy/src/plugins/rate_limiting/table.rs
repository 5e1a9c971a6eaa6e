//! Every counter of the node, found by a keyed hash of what it counts.

use super::counter::{Counters, Limit, Usage};
use super::window::Period;
use crate::plugin::{Fingerprint, FingerprintState, Fingerprinter};
use indexmap::IndexMap;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The counters of this node, shared by all workers and kept across reloads.
pub(crate) struct Table {
    /// Hashes scopes and identifiers under this process's key.
    pub(crate) key: Fingerprinter,
    shards: Box<[Mutex<Shard>]>,
}

const SHARDS: usize = 64;
/// Counters to a shard. Beyond that, the one whose turn it is gives way, whether or not it is over, so that clients
/// under ever new addresses cannot fill the memory.
const MOST: usize = 16 * 1024;
/// Counters looked at when one is added: more than one, so that the dead leave faster than the living come.
const SWEPT_PER_INSERT: usize = 4;
/// Counters looked at in one shard, each second and on each worker.
const SWEPT_PER_SECOND: usize = 256;
/// Counters that each worker keeps at hand.
const RECENT: usize = 512;

impl Default for Table {
    fn default() -> Self {
        Self { key: Fingerprinter::new(), shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

/// A worker's own way to the counters it used last, past the locks.
struct Recent {
    slots: Vec<Option<(Fingerprint, Arc<Counters>)>>,
    swept: u64,
}

thread_local! {
    static OWN: RefCell<Recent> = const { RefCell::new(Recent { slots: Vec::new(), swept: 0 }) };
}

impl Table {
    /// Takes one of every limit, or of none, for what this is the fingerprint of.
    pub(crate) fn reserve(&self, whose: Fingerprint, limits: &[Limit], clock: impl Fn() -> u64) -> Usage {
        OWN.with_borrow_mut(|own| {
            let usage = own.find(whose, self, &clock).reserve(limits, &clock);
            if own.swept != usage.now {
                own.swept = usage.now;
                self.sweep_one_shard(usage.now);
            }
            usage
        })
    }

    /// Shares the counters with this fingerprint, and removes some that are over.
    fn find(&self, whose: Fingerprint, now: u64) -> Arc<Counters> {
        let mut shard = lock(&self.shards[(whose >> 64) as usize % SHARDS]);
        if let Some(counters) = shard.counters.get(&whose) {
            return counters.clone();
        }
        shard.sweep(SWEPT_PER_INSERT, now);
        while shard.counters.len() >= MOST {
            shard.evict();
        }
        shard.counters.entry(whose).or_default().clone()
    }

    fn sweep_one_shard(&self, now: u64) {
        if let Ok(mut shard) = self.shards[now as usize % SHARDS].try_lock() {
            shard.sweep(SWEPT_PER_SECOND, now);
        }
    }

    /// How many counters there are.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).counters.len()).sum()
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recent {
    fn find(&mut self, whose: Fingerprint, table: &Table, clock: impl Fn() -> u64) -> &Counters {
        if self.slots.is_empty() {
            self.slots.resize_with(RECENT, || None);
        }
        let slot = &mut self.slots[whose as usize % RECENT];
        if slot.as_ref().is_none_or(|(fingerprint, _)| *fingerprint != whose) {
            *slot = None;
        }
        &slot.get_or_insert_with(|| (whose, table.find(whose, clock()))).1
    }
}

#[derive(Default)]
struct Shard {
    counters: IndexMap<Fingerprint, Arc<Counters>, FingerprintState>,
    /// Where sweeping goes on.
    hand: usize,
}

impl Shard {
    /// Looks at the next counters and removes those that are over.
    fn sweep(&mut self, count: usize, now: u64) {
        let windows = Period::ALL.map(|period| period.window(now));
        for _ in 0..count.min(self.counters.len()) {
            if !self.remove_at_hand(|counters| counters.is_over(&windows)) {
                self.hand += 1;
            }
        }
        if self.counters.capacity() > 64 && self.counters.len() < self.counters.capacity() / 8 {
            self.counters.shrink_to(self.counters.len() * 2);
        }
    }

    fn evict(&mut self) {
        if !self.remove_at_hand(|_| true) {
            self.hand += 1;
        }
    }

    /// Counters that a worker keeps at hand stay: another worker must not begin to count them anew.
    fn remove_at_hand(&mut self, condition: impl Fn(&Counters) -> bool) -> bool {
        self.hand = if self.hand < self.counters.len() { self.hand } else { 0 };
        let Some((_, counters)) = self.counters.get_index(self.hand) else { return false };
        let removable = Arc::strong_count(counters) == 1 && condition(counters);
        if removable {
            self.counters.swap_remove_index(self.hand);
        }
        removable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: u64 = 1_706_702_400;

    fn reserve(table: &Table, whose: u128, limit: f64, now: u64) -> bool {
        table.reserve(whose, &[Limit::new(Period::Minute, limit)], || now).admitted
    }

    #[test]
    fn workers_share_their_counters() {
        let table = Table::default();
        let admitted: usize = std::thread::scope(|scope| {
            let count = || (0..1_000).filter(|i| reserve(&table, i % 3, 10.0, NOON)).count();
            let workers: Vec<_> = (0..8).map(|_| scope.spawn(count)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert_eq!(admitted, 30);
    }

    #[test]
    fn counters_that_a_worker_keeps_at_hand_are_not_swept() {
        let table = Table::default();
        assert!(reserve(&table, 1, 1.0, NOON));
        for later in 0..200 {
            table.sweep_one_shard(NOON + 3_600 + later);
        }
        assert_eq!(table.len(), 1);
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(reserve(&table, 1, 1.0, NOON + 3_600))).join().unwrap()
        });
        assert!(!reserve(&table, 1, 1.0, NOON + 3_600));
    }

    #[test]
    fn ever_new_clients_do_not_fill_the_memory() {
        let table = Table::default();
        let spread = |i: u64| table.key.of(&i.to_le_bytes());
        for i in 0..40_000 {
            reserve(&table, spread(i), 5.0, NOON + i / 100);
        }
        assert!(table.len() < 20_000, "{}", table.len());
        for i in 0..400 {
            reserve(&table, 7, 5.0, NOON + 3_600 + i);
        }
        assert!(table.len() <= RECENT + 1, "{}", table.len());
    }

    #[test]
    fn a_full_shard_makes_room_and_spares_what_is_in_use() {
        let mut shard = Shard::default();
        let in_use = Arc::new(Counters::default());
        shard.counters.insert(0, in_use.clone());
        (1..100).for_each(|i| drop(shard.counters.insert(i, Arc::default())));
        (0..150).for_each(|_| shard.evict());
        assert_eq!(shard.counters.keys().copied().collect::<Vec<_>>(), [0]);
        assert_eq!(Arc::strong_count(&in_use), 2);
    }
}
