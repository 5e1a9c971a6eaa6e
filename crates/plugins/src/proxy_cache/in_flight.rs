//! Requests in flight that fetch a response: others with the same key wait for it.

use super::store::Cache;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use weir_plugin::{Fingerprint, FingerprintMap};

/// How long a request waits for the response to another one with the same key.
pub(super) const WAIT_TIMEOUT: Duration = Duration::from_secs(5);

/// The requests in flight: when they began, and a channel that closes when they end.
pub(super) type Fetched = FingerprintMap<(Instant, watch::Receiver<()>)>;

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
        self.cache.mark_uncacheable(self.fingerprint);
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
    /// Joins a request in flight, or begins one. A slow client does not block others for longer than `WAIT_TIMEOUT`.
    pub(super) fn join(self: &Arc<Self>, fingerprint: Fingerprint, now: Instant) -> Joined {
        let mut shard = self.shard(fingerprint);
        if let Some((since, waited)) = shard.fetched.get(&fingerprint)
            && now.saturating_duration_since(*since) < WAIT_TIMEOUT
        {
            return Joined::Follows(waited.clone());
        }
        if Self::is_uncacheable(&shard, fingerprint, now) {
            return Joined::Alone;
        }
        let (sender, receiver) = watch::channel(());
        shard.fetched.insert(fingerprint, (now, receiver));
        Joined::Leads(Lead { cache: self.clone(), fingerprint, waited: sender })
    }
}
