//! Keys that verify signatures. A key has one algorithm, whatever a token says.

use super::jwk::Jwk;
use super::pss::PssKey;
use aws_lc_rs::signature::{
    self as sign, ParsedPublicKey, RsaParameters, RsaPublicKeyComponents, VerificationAlgorithm,
};
use aws_lc_rs::{digest, hmac};
use x509_parser::pem::Pem;

/// The algorithm of a credential.
#[derive(Clone, Copy)]
enum Algorithm {
    Hmac(hmac::Algorithm),
    Rsa(&'static RsaParameters),
    /// With any length of the salt, which the parameters do not allow.
    Pss(&'static RsaParameters, &'static digest::Algorithm),
    /// With the curve's name in a JWK.
    Curve(&'static dyn VerificationAlgorithm, &'static str),
}

/// The names of RFC 7518, and of RFC 8037 for Ed25519.
static ALGORITHMS: &[(&str, Algorithm)] = &[
    ("HS256", Algorithm::Hmac(hmac::HMAC_SHA256)),
    ("HS384", Algorithm::Hmac(hmac::HMAC_SHA384)),
    ("HS512", Algorithm::Hmac(hmac::HMAC_SHA512)),
    ("RS256", Algorithm::Rsa(&sign::RSA_PKCS1_2048_8192_SHA256)),
    ("RS384", Algorithm::Rsa(&sign::RSA_PKCS1_2048_8192_SHA384)),
    ("RS512", Algorithm::Rsa(&sign::RSA_PKCS1_2048_8192_SHA512)),
    ("PS256", Algorithm::Pss(&sign::RSA_PSS_2048_8192_SHA256, &digest::SHA256)),
    ("PS384", Algorithm::Pss(&sign::RSA_PSS_2048_8192_SHA384, &digest::SHA384)),
    ("PS512", Algorithm::Pss(&sign::RSA_PSS_2048_8192_SHA512, &digest::SHA512)),
    ("ES256", Algorithm::Curve(&sign::ECDSA_P256_SHA256_FIXED, "P-256")),
    ("ES384", Algorithm::Curve(&sign::ECDSA_P384_SHA384_FIXED, "P-384")),
    ("ES512", Algorithm::Curve(&sign::ECDSA_P521_SHA512_FIXED, "P-521")),
    ("EdDSA", Algorithm::Curve(&sign::ED25519, "Ed25519")),
];

/// The names of all algorithms.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ALGORITHMS.iter().map(|(name, _)| *name)
}

fn algorithm(name: &str) -> Option<Algorithm> {
    ALGORITHMS.iter().find(|(known, _)| *known == name).map(|(_, algorithm)| *algorithm)
}

/// Whether there is an algorithm of this name.
pub(crate) fn is_known(name: &str) -> bool {
    algorithm(name).is_some()
}

/// Verifies signatures of one algorithm with one key.
pub(crate) enum Verifier {
    Hmac(Box<hmac::Key>),
    Public(ParsedPublicKey),
    /// The same key twice: the first is faster, and verifies with a salt as long as the hash, as nearly all tokens have.
    Pss(ParsedPublicKey, Box<PssKey>),
}

impl Algorithm {
    /// How the library of cryptography verifies with a public key.
    fn verification(self) -> Option<&'static dyn VerificationAlgorithm> {
        match self {
            Self::Hmac(_) => None,
            Self::Rsa(algorithm) | Self::Pss(algorithm, _) => Some(algorithm),
            Self::Curve(algorithm, _) => Some(algorithm),
        }
    }

    /// A verifier with a key that was parsed for the algorithm.
    fn verifier(self, key: ParsedPublicKey) -> Verifier {
        match self {
            Self::Pss(_, hash) => match PssKey::of(&key, hash) {
                Some(any_salt) => Verifier::Pss(key, Box::new(any_salt)),
                None => Verifier::Public(key),
            },
            _ => Verifier::Public(key),
        }
    }
}

impl Verifier {
    /// A verifier with a secret.
    pub(crate) fn of_secret(name: &str, secret: &[u8]) -> Option<Self> {
        match algorithm(name)? {
            Algorithm::Hmac(algorithm) => Some(Self::Hmac(Box::new(hmac::Key::new(algorithm, secret)))),
            _ => None,
        }
    }

    /// A verifier with a public key, given as PEM or as a SubjectPublicKeyInfo.
    pub(crate) fn of_public_key(name: &str, key: &[u8]) -> Option<Self> {
        let algorithm = algorithm(name)?;
        let parse = |key: &[u8]| ParsedPublicKey::new(algorithm.verification()?, key).ok();
        let parsed = match Pem::iter_from_buffer(key).next() {
            Some(Ok(block)) if block.label == "CERTIFICATE" => {
                parse(block.parse_x509().ok()?.public_key().raw)
            }
            Some(Ok(block)) => parse(&block.contents),
            _ => parse(key),
        };
        Some(algorithm.verifier(parsed?))
    }

    /// A verifier with the public key of a JWK, if that is for the algorithm.
    pub(super) fn of_jwk(name: &str, jwk: &Jwk) -> Option<Self> {
        let algorithm = algorithm(name)?;
        let parsed = match algorithm {
            Algorithm::Hmac(_) => return None,
            Algorithm::Rsa(parameters) | Algorithm::Pss(parameters, _) => {
                let (n, e) = jwk.rsa()?;
                RsaPublicKeyComponents { n, e }.to_parsed_public_key(parameters)
            }
            Algorithm::Curve(algorithm, curve) => ParsedPublicKey::new(algorithm, jwk.point(curve)?),
        };
        Some(algorithm.verifier(parsed.ok()?))
    }

    /// Whether this key made the signature; secrets are compared in constant time.
    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Hmac(key) => hmac::verify(key, message, signature).is_ok(),
            Self::Public(key) => key.verify_sig(message, signature).is_ok(),
            Self::Pss(key, any_salt) => {
                any_salt.verifies((message, signature), || key.verify_sig(message, signature).is_ok())
            }
        }
    }
}
