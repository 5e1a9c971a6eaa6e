//! Certificates that plugins have presented, for handshakes over QUIC, which cannot wait for a plugin.

use super::CertifiedKey;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most names that are remembered: clients name what they like.
const MAX_NAMES: usize = 10_000;

/// The certificates by name, in small letters.
#[derive(Debug, Default)]
pub(super) struct Remembered(Mutex<HashMap<Box<str>, Arc<CertifiedKey>>>);

impl Remembered {
    fn names(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<CertifiedKey>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn find(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.names().get(&*name.to_ascii_lowercase()).cloned()
    }

    /// Remembers what was presented for a name: a certificate, or none.
    pub(super) fn note(&self, name: &str, certificate: Option<&Arc<CertifiedKey>>) {
        let mut names = self.names();
        let Some(certificate) = certificate else {
            names.remove(name);
            return;
        };
        if names.len() >= MAX_NAMES && !names.contains_key(name) {
            let any = names.keys().next().cloned();
            any.and_then(|any| names.remove(&any));
        }
        names.insert(name.into(), certificate.clone());
    }

    pub(super) fn forget_all(&self) {
        self.names().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::certified_key;

    #[test]
    fn what_was_presented_last_is_known_of_few_names() {
        let issued = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        let (chain, key) = (issued.cert.pem(), issued.signing_key.serialize_pem());
        let certificate = Arc::new(certified_key(chain.as_bytes(), key.as_bytes()).unwrap());
        let remembered = Remembered::default();
        remembered.note("a.test", Some(&certificate));
        assert!(remembered.find("A.test").is_some() && remembered.find("b.test").is_none());
        remembered.note("a.test", None);
        assert!(remembered.find("a.test").is_none());
        (0..=MAX_NAMES).for_each(|number| remembered.note(&number.to_string(), Some(&certificate)));
        assert!(remembered.names().len() <= MAX_NAMES);
        remembered.forget_all();
        assert!(remembered.names().is_empty());
    }
}
