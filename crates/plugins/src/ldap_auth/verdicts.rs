//! What the directory said of logins, for a while.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_plugin::{Fingerprint, FingerprintMap, Fingerprinter};

/// Logins per generation of a shard.
const MAX_LOGINS: usize = 1024;

/// Verdicts, each until a point in time.
type Generation = FingerprintMap<(Instant, bool)>;

/// A cache of two generations, so that its size is bounded. Of users and passwords it has a keyed hash alone.
pub(super) struct Verdicts {
    key: Fingerprinter,
    lifetime: Duration,
    shards: [Mutex<[Generation; 2]>; 16],
}

impl Verdicts {
    /// One that remembers for this long.
    pub(super) fn new(lifetime: Duration) -> Self {
        Self { key: Fingerprinter::with_random_key(), lifetime, shards: Default::default() }
    }

    /// What stands for a login here.
    pub(super) fn key(&self, user: &[u8], password: &[u8]) -> Fingerprint {
        self.key.clone().with(user).of(password)
    }

    fn shard(&self, key: Fingerprint) -> &Mutex<[Generation; 2]> {
        &self.shards[(key >> 64) as usize % self.shards.len()]
    }

    /// Whether the login was right, if that is known.
    pub(super) fn get(&self, key: Fingerprint) -> Option<bool> {
        let shard = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        let (until, is_right) = shard.iter().find_map(|generation| generation.get(&key))?;
        (*until > Instant::now()).then_some(*is_right)
    }

    pub(super) fn remember(&self, key: Fingerprint, is_right: bool) {
        // A time that is out of range never comes.
        let Some(until) = Instant::now().checked_add(self.lifetime) else { return };
        let mut shard = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        if shard[0].len() >= MAX_LOGINS {
            shard[1] = std::mem::take(&mut shard[0]);
        }
        shard[0].insert(key, (until, is_right));
    }
}
