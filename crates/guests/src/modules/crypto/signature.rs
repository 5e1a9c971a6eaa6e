//! Signatures: which algorithm belongs to a key, a digest and a scheme.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature as alg;
use aws_lc_rs::signature::{EcdsaSigningAlgorithm, RsaEncoding, UnparsedPublicKey, VerificationAlgorithm};

use super::key::{self, Key, Kind, Private};

/// How a signature is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Scheme {
    /// RSA with PSS; otherwise with PKCS#1.
    pub(super) pss: bool,
    /// ECDSA as two numbers of fixed length, as in a JWT; otherwise in ASN.1.
    pub(super) raw: bool,
}

/// The signature of the data; none if the key cannot sign so.
pub(super) fn sign(key: &Key, data: &[u8], digest: &str, scheme: Scheme) -> Option<Vec<u8>> {
    match key.private.as_ref()? {
        Private::Rsa(pair) => {
            let mut signature = vec![0; pair.public_modulus_len()];
            pair.sign(rsa_signing(digest, scheme.pss)?, &SystemRandom::new(), data, &mut signature).ok()?;
            Some(signature)
        }
        Private::Curve(der) => {
            let pair = key::curve_pair(key.kind, der, scheme)?;
            Some(pair.sign(&SystemRandom::new(), data).ok()?.as_ref().to_vec())
        }
        Private::Ed25519(pair) => Some(pair.sign(data).as_ref().to_vec()),
    }
}

/// Whether the signature is that of the data.
pub(super) fn verify(key: &Key, data: &[u8], signature: &[u8], digest: &str, scheme: Scheme) -> bool {
    let Some(algorithm) = verification(key.kind, digest, scheme) else { return false };
    UnparsedPublicKey::new(algorithm, &key.public).verify(data, signature).is_ok()
}

fn rsa_signing(digest: &str, pss: bool) -> Option<&'static dyn RsaEncoding> {
    Some(match (digest, pss) {
        ("sha256", false) => &alg::RSA_PKCS1_SHA256,
        ("sha384", false) => &alg::RSA_PKCS1_SHA384,
        ("sha512", false) => &alg::RSA_PKCS1_SHA512,
        ("sha256", true) => &alg::RSA_PSS_SHA256,
        ("sha384", true) => &alg::RSA_PSS_SHA384,
        ("sha512", true) => &alg::RSA_PSS_SHA512,
        _ => return None,
    })
}

/// How a curve signs: with the digest of its size, as JWTs do.
pub(super) fn signing(kind: Kind, scheme: Scheme) -> Option<&'static EcdsaSigningAlgorithm> {
    Some(match (kind, scheme.raw) {
        (Kind::P256, false) => &alg::ECDSA_P256_SHA256_ASN1_SIGNING,
        (Kind::P384, false) => &alg::ECDSA_P384_SHA384_ASN1_SIGNING,
        (Kind::P521, false) => &alg::ECDSA_P521_SHA512_ASN1_SIGNING,
        (Kind::P256, true) => &alg::ECDSA_P256_SHA256_FIXED_SIGNING,
        (Kind::P384, true) => &alg::ECDSA_P384_SHA384_FIXED_SIGNING,
        (Kind::P521, true) => &alg::ECDSA_P521_SHA512_FIXED_SIGNING,
        (Kind::Rsa | Kind::Ed25519, _) => return None,
    })
}

fn verification(kind: Kind, digest: &str, scheme: Scheme) -> Option<&'static dyn VerificationAlgorithm> {
    Some(match (kind, digest, scheme.pss, scheme.raw) {
        (Kind::Rsa, "sha1", false, _) => &alg::RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY,
        (Kind::Rsa, "sha256", false, _) => &alg::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
        (Kind::Rsa, "sha384", false, _) => &alg::RSA_PKCS1_2048_8192_SHA384,
        (Kind::Rsa, "sha512", false, _) => &alg::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
        (Kind::Rsa, "sha256", true, _) => &alg::RSA_PSS_2048_8192_SHA256,
        (Kind::Rsa, "sha384", true, _) => &alg::RSA_PSS_2048_8192_SHA384,
        (Kind::Rsa, "sha512", true, _) => &alg::RSA_PSS_2048_8192_SHA512,
        (Kind::P256, "sha256", _, false) => &alg::ECDSA_P256_SHA256_ASN1,
        (Kind::P384, "sha384", _, false) => &alg::ECDSA_P384_SHA384_ASN1,
        (Kind::P521, "sha512", _, false) => &alg::ECDSA_P521_SHA512_ASN1,
        (Kind::P256, "sha256", _, true) => &alg::ECDSA_P256_SHA256_FIXED,
        (Kind::P384, "sha384", _, true) => &alg::ECDSA_P384_SHA384_FIXED,
        (Kind::P521, "sha512", _, true) => &alg::ECDSA_P521_SHA512_FIXED,
        (Kind::Ed25519, ..) => &alg::ED25519,
        _ => return None,
    })
}
