//! Loads the certificates of the settings: the default for clients without a known SNI, and the client certificate for
//! upstreams that request one.

use super::{CertifiedKey, Problem, Subject, TlsError, pem, provider};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use std::path::Path;
use std::sync::Arc;

/// The certificate and key of the given PEM files, or a fresh self-signed one for `localhost`.
pub fn default_certificate(files: Option<(&Path, &Path)>) -> Result<Arc<CertifiedKey>, TlsError> {
    let made = match files {
        Some(files) => read_pair(files),
        None => self_signed(),
    };
    made.map(Arc::new).map_err(|problem| TlsError { subject: Subject::DefaultCertificate, problem })
}

/// The certificate and key of the given PEM files, to present to upstreams.
pub fn client_certificate(files: (&Path, &Path)) -> Result<Arc<CertifiedKey>, TlsError> {
    let read = read_pair(files).map(Arc::new);
    read.map_err(|problem| TlsError { subject: Subject::ClientCertificate, problem })
}

fn read_pair((cert, key): (&Path, &Path)) -> Result<CertifiedKey, Problem> {
    pem::certified_key(&read(cert)?, &read(key)?)
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
