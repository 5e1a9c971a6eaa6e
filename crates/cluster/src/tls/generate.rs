//! Generates the certificate that the nodes of a fleet share.
use super::SHARED_NAME;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P384_SHA384};
use std::time::{Duration, SystemTime};

/// A certificate and its key, in PEM.
pub struct Generated {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// Generates a self-signed certificate with a key on the curve P-384, valid from now.
///
/// It is of X.509 version 3 and names [`SHARED_NAME`] as a subject alternative name too, unlike Kong's.
pub fn generate(validity: Duration) -> Result<Generated, rcgen::Error> {
    let mut params = CertificateParams::new(vec![SHARED_NAME.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, SHARED_NAME);
    let now = SystemTime::now();
    params.not_before = now.into();
    params.not_after = (now + validity).into();
    let key = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384)?;
    Ok(Generated { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
}
