//! Keys, certificate requests, and what is read of certificates.

use super::config::Config;
use super::error::AcmeError;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256,
    RsaKeySize,
};
use serde_json::{Value, json};
use sha1::{Digest, Sha1};
use std::fmt::Write;
use weir_plugin::{Secret, unix_time};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;
use x509_parser::x509::X509Name;

/// The longest common name (RFC 5280, appendix A.1).
const MAX_COMMON_NAME: usize = 64;

/// The size of the key of an account that Weir makes.
pub(super) const ACCOUNT_KEY_SIZE: u32 = 2048;

/// A certificate with its chain, and its key, in PEM.
#[derive(Clone)]
pub(super) struct Issued {
    pub(super) chain: String,
    pub(super) key: Secret,
}

fn failed(error: rcgen::Error) -> AcmeError {
    AcmeError::Crypto(format!("no certificate can be requested: {error}"))
}

/// A new RSA key, which takes seconds.
pub(super) fn rsa_key(bits: u32) -> Result<KeyPair, AcmeError> {
    let size = match bits {
        2048 => RsaKeySize::_2048,
        3072 => RsaKeySize::_3072,
        _ => RsaKeySize::_4096,
    };
    KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, size).map_err(failed)
}

/// The key of a certificate: the one before, if it is of the right kind, or a new one.
pub(super) fn certificate_key(config: &Config, before: Option<&Secret>) -> Result<KeyPair, AcmeError> {
    let algorithm = if config.cert_type == "ecc" { &PKCS_ECDSA_P256_SHA256 } else { &PKCS_RSA_SHA256 };
    let before = before.and_then(|key| KeyPair::from_pem(key.expose()).ok());
    match before.filter(|key| key.is_compatible(algorithm)) {
        Some(key) => Ok(key),
        None if config.cert_type == "ecc" => KeyPair::generate_for(algorithm).map_err(failed),
        None => rsa_key(config.rsa_key_size),
    }
}

/// The request for a certificate, in DER.
pub(super) fn request(host: &str, key: &KeyPair) -> Result<Vec<u8>, AcmeError> {
    let mut asked = CertificateParams::new([host.to_owned()]).map_err(failed)?;
    asked.distinguished_name = DistinguishedName::new();
    if host.len() <= MAX_COMMON_NAME {
        asked.distinguished_name.push(DnType::CommonName, host);
    }
    let request = asked.serialize_request(key).map_err(failed)?;
    Ok(request.der().to_vec())
}

/// When the first certificate of a chain ends, in seconds since 1970.
pub(super) fn not_after(chain: &str) -> Option<i64> {
    let pem = first(chain)?;
    let (_, certificate) = X509Certificate::from_der(&pem.contents).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

/// The common name of who issued the last certificate of a chain.
pub(super) fn issuer_of_root(chain: &str) -> Option<String> {
    let pem = Pem::iter_from_buffer(chain.as_bytes()).filter_map(Result::ok).last()?;
    let (_, certificate) = X509Certificate::from_der(&pem.contents).ok()?;
    common_name(certificate.issuer())
}

fn first(chain: &str) -> Option<Pem> {
    Pem::iter_from_buffer(chain.as_bytes()).next()?.ok()
}

fn common_name(name: &X509Name<'_>) -> Option<String> {
    name.iter_common_name().next()?.as_str().ok().map(str::to_owned)
}

/// A certificate as the Admin API shows it; whether it is valid now.
pub(super) fn shown(chain: &str) -> Option<(Value, bool)> {
    let pem = first(chain)?;
    let (_, certificate) = X509Certificate::from_der(&pem.contents).ok()?;
    let validity = certificate.validity();
    let now = unix_time().cast_signed();
    let is_valid = validity.not_before.timestamp() <= now && validity.not_after.timestamp() > now;
    let is_ec =
        certificate.public_key().algorithm.algorithm == x509_parser::oid_registry::OID_KEY_TYPE_EC_PUBLIC_KEY;
    let shown = json!({
        "digest": hex(&Sha1::digest(&pem.contents)),
        "host": common_name(certificate.subject()).or_else(|| alternative_name(&certificate)),
        "issuer_cn": common_name(certificate.issuer()),
        "not_before": written(validity.not_before),
        "not_after": written(validity.not_after),
        "valid": is_valid,
        "serial_number": hex(&certificate.serial.to_bytes_be()),
        "pubkey_type": if is_ec { "id-ecPublicKey" } else { "rsaEncryption" },
    });
    Some((shown, is_valid))
}

fn alternative_name(certificate: &X509Certificate<'_>) -> Option<String> {
    let names = certificate.subject_alternative_name().ok()??.value.general_names.iter();
    names.into_iter().find_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress([a, b, c, d]) => Some(format!("{a}.{b}.{c}.{d}")),
        _ => None,
    })
}

/// Bytes as Kong writes them: `0A:FF`.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 3);
    for byte in bytes {
        let separator = if text.is_empty() { "" } else { ":" };
        // Writing to a String does not fail.
        let _ = write!(text, "{separator}{byte:02X}");
    }
    text
}

/// A time in UTC, to the second.
fn written(time: ASN1Time) -> String {
    let time = time.to_datetime();
    let (hour, minute, second) = time.to_hms();
    let (year, month, day) = time.to_calendar_date();
    format!("{year:04}-{:02}-{day:02} {hour:02}:{minute:02}:{second:02}", u8::from(month))
}
