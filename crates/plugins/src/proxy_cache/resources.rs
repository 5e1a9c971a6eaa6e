//! Which keys a resource has: one for each consumer, method and the like.

use super::store::SHARDS;
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_plugin::{Fingerprint, FingerprintMap, FingerprintState};

type Keys = HashSet<Fingerprint, FingerprintState>;

/// The keys of each resource. No lock of another table is taken while one of these is held.
pub(super) struct Resources(Box<[Mutex<FingerprintMap<Keys>>]>);

impl Default for Resources {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }
}

impl Resources {
    fn shard(&self, resource: Fingerprint) -> MutexGuard<'_, FingerprintMap<Keys>> {
        self.0[(resource >> 64) as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, resource: Fingerprint, key: Fingerprint) {
        self.shard(resource).entry(resource).or_default().insert(key);
    }

    pub(super) fn remove(&self, resource: Fingerprint, key: Fingerprint) {
        let mut shard = self.shard(resource);
        let Some(keys) = shard.get_mut(&resource) else { return };
        keys.remove(&key);
        if keys.is_empty() {
            shard.remove(&resource);
        }
    }

    /// Removes a resource, and returns its keys.
    pub(super) fn take(&self, resource: Fingerprint) -> Keys {
        self.shard(resource).remove(&resource).unwrap_or_default()
    }
}
