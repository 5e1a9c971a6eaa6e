//! What the database or another server says of something, for a short while.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_plugin::{Fingerprint, FingerprintMap, Fingerprinter};

/// Rows per generation of a shard.
const MAX_ROWS: usize = 1024;

/// How long a row that another node has deleted is still known.
pub(crate) const MAX_KNOWN: Duration = Duration::from_secs(5);

/// How long it takes until a row that was asked for before it was created is known.
const UNKNOWN: Duration = Duration::from_secs(1);

type Generation<T> = FingerprintMap<(Instant, Option<Arc<T>>)>;

/// A cache of two generations, so that its size is bounded, which survives reloads.
pub(crate) struct RowCache<T> {
    key: Fingerprinter,
    shards: [Mutex<[Generation<T>; 2]>; 16],
}

impl<T> Default for RowCache<T> {
    fn default() -> Self {
        let shards = std::array::from_fn(|_| Mutex::new(std::array::from_fn(|_| Generation::default())));
        Self { key: Fingerprinter::with_random_key(), shards }
    }
}

impl<T> RowCache<T> {
    fn shard(&self, key: Fingerprint) -> &Mutex<[Generation<T>; 2]> {
        &self.shards[(key >> 64) as usize % self.shards.len()]
    }

    /// What is known of the row with this key, such as an access token: without an inner value where there is no such row.
    pub(crate) fn get(&self, key: impl AsRef<[u8]>) -> Option<Option<Arc<T>>> {
        let key = self.key.of(key.as_ref());
        let shard = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        let (until, row) = shard.iter().find_map(|generation| generation.get(&key))?;
        (*until > Instant::now()).then(|| row.clone())
    }

    pub(crate) fn remember(&self, key: impl AsRef<[u8]>, row: Option<Arc<T>>) {
        self.remember_for(MAX_KNOWN, key, row);
    }

    /// The same of a row that ends so soon.
    pub(crate) fn remember_for(&self, left: Duration, key: impl AsRef<[u8]>, row: Option<Arc<T>>) {
        self.keep(left.min(if row.is_some() { MAX_KNOWN } else { UNKNOWN }), key, row);
    }

    /// The same for what may be kept longer.
    pub(crate) fn keep(&self, left: Duration, key: impl AsRef<[u8]>, row: Option<Arc<T>>) {
        let key = self.key.of(key.as_ref());
        let until = Instant::now() + left;
        let mut shard = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        if shard[0].len() >= MAX_ROWS {
            shard[1] = std::mem::take(&mut shard[0]);
        }
        shard[0].insert(key, (until, row));
    }

    /// What is known of a row is no longer true.
    pub(crate) fn forget(&self, key: impl AsRef<[u8]>) {
        let key = self.key.of(key.as_ref());
        let mut shard = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        shard.iter_mut().for_each(|generation| drop(generation.remove(&key)));
    }
}
