//! Parses PEM text into certificates and keys.

use super::{CertifiedKey, Problem, Subject, TlsError, provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer};
use weir_model::{Document, Uuid};
use x509_parser::der_parser::parse_der;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::X509Version;

/// A chain with its private key, checked to belong together.
///
/// The certificate is served as it is: neither its version nor its age matters. `openssl x509 -req` and
/// `kong hybrid gen_cert` issue certificates of version 1, which rustls's own comparison of the keys refuses.
pub fn certified_key(cert: &[u8], key: &[u8]) -> Result<CertifiedKey, Problem> {
    let chain = chain(cert)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| Problem::KeyPem)?;
    let modulus = rsa_modulus(&key);
    let key = provider().key_provider.load_private_key(key);
    let key = key.map_err(|_| unusable(chain.first(), modulus.as_deref()))?;
    let own = chain.first().and_then(public_key);
    let own = own.ok_or_else(|| Problem::UnusableCertificate("it is no X.509 certificate".to_owned()))?;
    match key.public_key() {
        Some(key) if key != own => Err(Problem::KeyMismatch),
        _ => Ok(CertifiedKey::new(chain, key)),
    }
}

/// Why a key of this modulus, if it is one of RSA, cannot be used.
fn unusable(certificate: Option<&CertificateDer<'_>>, modulus: Option<&[u8]>) -> Problem {
    let Some(modulus) = modulus.map(without_zeros).filter(|it| it.len() * 8 < MIN_RSA_BITS) else {
        return Problem::UnusableKey;
    };
    let parsed = certificate.and_then(|certificate| x509_parser::parse_x509_certificate(certificate).ok());
    let own = parsed.as_ref().and_then(|(_, certificate)| certificate.public_key().parsed().ok());
    match own {
        Some(PublicKey::RSA(own)) if without_zeros(own.modulus) == modulus => {
            Problem::WeakKey(modulus.len() * 8)
        }
        _ => Problem::KeyMismatch,
    }
}

/// The shortest RSA key that aws-lc-rs signs with.
const MIN_RSA_BITS: usize = 2048;

/// The modulus of an RSA key.
fn rsa_modulus(key: &PrivateKeyDer<'_>) -> Option<Vec<u8>> {
    match key {
        PrivateKeyDer::Pkcs1(key) => element(key.secret_pkcs1_der(), 1),
        PrivateKeyDer::Pkcs8(key) => element(&element(key.secret_pkcs8_der(), 2)?, 1),
        _ => None,
    }
}

/// The content of an element of a sequence.
fn element(der: &[u8], index: usize) -> Option<Vec<u8>> {
    let (_, sequence) = parse_der(der).ok()?;
    Some(sequence.as_sequence().ok()?.get(index)?.as_slice().ok()?.to_vec())
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

/// The public key of a certificate, whatever its version.
pub(super) fn public_key(cert: &CertificateDer<'_>) -> Option<SubjectPublicKeyInfoDer<'static>> {
    match x509_parser::parse_x509_certificate(cert) {
        Ok(([], cert)) => Some(SubjectPublicKeyInfoDer::from(cert.public_key().raw.to_vec())),
        _ => None,
    }
}

/// Whether a certificate is of a version without extensions, which say what a certificate is for. webpki verifies none.
pub(super) fn is_old(cert: &CertificateDer<'_>) -> bool {
    let parsed = x509_parser::parse_x509_certificate(cert);
    parsed.is_ok_and(|(_, cert)| cert.version() != X509Version::V3)
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
