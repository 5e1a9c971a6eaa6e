//! Certificates that plugins have presented, for handshakes over QUIC, which cannot wait for a plugin.

use super::CertifiedKey;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most names that are remembered: clients name what they like.
const MAX_NAMES: usize = 10_000;

/// What plugins have presented since they decide on certificates.
#[derive(Debug, Default)]
pub(super) struct Remembered(Mutex<Decisions>);

#[derive(Debug, Default)]
struct Decisions {
    /// Of the plugins that decide now. Handshakes that began under others may end long after these are gone.
    generation: u64,
    /// Whether any plugin decides.
    are_made: bool,
    /// The certificates by name, in small letters.
    names: HashMap<Box<str>, Arc<CertifiedKey>>,
}

impl Remembered {
    fn decisions(&self) -> MutexGuard<'_, Decisions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn find(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let decisions = self.decisions();
        let names = decisions.are_made.then_some(&decisions.names)?;
        names.get(&*name.to_ascii_lowercase()).cloned()
    }

    /// Remembers what was presented for a name: a certificate, or none. What plugins of another generation have decided is left
    /// out.
    pub(super) fn note(&self, generation: u64, name: &str, certificate: Option<&Arc<CertifiedKey>>) {
        let mut decisions = self.decisions();
        if decisions.generation != generation {
            return;
        }
        let names = &mut decisions.names;
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

    /// Forgets everything, because other plugins decide from now on, or no plugin does. Their generation.
    pub(super) fn begin(&self, are_made: bool) -> u64 {
        let mut decisions = self.decisions();
        let generation = decisions.generation + 1;
        *decisions = Decisions { generation, are_made, names: HashMap::new() };
        generation
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::certified_key;

    fn certificate() -> Arc<CertifiedKey> {
        let issued = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        let (chain, key) = (issued.cert.pem(), issued.signing_key.serialize_pem());
        Arc::new(certified_key(chain.as_bytes(), key.as_bytes()).unwrap())
    }

    #[test]
    fn what_was_presented_last_is_known_of_few_names() {
        let (certificate, remembered) = (certificate(), Remembered::default());
        let now = remembered.begin(true);
        remembered.note(now, "a.test", Some(&certificate));
        assert!(remembered.find("A.test").is_some() && remembered.find("b.test").is_none());
        remembered.note(now, "a.test", None);
        assert!(remembered.find("a.test").is_none());
        (0..=MAX_NAMES).for_each(|number| remembered.note(now, &number.to_string(), Some(&certificate)));
        assert!(remembered.decisions().names.len() <= MAX_NAMES);
        remembered.begin(true);
        assert!(remembered.decisions().names.is_empty());
    }

    #[test]
    fn what_plugins_decide_that_are_gone_is_left_out() {
        let (certificate, remembered) = (certificate(), Remembered::default());
        let (gone, now) = (remembered.begin(true), remembered.begin(true));
        remembered.note(gone, "a.test", Some(&certificate));
        assert!(remembered.find("a.test").is_none());
        remembered.note(now, "a.test", Some(&certificate));
        remembered.note(gone, "a.test", None);
        assert!(remembered.find("a.test").is_some());
        let none = remembered.begin(false);
        remembered.note(none, "a.test", Some(&certificate));
        assert!(remembered.find("a.test").is_none(), "no plugin decides");
    }
}
