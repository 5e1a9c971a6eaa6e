//! Key sets of issuers, shared across configurations.

use super::jwk::Keys;
use crate::shared::fetched::{Document, Fetched};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use weir_plugin::{BuildContext, Bytes, HttpClient};

/// How long an issuer may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// The keys of one issuer.
pub(crate) type KeySet = Fetched<Keys>;

/// The sets in use.
#[derive(Default)]
struct KeySets(Mutex<HashMap<(String, bool), Weak<KeySet>>>);

/// The set at this URL; it is not fetched yet.
pub(super) fn key_set(uri: &str, verify: bool, build: &BuildContext<'_>) -> Result<Arc<KeySet>, String> {
    let sets = build.retained.get::<KeySets>();
    let mut sets = sets.0.lock().unwrap_or_else(PoisonError::into_inner);
    sets.retain(|_, set| set.strong_count() > 0);
    if let Some(known) = sets.get(&(uri.to_owned(), verify)).and_then(Weak::upgrade) {
        return Ok(known);
    }
    let client = HttpClient::new(build.tls_dialer(verify, "config.jwks_ssl_verify: false")?);
    let made = KeySet::new(uri.to_owned(), client, FETCH_TIMEOUT, build.background());
    sets.insert((uri.to_owned(), verify), Arc::downgrade(&made));
    Ok(made)
}

impl Document for Keys {
    const NAME: &'static str = "keys";

    fn read(text: Bytes, _: &str) -> Result<Self, String> {
        Keys::read(text)
    }

    fn is_fetched(&self) -> bool {
        self.version != 0
    }

    fn is_same_as(&self, other: &Self) -> bool {
        Keys::is_same_as(self, other)
    }

    fn log(&self, uri: &str) {
        tracing::info!("{uri} has {} keys for signatures", self.len());
        for (id, why) in &self.refused {
            tracing::warn!("the key {id:?} at {uri} is not used: {why}");
        }
    }
}
