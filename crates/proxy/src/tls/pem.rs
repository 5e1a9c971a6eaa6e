//! PEM text to certificates and keys.

use super::{CertifiedKey, Problem, Subject, TlsError, provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{Error, InconsistentKeys};
use weir_model::{Document, Uuid};

/// A chain with its private key, checked to belong together.
pub(super) fn certified_key(cert: &[u8], key: &[u8]) -> Result<CertifiedKey, Problem> {
    let chain = chain(cert)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| Problem::KeyPem)?;
    let key = provider().key_provider.load_private_key(key).map_err(|_| Problem::UnusableKey)?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(Error::InconsistentKeys(_)) => Err(Problem::KeyMismatch),
        Err(other) => Err(Problem::UnusableCertificate(other.to_string())),
    }
}

fn chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Problem> {
    match CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>() {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        _ => Err(Problem::CertificatePem),
    }
}

/// The certificates of a PEM bundle, to trust as roots.
pub fn ca_certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    chain(pem.as_bytes()).map_err(|problem| TlsError { subject: Subject::CaCertificate(None), problem })
}

/// The CA certificates that a service names, to trust as roots.
pub fn roots(document: &Document, ids: &[Uuid]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let mut roots = Vec::new();
    for &id in ids {
        let found = document.ca_certificates.iter().find(|certificate| certificate.id == id);
        let found =
            found.ok_or(Problem::UnknownCertificate(id)).and_then(|found| chain(found.cert.as_bytes()));
        roots.extend(
            found.map_err(|problem| TlsError { subject: Subject::CaCertificate(Some(id)), problem })?,
        );
    }
    Ok(roots)
}
