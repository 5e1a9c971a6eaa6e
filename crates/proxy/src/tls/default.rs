//! The certificate for clients that name no known server.

use super::{CertifiedKey, Problem, Subject, TlsError, pem, provider};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use std::path::Path;
use std::sync::Arc;

/// The certificate and key of the given PEM files, or a fresh self-signed one for `localhost`.
pub fn default_certificate(files: Option<(&Path, &Path)>) -> Result<Arc<CertifiedKey>, TlsError> {
    let made = match files {
        Some((cert, key)) => read(cert).and_then(|cert| pem::certified_key(&cert, &read(key)?)),
        None => self_signed(),
    };
    made.map(Arc::new).map_err(|problem| TlsError { subject: Subject::DefaultCertificate, problem })
}

fn read(path: &Path) -> Result<Vec<u8>, Problem> {
    std::fs::read(path).map_err(|error| Problem::File(path.to_owned(), error.to_string()))
}

fn self_signed() -> Result<CertifiedKey, Problem> {
    let refused = |error: rcgen::Error| Problem::Refused(error.to_string());
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let mut params = CertificateParams::new(names).map_err(refused)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "localhost");
    let key = KeyPair::generate().map_err(refused)?;
    let cert = params.self_signed(&key).map_err(refused)?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    CertifiedKey::from_der(vec![cert.into()], key, &provider())
        .map_err(|error| Problem::Refused(error.to_string()))
}
