//! What this node knows of the certificates in the storage, so that handshakes do not wait for it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_plugin::CertificateKey;

/// How long a certificate is presented before the storage is asked again.
const TTL: Duration = Duration::from_hours(1);

/// The same of a name without a certificate, or while the storage does not answer.
const MISSING_TTL: Duration = Duration::from_secs(5);

/// The most names that are remembered: clients name what they like.
const MAX_NAMES: usize = 10_000;

/// What is known of names.
#[derive(Default)]
pub(super) struct Cache(Mutex<HashMap<String, Known>>);

struct Known {
    certificate: Option<CertificateKey>,
    until: Instant,
}

impl Cache {
    fn names(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The certificate of a name, or that it has none; none if that is not known now.
    pub(super) fn get(&self, host: &str) -> Option<Option<CertificateKey>> {
        let names = self.names();
        let known = names.get(host).filter(|known| known.until > Instant::now())?;
        Some(known.certificate.clone())
    }

    pub(super) fn put(&self, host: &str, certificate: Option<CertificateKey>) {
        let ttl = if certificate.is_some() { TTL } else { MISSING_TTL };
        let mut names = self.names();
        if names.len() >= MAX_NAMES && !names.contains_key(host) {
            let now = Instant::now();
            names.retain(|_, known| known.until > now);
            if names.len() >= MAX_NAMES {
                names.clear();
            }
        }
        names.insert(host.to_owned(), Known { certificate, until: Instant::now() + ttl });
    }

    /// Goes on with what was known before, for a moment. Returns it.
    pub(super) fn keep(&self, host: &str) -> Option<CertificateKey> {
        let before = self.names().get(host).and_then(|known| known.certificate.clone());
        self.put(host, None);
        let mut names = self.names();
        if let Some(known) = names.get_mut(host) {
            known.certificate.clone_from(&before);
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_bounded() {
        let cache = Cache::default();
        for number in 0..=MAX_NAMES {
            cache.put(&number.to_string(), None);
        }
        assert!(cache.names().len() <= MAX_NAMES);
        assert!(cache.get(&MAX_NAMES.to_string()).is_some_and(|known| known.is_none()));
        assert!(cache.get("other").is_none());
    }

    #[test]
    fn a_certificate_is_kept_while_the_storage_does_not_answer() {
        let issued = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        let (chain, key) = (issued.cert.pem(), issued.signing_key.serialize_pem());
        let cache = Cache::default();
        assert!(cache.keep("a.test").is_none());
        cache.put("a.test", Some(CertificateKey::from_pem(&chain, &key).unwrap()));
        assert!(cache.keep("a.test").is_some() && cache.get("a.test").flatten().is_some());
    }
}
