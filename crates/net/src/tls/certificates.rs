//! Selects the certificate for a server name (SNI).

use super::{CertifiedKey, Problem, Subject, TlsError, pem};
use arc_swap::ArcSwap;
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use rustls::{SignatureAlgorithm, SignatureScheme};
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use weir_model::entity::Certificate;
use weir_model::{Document, Uuid};

/// Every certificate of a configuration, indexed by the server names it serves.
///
/// A lookup costs at most four hash lookups however many names there are, and allocates nothing.
pub struct Certificates {
    exact: HashMap<Box<str>, Arc<Pair>>,
    /// `*.example.com` under `.example.com`.
    suffixes: HashMap<Box<str>, Arc<Pair>>,
    /// `example.*` under `example.`.
    prefixes: HashMap<Box<str>, Arc<Pair>>,
    any: Option<Arc<Pair>>,
    default: Arc<CertifiedKey>,
    /// With the entities, to know unchanged ones by; none where each key is too short to sign with.
    by_id: HashMap<Uuid, (Arc<Certificate>, Option<Arc<Pair>>)>,
    /// What is wrong with those that may fail.
    unusable: Vec<String>,
}

/// A certificate entity: one key, or two of different types. The cheaper to sign with comes first.
pub(super) struct Pair {
    first: Slot,
    second: Option<Slot>,
}

/// A key with its certificate, and its OCSP response, if there is one.
pub(super) struct Slot {
    key: ArcSwap<CertifiedKey>,
    /// When the OCSP response expires.
    proof_until: Mutex<Option<SystemTime>>,
}

impl Slot {
    fn new(key: CertifiedKey) -> Self {
        Self { key: ArcSwap::from_pointee(key), proof_until: Mutex::default() }
    }

    pub(super) fn key(&self) -> Arc<CertifiedKey> {
        self.key.load_full()
    }

    /// Staples this OCSP response from now on.
    pub(super) fn staple(&self, proof: Vec<u8>, until: Option<SystemTime>) {
        self.prove(Some(proof), until);
    }

    /// Stops stapling an expired OCSP response.
    pub(super) fn drop_stale(&self) {
        let until = *self.proof_until.lock().unwrap_or_else(PoisonError::into_inner);
        if until.is_some_and(|until| until <= SystemTime::now()) {
            self.prove(None, None);
        }
    }

    fn prove(&self, proof: Option<Vec<u8>>, until: Option<SystemTime>) {
        *self.proof_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
        self.key.store(Arc::new(CertifiedKey { ocsp: proof, ..(*self.key()).clone() }));
    }
}

impl Certificates {
    /// Parses every certificate and indexes every SNI of the document. All errors are returned at once.
    pub fn build(document: &Document, default: Arc<CertifiedKey>) -> Result<Self, Vec<TlsError>> {
        Self::only(default).rebuild(document, |_| false)
    }

    /// As [`build`](Self::build), with the same default certificate, but parses only what has changed since: checking
    /// an RSA key takes about a millisecond. Certificates that `may_fail` keep the pair before if they cannot be used, or are
    /// left out.
    pub fn rebuild(
        &self,
        document: &Document,
        may_fail: impl Fn(Uuid) -> bool,
    ) -> Result<Self, Vec<TlsError>> {
        let mut built = self.none();
        let mut errors = Vec::new();
        let mut refused = HashSet::new();
        for certificate in &document.certificates {
            match self.pair_of(certificate) {
                Ok(pair) => {
                    built.by_id.insert(certificate.id, (certificate.clone(), pair));
                }
                Err(error) if may_fail(certificate.id) => {
                    let before = self.pair_before(certificate.id);
                    built.unusable.push(unusable(certificate.id, &error.problem, before.is_some()));
                    match before {
                        Some(before) => drop(built.by_id.insert(certificate.id, before)),
                        None => _ = refused.insert(certificate.id),
                    }
                }
                Err(error) => {
                    refused.insert(certificate.id);
                    errors.push(error);
                }
            }
        }
        for sni in &document.snis {
            match built.by_id.get(&sni.certificate).map(|(_, pair)| pair.clone()) {
                Some(Some(pair)) => built.index(&sni.name, pair),
                Some(None) => {}
                None if refused.contains(&sni.certificate) => {}
                None => errors.push(TlsError {
                    subject: Subject::Sni(sni.name.clone()),
                    problem: Problem::UnknownCertificate(sni.certificate),
                }),
            }
        }
        if errors.is_empty() { Ok(built) } else { Err(errors) }
    }

    fn pair_of(&self, certificate: &Arc<Certificate>) -> Result<Option<Arc<Pair>>, TlsError> {
        match self.by_id.get(&certificate.id) {
            Some((known, pair)) if is_unchanged(known, certificate) => Ok(pair.clone()),
            _ => Ok(Pair::parse(certificate)?.map(Arc::new)),
        }
    }

    /// What a certificate was before its secrets could not be used, as while a certificate and its key are replaced one after
    /// the other.
    fn pair_before(&self, id: Uuid) -> Option<(Arc<Certificate>, Option<Arc<Pair>>)> {
        self.by_id.get(&id).filter(|(_, pair)| pair.is_some()).cloned()
    }

    /// The certificates that may fail and cannot be used: a line each, without a secret.
    pub fn unusable(&self) -> &[String] {
        &self.unusable
    }

    /// No certificate but the default one.
    pub fn only(default: Arc<CertifiedKey>) -> Self {
        Self {
            exact: HashMap::new(),
            suffixes: HashMap::new(),
            prefixes: HashMap::new(),
            any: None,
            default,
            by_id: HashMap::new(),
            unusable: Vec::new(),
        }
    }

    /// The default certificate alone.
    pub fn none(&self) -> Self {
        Self::only(self.default.clone())
    }

    fn index(&mut self, name: &str, pair: Arc<Pair>) {
        let name = name.to_ascii_lowercase();
        if name == "*" {
            self.any = Some(pair);
        } else if let Some(suffix) = name.strip_prefix('*') {
            self.suffixes.insert(suffix.into(), pair);
        } else if let Some(prefix) = name.strip_suffix('*') {
            self.prefixes.insert(prefix.into(), pair);
        } else {
            self.exact.insert(name.into(), pair);
        }
    }

    /// The certificate for a server name and the signature schemes that the client can verify.
    pub fn find(&self, server_name: Option<&str>, schemes: &[SignatureScheme]) -> Arc<CertifiedKey> {
        match server_name.and_then(|name| self.pair(name)) {
            Some(pair) => pair.choose(schemes).key(),
            None => self.default.clone(),
        }
    }

    /// Whether a server name has a certificate other than the default one.
    pub fn has(&self, server_name: &str) -> bool {
        self.pair(server_name).is_some()
    }

    /// A certificate entity's own key pair (`cert` and `key`, or the cheaper of two), for use towards upstreams.
    pub fn get(&self, id: Uuid) -> Option<Arc<CertifiedKey>> {
        self.by_id.get(&id)?.1.as_ref().map(|pair| pair.first.key())
    }

    /// The keys of every certificate entity.
    pub(super) fn pairs(&self) -> impl Iterator<Item = &Arc<Pair>> {
        self.by_id.values().filter_map(|(_, pair)| pair.as_ref())
    }

    /// Whether two names are served by certificates of their own, and not by the same one.
    pub fn differ(&self, one: &str, other: &str) -> bool {
        matches!((self.pair(one), self.pair(other)), (Some(one), Some(other)) if !Arc::ptr_eq(one, other))
    }

    /// Kong's order: the exact name, `*.example.com`, `example.*`, `*`. A wildcard stands for exactly one label, and
    /// the leftmost one only of names with at least three.
    fn pair(&self, server_name: &str) -> Option<&Arc<Pair>> {
        let name = lowercase(server_name.strip_suffix('.').unwrap_or(server_name));
        let suffix = || {
            let suffix = &name[name.find('.')?..];
            suffix[1..].contains('.').then(|| self.suffixes.get(suffix))?
        };
        let prefix = || self.prefixes.get(&name[..=name.rfind('.')?]);
        self.exact.get(&*name).or_else(suffix).or_else(prefix).or(self.any.as_ref())
    }
}

/// Documents share what has not changed; one that was read anew has the same texts.
fn is_unchanged(known: &Arc<Certificate>, certificate: &Arc<Certificate>) -> bool {
    fn texts(of: &Certificate) -> [Option<&String>; 4] {
        [Some(&of.cert), Some(&of.key), of.cert_alt.as_ref(), of.key_alt.as_ref()]
    }
    Arc::ptr_eq(known, certificate) || texts(known) == texts(certificate)
}

fn lowercase(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}

/// Logs that a certificate cannot be used, without the error, which may quote a secret.
fn unusable(id: Uuid, problem: &Problem, has_pair_before: bool) -> String {
    let why = match problem {
        Problem::KeyMismatch => {
            "the certificate and the key do not match (is one of them still to be replaced?)"
        }
        _ => "what it refers to is no certificate with its key",
    };
    let line = match has_pair_before {
        true => format!("certificate {id}: {why}: the pair before is used until the next rotation"),
        false => format!("certificate {id}: the certificate is left out: {why}"),
    };
    tracing::error!("{line}");
    line
}

/// A key with its certificate; none, with a warning, if the key is too short: Kong serves such certificates.
fn usable(cert: &str, key: &str, subject: Subject) -> Result<Option<CertifiedKey>, TlsError> {
    match pem::certified_key(cert.as_bytes(), key.as_bytes()) {
        Ok(key) => Ok(Some(key)),
        Err(problem @ Problem::WeakKey(_)) => {
            tracing::warn!("{subject} is not presented: {problem}");
            Ok(None)
        }
        Err(problem) => Err(TlsError { subject, problem }),
    }
}

impl Pair {
    /// None if each key is too short to sign with.
    fn parse(certificate: &Certificate) -> Result<Option<Self>, TlsError> {
        let subject = |alt| Subject::Certificate { id: certificate.id, alt };
        let read = |cert: &str, key: &str, alt| usable(cert, key, subject(alt));
        let key = read(&certificate.cert, &certificate.key, false)?;
        let alt = match (&certificate.cert_alt, &certificate.key_alt) {
            (None, None) => None,
            (Some(cert), Some(key)) => read(cert, key, true)?,
            _ => return Err(TlsError { subject: subject(true), problem: Problem::AltIncomplete }),
        };
        let (key, alt) = match (key, alt) {
            (Some(key), Some(alt)) => (key, alt),
            (Some(only), None) | (None, Some(only)) => {
                return Ok(Some(Self { first: Slot::new(only), second: None }));
            }
            (None, None) => return Ok(None),
        };
        if key.key.algorithm() == alt.key.algorithm() {
            return Err(TlsError { subject: subject(true), problem: Problem::AltSameType });
        }
        let (first, second) =
            if key.key.algorithm() == SignatureAlgorithm::RSA { (alt, key) } else { (key, alt) };
        Ok(Some(Self { first: Slot::new(first), second: Some(Slot::new(second)) }))
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = &Slot> {
        std::iter::once(&self.first).chain(&self.second)
    }

    fn choose(&self, schemes: &[SignatureScheme]) -> &Slot {
        let usable = |slot: &&Slot| slot.key.load().key.choose_scheme(schemes).is_some();
        self.second.as_ref().filter(|second| !usable(&&self.first) && usable(second)).unwrap_or(&self.first)
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificates({})", self.by_id.len())
    }
}
