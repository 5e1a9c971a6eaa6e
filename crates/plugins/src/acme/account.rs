//! The account's key: it signs every request to the CA (RFC 7515).

use super::error::AcmeError;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{self, KeyPairComponents, PublicKeyComponents};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD as BASE64, Engine};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::RSAPublicKey;

/// The smallest modulus, in bytes.
const MIN_MODULUS: usize = 256;

/// The length of a coordinate on P-256, in bytes.
const COORDINATE: usize = 32;

const EXPECTED: &str = "expected an RSA key of 2048 bits or more, or an EC key on P-256";

/// The private key of an account.
pub(super) struct AccountKey {
    pair: Pair,
    /// The public key, with its members in the order that its thumbprint needs.
    jwk: String,
}

enum Pair {
    Rsa(rsa::KeyPair),
    P256(EcdsaKeyPair),
}

/// The members of a private key in JSON (RFC 7518).
#[derive(Deserialize)]
#[serde(tag = "kty")]
enum Jwk {
    #[serde(rename = "RSA")]
    Rsa { n: String, e: String, d: String, p: String, q: String, dp: String, dq: String, qi: String },
    #[serde(rename = "EC")]
    Ec { x: String, y: String, d: String },
}

impl AccountKey {
    pub(super) fn from_pem(pem: &str) -> Result<Self, AcmeError> {
        let unknown = |_| AcmeError::AccountKey("it is no private key in PEM".to_owned());
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(unknown)?;
        let der = key.secret_der();
        let rsa = rsa::KeyPair::from_pkcs8(der).or_else(|_| rsa::KeyPair::from_der(der)).map(Pair::Rsa);
        let pair = rsa.or_else(|_| {
            EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_FIXED_SIGNING, der).map(Pair::P256)
        });
        pair.ok().and_then(Self::of).ok_or_else(|| AcmeError::AccountKey(EXPECTED.to_owned()))
    }

    pub(super) fn from_jwk(jwk: &str) -> Result<Self, AcmeError> {
        let unusable = || AcmeError::AccountKey(format!("it is no private JWK: {EXPECTED}"));
        let jwk: Jwk = serde_json::from_str(jwk).map_err(|_| unusable())?;
        let number = |text: &String| BASE64.decode(text).map_err(|_| unusable());
        let pair = match &jwk {
            Jwk::Rsa { n, e, d, p, q, dp, dq, qi } => rsa::KeyPair::from_components(&KeyPairComponents {
                public_key: PublicKeyComponents { n: number(n)?, e: number(e)? },
                d: number(d)?,
                p: number(p)?,
                q: number(q)?,
                dP: number(dp)?,
                dQ: number(dq)?,
                qInv: number(qi)?,
            })
            .map(Pair::Rsa),
            Jwk::Ec { x, y, d } => {
                let point = [&[4], &*number(x)?, &*number(y)?].concat();
                let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
                EcdsaKeyPair::from_private_key_and_public_key(algorithm, &number(d)?, &point).map(Pair::P256)
            }
        };
        pair.ok().and_then(Self::of).ok_or_else(unusable)
    }

    /// None where the key is too short.
    fn of(pair: Pair) -> Option<Self> {
        let jwk = match &pair {
            Pair::Rsa(key) => {
                let (_, public) = RSAPublicKey::from_der(key.public_key().as_ref()).ok()?;
                let (e, n) = (encoded(public.exponent), encoded(public.modulus));
                (key.public_modulus_len() >= MIN_MODULUS)
                    .then(|| format!(r#"{{"e":"{e}","kty":"RSA","n":"{n}"}}"#))?
            }
            Pair::P256(key) => {
                let (x, y) = key.public_key().as_ref().get(1..)?.split_at_checked(COORDINATE)?;
                let (x, y) = (BASE64.encode(x), BASE64.encode(y));
                format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#)
            }
        };
        Some(Self { pair, jwk })
    }

    /// The name of the algorithm that it signs with.
    pub(super) fn algorithm(&self) -> &'static str {
        match self.pair {
            Pair::Rsa(_) => "RS256",
            Pair::P256(_) => "ES256",
        }
    }

    /// The public key.
    pub(super) fn jwk(&self) -> &str {
        &self.jwk
    }

    /// The hash of the public key (RFC 7638).
    pub(super) fn thumbprint(&self) -> String {
        BASE64.encode(Sha256::digest(&self.jwk))
    }

    /// The signature of a text, in base64url.
    pub(super) fn sign(&self, text: &[u8]) -> Result<String, AcmeError> {
        let random = SystemRandom::new();
        let signature = match &self.pair {
            Pair::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, text, &mut signature).map(|()| signature)
            }
            Pair::P256(key) => key.sign(&random, text).map(|signature| signature.as_ref().to_vec()),
        };
        let signature = signature.map_err(|_| AcmeError::AccountKey("it does not sign".to_owned()))?;
        Ok(BASE64.encode(signature))
    }
}

/// A number without leading zeros.
fn encoded(number: &[u8]) -> String {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    BASE64.encode(&number[zeros..])
}
