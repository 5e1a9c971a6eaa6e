//! Keys that signatures are verified with. A key is of one algorithm, whatever a token says.

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{self as sign, ParsedPublicKey, VerificationAlgorithm};
use x509_parser::pem::Pem;

/// The algorithm of a credential.
#[derive(Clone, Copy)]
enum Algorithm {
    Hmac(hmac::Algorithm),
    Public(&'static dyn VerificationAlgorithm),
}

/// The names of RFC 7518, and of RFC 8037 for Ed25519.
static ALGORITHMS: &[(&str, Algorithm)] = &[
    ("HS256", Algorithm::Hmac(hmac::HMAC_SHA256)),
    ("HS384", Algorithm::Hmac(hmac::HMAC_SHA384)),
    ("HS512", Algorithm::Hmac(hmac::HMAC_SHA512)),
    ("RS256", Algorithm::Public(&sign::RSA_PKCS1_2048_8192_SHA256)),
    ("RS384", Algorithm::Public(&sign::RSA_PKCS1_2048_8192_SHA384)),
    ("RS512", Algorithm::Public(&sign::RSA_PKCS1_2048_8192_SHA512)),
    ("PS256", Algorithm::Public(&sign::RSA_PSS_2048_8192_SHA256)),
    ("PS384", Algorithm::Public(&sign::RSA_PSS_2048_8192_SHA384)),
    ("PS512", Algorithm::Public(&sign::RSA_PSS_2048_8192_SHA512)),
    ("ES256", Algorithm::Public(&sign::ECDSA_P256_SHA256_FIXED)),
    ("ES384", Algorithm::Public(&sign::ECDSA_P384_SHA384_FIXED)),
    ("ES512", Algorithm::Public(&sign::ECDSA_P521_SHA512_FIXED)),
    ("EdDSA", Algorithm::Public(&sign::ED25519)),
];

fn algorithm(name: &str) -> Option<Algorithm> {
    ALGORITHMS.iter().find(|(known, _)| *known == name).map(|(_, algorithm)| *algorithm)
}

/// Whether there is an algorithm of this name.
pub(super) fn is_known(name: &str) -> bool {
    algorithm(name).is_some()
}

/// Verifies signatures of one algorithm with one key.
pub(super) enum Verifier {
    Hmac(hmac::Key),
    Public(ParsedPublicKey),
}

impl Verifier {
    /// One that knows a secret.
    pub(super) fn of_secret(name: &str, secret: &[u8]) -> Option<Self> {
        match algorithm(name)? {
            Algorithm::Hmac(algorithm) => Some(Self::Hmac(hmac::Key::new(algorithm, secret))),
            Algorithm::Public(_) => None,
        }
    }

    /// One that knows a public key, given as PEM or as a SubjectPublicKeyInfo.
    pub(super) fn of_public_key(name: &str, key: &[u8]) -> Option<Self> {
        let Algorithm::Public(algorithm) = algorithm(name)? else { return None };
        let Some(Ok(block)) = Pem::iter_from_buffer(key).next() else {
            return ParsedPublicKey::new(algorithm, key).ok().map(Self::Public);
        };
        let parsed = match block.label.as_str() {
            "CERTIFICATE" => ParsedPublicKey::new(algorithm, block.parse_x509().ok()?.public_key().raw),
            _ => ParsedPublicKey::new(algorithm, &block.contents),
        };
        parsed.ok().map(Self::Public)
    }

    /// Whether the signature is of this key; secrets are compared in constant time.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Hmac(key) => hmac::verify(key, message, signature).is_ok(),
            Self::Public(key) => key.verify_sig(message, signature).is_ok(),
        }
    }
}
