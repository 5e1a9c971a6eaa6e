//! What the database says of access tokens, for a short while.

use super::tokens::Token;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_plugin::{Fingerprint, FingerprintMap, Fingerprinter};

/// Tokens per generation of a shard.
const MAX_TOKENS: usize = 1024;

/// How long a token that another node has deleted is still valid.
const KNOWN: Duration = Duration::from_secs(5);

/// How long it takes until a token that was asked for before it was created is valid.
const UNKNOWN: Duration = Duration::from_secs(1);

type Generation = FingerprintMap<(Instant, Option<Arc<Token>>)>;

/// A cache of two generations, so that its size is bounded, which survives reloads.
pub(super) struct TokenCache {
    key: Fingerprinter,
    shards: [Mutex<[Generation; 2]>; 16],
}

impl Default for TokenCache {
    fn default() -> Self {
        Self { key: Fingerprinter::with_random_key(), shards: Default::default() }
    }
}

impl TokenCache {
    fn shard(&self, key: Fingerprint) -> &Mutex<[Generation; 2]> {
        &self.shards[(key >> 64) as usize % self.shards.len()]
    }

    /// What is known of an access token: without an inner value where there is no such token.
    pub(super) fn get(&self, access_token: &str) -> Option<Option<Arc<Token>>> {
        let key = self.key.of(access_token.as_bytes());
        let shard = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        let (until, token) = shard.iter().find_map(|generation| generation.get(&key))?;
        (*until > Instant::now()).then(|| token.clone())
    }

    pub(super) fn remember(&self, access_token: &str, token: Option<Arc<Token>>) {
        let key = self.key.of(access_token.as_bytes());
        let until = Instant::now() + if token.is_some() { KNOWN } else { UNKNOWN };
        let mut shard = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        if shard[0].len() >= MAX_TOKENS {
            shard[1] = std::mem::take(&mut shard[0]);
        }
        shard[0].insert(key, (until, token));
    }

    /// What is known of a token is no longer true.
    pub(super) fn forget(&self, access_token: &str) {
        let key = self.key.of(access_token.as_bytes());
        let mut shard = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        shard.iter_mut().for_each(|generation| drop(generation.remove(&key)));
    }
}
