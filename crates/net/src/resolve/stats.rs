//! What the resolver has done for each name, as Kong's DNS client reports it.

use super::{Lookup, ResolveError};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The look-ups of one name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LookupStats {
    /// All.
    pub runs: u64,
    /// Those that the cache answered.
    pub hits: u64,
    /// Of these, the ones whose answer had expired.
    pub stale: u64,
    /// Those that waited for a query.
    pub misses: u64,
}

/// The queries for one type of records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueryStats {
    /// All.
    pub queries: u64,
    /// Those that found records.
    pub successes: u64,
    /// Those for which no server answered, or that a server refused.
    pub server_failures: u64,
    /// Those that found no records.
    pub empty: u64,
    /// How long the last one took.
    pub last_time: Duration,
}

/// One name.
#[derive(Debug, Clone, Default)]
pub struct NameStats {
    /// The name.
    pub name: String,
    /// The type of the records that answered last.
    pub source: Option<Lookup>,
    /// Its look-ups.
    pub lookups: LookupStats,
    /// Its queries.
    pub queries: Vec<(Lookup, QueryStats)>,
}

/// The counters of one name.
#[derive(Default)]
pub(super) struct Counters {
    hits: AtomicU64,
    stale: AtomicU64,
    misses: AtomicU64,
    queries: Mutex<BTreeMap<Lookup, QueryStats>>,
}

impl Counters {
    /// The cache has answered, perhaps with an expired answer.
    pub(super) fn hit(&self, is_stale: bool) {
        self.hits.fetch_add(1, Relaxed);
        if is_stale {
            self.stale.fetch_add(1, Relaxed);
        }
    }

    /// A look-up had to wait.
    pub(super) fn miss(&self) {
        self.misses.fetch_add(1, Relaxed);
    }

    /// A query has ended.
    pub(super) fn query<T>(&self, kind: Lookup, outcome: &Result<T, ResolveError>, took: Duration) {
        let mut queries = self.queries.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = queries.entry(kind).or_default();
        (stats.queries, stats.last_time) = (stats.queries + 1, took);
        match outcome {
            Ok(_) => stats.successes += 1,
            Err(ResolveError::NotFound | ResolveError::InvalidName) => stats.empty += 1,
            Err(ResolveError::Timeout | ResolveError::Failed(_)) => stats.server_failures += 1,
        }
    }

    pub(super) fn lookups(&self) -> LookupStats {
        let [hits, stale, misses] = [&self.hits, &self.stale, &self.misses].map(|count| count.load(Relaxed));
        LookupStats { runs: hits + misses, hits, stale, misses }
    }

    pub(super) fn queries(&self) -> Vec<(Lookup, QueryStats)> {
        let queries = self.queries.lock().unwrap_or_else(PoisonError::into_inner);
        queries.iter().map(|(kind, stats)| (*kind, stats.clone())).collect()
    }
}
