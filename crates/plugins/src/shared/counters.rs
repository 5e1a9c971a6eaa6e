//! The counters of a plugin, found by a keyed hash of what they count, shared by all workers and kept across reloads.

use indexmap::IndexMap;
use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::LocalKey;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_plugin::{Fingerprint, FingerprintState, Fingerprinter, Handover};

/// What a table stores.
pub(crate) trait Counter: Default + Send + Sync + 'static {
    /// The current time in the counter's unit, computed once for many counters.
    type Time;
    /// The time that is this many seconds after 1970.
    fn time(seconds: u64) -> Self::Time;
    /// Whether the counter holds nothing any more at this time.
    fn is_over(&self, now: &Self::Time) -> bool;
    /// How many numbers a counter is, for a process that replaces this one.
    const NUMBERS: usize = 0;
    /// These numbers.
    fn numbers(&self) -> Vec<u64> {
        Vec::new()
    }
    /// Takes over these numbers.
    fn restore(&self, _: &[u64]) {}
    /// The counters that each worker used last.
    fn recent() -> &'static LocalKey<RefCell<Recent<Self>>>;
}

/// The counters of one kind.
pub(crate) struct Table<C> {
    /// Hashes scopes and identifiers under this node's key.
    pub(crate) key: Fingerprinter,
    /// No other table of this process has it. Tables have the same key, and each worker one cache for all of them.
    number: Fingerprint,
    shards: Box<[Mutex<Shard<C>>]>,
}

const SHARDS: usize = 64;
/// Counters per shard. A full shard evicts the next one in turn, expired or not, so that clients with ever new
/// addresses cannot exhaust the memory.
const MAX_COUNTERS: usize = 16 * 1024;
/// Counters checked per insertion: more than one, so that expired ones leave faster than new ones come.
const SWEPT_PER_INSERT: usize = 4;
/// Candidates for eviction when a counter is added to a full shard.
const EVICTED_PER_INSERT: usize = 64;
/// Counters checked in one shard, each second and on each worker.
const SWEPT_PER_SECOND: usize = 256;
/// Counters in each worker's cache.
const RECENT: usize = 512;

impl<C: Counter> Default for Table<C> {
    fn default() -> Self {
        static TABLES: AtomicU64 = AtomicU64::new(0);
        Self {
            key: Fingerprinter::with_node_key(),
            number: TABLES.fetch_add(1, Ordering::Relaxed).into(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }
}

/// A worker's cache of the counters that it used last; it needs no lock.
pub(crate) struct Recent<C> {
    slots: Vec<Option<(Fingerprint, Arc<C>)>>,
    swept: u64,
}

impl<C> Recent<C> {
    /// An empty cache.
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), swept: 0 }
    }
}

impl<C: Counter> Table<C> {
    /// Calls `count` with the counter of this fingerprint. `count` also returns the second that it counted in.
    pub(crate) fn with<T>(
        &self,
        whose: Fingerprint,
        clock: impl Fn() -> u64,
        count: impl FnOnce(&Arc<C>) -> (u64, T),
    ) -> T {
        C::recent().with_borrow_mut(|own| {
            let (now, counted) = count(own.find(whose, self, &clock));
            if own.swept != now {
                own.swept = now;
                self.sweep_one_shard(now);
            }
            counted
        })
    }

    /// Finds or adds the counter with this fingerprint, and removes some that are over.
    fn find(&self, whose: Fingerprint, now: u64) -> Arc<C> {
        let mut shard = lock(&self.shards[(whose >> 64) as usize % SHARDS]);
        if let Some(counter) = shard.counters.get(&whose) {
            return counter.clone();
        }
        shard.sweep(SWEPT_PER_INSERT, now);
        // If all candidates are in use, the shard holds one more until they are not.
        for _ in 0..EVICTED_PER_INSERT {
            if shard.counters.len() < MAX_COUNTERS {
                break;
            }
            shard.evict();
        }
        shard.counters.entry(whose).or_default().clone()
    }

    /// Hands the counters to a process that replaces this one.
    pub(crate) const fn handover(name: &'static str) -> Handover {
        Handover {
            name,
            export: |retained, to| retained.get::<Self>().export(to),
            import: |retained, bytes| retained.get::<Self>().import(bytes, wall_clock()),
        }
    }

    fn export(&self, to: &mut dyn Write) -> io::Result<()> {
        for shard in &self.shards {
            let mut bytes = Vec::new();
            for (fingerprint, counter) in &lock(shard).counters {
                bytes.extend(fingerprint.to_le_bytes());
                bytes.extend(counter.numbers().into_iter().flat_map(u64::to_le_bytes));
            }
            to.write_all(&bytes)?;
        }
        Ok(())
    }

    /// Adds counters that another process has written, unless they are over.
    fn import(&self, bytes: &[u8], now: u64) {
        let now = C::time(now);
        for entry in bytes.chunks_exact(size_of::<Fingerprint>() + C::NUMBERS * size_of::<u64>()) {
            let (fingerprint, numbers) = entry.split_at(size_of::<Fingerprint>());
            let fingerprint = Fingerprint::from_le_bytes(fingerprint.try_into().unwrap_or_default());
            let numbers: Vec<u64> =
                numbers.as_chunks().0.iter().map(|number| u64::from_le_bytes(*number)).collect();
            let counter = C::default();
            counter.restore(&numbers);
            if !counter.is_over(&now) {
                lock(&self.shards[(fingerprint >> 64) as usize % SHARDS])
                    .counters
                    .insert(fingerprint, counter.into());
            }
        }
    }

    fn sweep_one_shard(&self, now: u64) {
        if let Ok(mut shard) = self.shards[now as usize % SHARDS].try_lock() {
            shard.sweep(SWEPT_PER_SECOND, now);
        }
    }

    /// The number of counters.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).counters.len()).sum()
    }
}

/// Seconds since 1970.
fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn lock<C>(shard: &Mutex<Shard<C>>) -> MutexGuard<'_, Shard<C>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<C: Counter> Recent<C> {
    fn find(&mut self, whose: Fingerprint, table: &Table<C>, clock: impl Fn() -> u64) -> &Arc<C> {
        if self.slots.is_empty() {
            self.slots.resize_with(RECENT, || None);
        }
        let slot = &mut self.slots[whose as usize % RECENT];
        let cached = whose ^ table.number;
        if slot.as_ref().is_none_or(|(known, _)| *known != cached) {
            *slot = None;
        }
        &slot.get_or_insert_with(|| (cached, table.find(whose, clock()))).1
    }
}

struct Shard<C> {
    counters: IndexMap<Fingerprint, Arc<C>, FingerprintState>,
    /// Where the next sweep begins.
    hand: usize,
}

impl<C> Default for Shard<C> {
    fn default() -> Self {
        Self { counters: IndexMap::default(), hand: 0 }
    }
}

impl<C: Counter> Shard<C> {
    /// Checks the next counters and removes those that are over.
    fn sweep(&mut self, count: usize, now: u64) {
        let time = C::time(now);
        for _ in 0..count.min(self.counters.len()) {
            if !self.remove_at_hand(|counter| counter.is_over(&time)) {
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

    /// Keeps counters that a worker has cached, because another worker must not start them again at zero.
    fn remove_at_hand(&mut self, condition: impl Fn(&C) -> bool) -> bool {
        self.hand = if self.hand < self.counters.len() { self.hand } else { 0 };
        let Some((_, counter)) = self.counters.get_index(self.hand) else { return false };
        let removable = Arc::strong_count(counter) == 1 && condition(counter);
        if removable {
            self.counters.swap_remove_index(self.hand);
        }
        removable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    const NOON: u64 = 1_706_702_400;

    /// The minute in the upper half, the count in the lower.
    #[derive(Default)]
    struct PerMinute(AtomicU64);

    thread_local! {
        static OWN: RefCell<Recent<PerMinute>> = const { RefCell::new(Recent::new()) };
    }

    impl Counter for PerMinute {
        type Time = u64;
        fn time(seconds: u64) -> u64 {
            seconds / 60
        }
        fn is_over(&self, minute: &u64) -> bool {
            self.0.load(Relaxed) >> 16 < *minute
        }
        const NUMBERS: usize = 1;
        fn numbers(&self) -> Vec<u64> {
            vec![self.0.load(Relaxed)]
        }
        fn restore(&self, numbers: &[u64]) {
            self.0.store(numbers[0], Relaxed);
        }
        fn recent() -> &'static LocalKey<RefCell<Recent<Self>>> {
            &OWN
        }
    }

    /// Whether one of the `limit` per minute is left.
    fn reserve(table: &Table<PerMinute>, whose: u128, limit: u64, now: u64) -> bool {
        table.with(
            whose,
            || now,
            |counter| {
                let window = (now / 60) << 16;
                let more = |value: u64| {
                    let used = value.max(window);
                    (used < window + limit).then_some(used + 1)
                };
                (now, counter.0.fetch_update(Relaxed, Relaxed, more).is_ok())
            },
        )
    }

    #[test]
    fn workers_share_their_counters() {
        let table = Table::default();
        let admitted: usize = std::thread::scope(|scope| {
            let count = || (0..1_000).filter(|i| reserve(&table, i % 3, 10, NOON)).count();
            let workers: Vec<_> = (0..8).map(|_| scope.spawn(count)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert_eq!(admitted, 30);
    }

    #[test]
    fn counters_that_a_worker_keeps_at_hand_are_not_swept() {
        let table = Table::default();
        assert!(reserve(&table, 1, 1, NOON));
        for later in 0..200 {
            table.sweep_one_shard(NOON + 3_600 + later);
        }
        assert_eq!(table.len(), 1);
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(reserve(&table, 1, 1, NOON + 3_600))).join().unwrap()
        });
        assert!(!reserve(&table, 1, 1, NOON + 3_600));
    }

    #[test]
    fn another_process_goes_on_counting() {
        let now = NOON;
        let (old, new) = (Table::default(), Table::default());
        assert!((0..5).all(|i| reserve(&old, i, 2, now)) && reserve(&old, 9, 2, now - 3_600));
        let mut bytes = Vec::new();
        old.export(&mut bytes).unwrap();
        new.import(&bytes, now);
        assert_eq!(new.len(), 5, "what is over is left out");
        std::thread::scope(|scope| {
            let left = || (0..3).filter(|_| reserve(&new, 3, 2, now)).count();
            assert_eq!(scope.spawn(left).join().unwrap(), 1);
        });
        new.import(b"cut", now);
        assert_eq!(old.key.of(b"whose"), new.key.of(b"whose"));
    }

    #[test]
    fn ever_new_clients_do_not_fill_the_memory() {
        let table = Table::default();
        let spread = |i: u64| table.key.of(&i.to_le_bytes());
        for i in 0..40_000 {
            reserve(&table, spread(i), 5, NOON + i / 100);
        }
        assert!(table.len() < 20_000, "{}", table.len());
        for i in 0..400 {
            reserve(&table, 7, 5, NOON + 3_600 + i);
        }
        assert!(table.len() <= RECENT + 1, "{}", table.len());
    }

    #[test]
    fn a_full_shard_of_counters_in_use_has_room_for_another() {
        let table = Table::<PerMinute>::default();
        let of_one_shard = |i: usize| (1 << 64) | i as Fingerprint;
        let in_use: Vec<_> = (0..MAX_COUNTERS).map(|i| table.find(of_one_shard(i), NOON)).collect();
        table.find(of_one_shard(MAX_COUNTERS), NOON);
        assert_eq!(table.len(), MAX_COUNTERS + 1);
        drop(in_use);
        table.find(of_one_shard(MAX_COUNTERS + 1), NOON);
        assert!(table.len() <= MAX_COUNTERS, "{}", table.len());
    }

    #[test]
    fn a_full_shard_makes_room_and_spares_what_is_in_use() {
        let mut shard = Shard::default();
        let in_use = Arc::new(PerMinute::default());
        shard.counters.insert(0, in_use.clone());
        (1..100).for_each(|i| drop(shard.counters.insert(i, Arc::default())));
        (0..150).for_each(|_| shard.evict());
        assert_eq!(shard.counters.keys().copied().collect::<Vec<_>>(), [0]);
        assert_eq!(Arc::strong_count(&in_use), 2);
    }
}
