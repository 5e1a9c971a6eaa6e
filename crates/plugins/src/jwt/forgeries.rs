//! Tokens that are forged in the ways of Project Wycheproof's vectors for JSON Web Signatures, for every algorithm. All
//! of them must be refused.

use super::credential::JwtSecret;
use super::jwk::Keys;
use super::key;
use crate::PLUGINS;
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self as sign, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaEncoding};
use aws_lc_rs::{hmac, rsa};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD as BASE64};
use serde_json::json;
use weir_plugin::Bytes;
use weir_plugin::testing::{Gateway, custom, id};

const SECRET: &str = "known to the issuer";
const CLAIMS: &str = r#"{"iss":"issuer"}"#;

/// What an issuer signs with.
enum Signer {
    Secret(Box<hmac::Key>),
    Rsa(Box<rsa::KeyPair>, &'static dyn RsaEncoding),
    Curve(EcdsaKeyPair),
    Edwards(Ed25519KeyPair),
}

impl Signer {
    /// With a new key pair, or with this secret.
    fn new(algorithm: &str, known: &str) -> Self {
        let secret = |algorithm| Self::Secret(Box::new(hmac::Key::new(algorithm, known.as_bytes())));
        let rsa =
            |encoding| Self::Rsa(Box::new(rsa::KeyPair::generate(rsa::KeySize::Rsa2048).unwrap()), encoding);
        let curve = |algorithm| Self::Curve(EcdsaKeyPair::generate(algorithm).unwrap());
        match algorithm {
            "HS256" => secret(hmac::HMAC_SHA256),
            "HS384" => secret(hmac::HMAC_SHA384),
            "HS512" => secret(hmac::HMAC_SHA512),
            "RS256" => rsa(&sign::RSA_PKCS1_SHA256),
            "RS384" => rsa(&sign::RSA_PKCS1_SHA384),
            "RS512" => rsa(&sign::RSA_PKCS1_SHA512),
            "PS256" => rsa(&sign::RSA_PSS_SHA256),
            "PS384" => rsa(&sign::RSA_PSS_SHA384),
            "PS512" => rsa(&sign::RSA_PSS_SHA512),
            "ES256" => curve(&sign::ECDSA_P256_SHA256_FIXED_SIGNING),
            "ES384" => curve(&sign::ECDSA_P384_SHA384_FIXED_SIGNING),
            "ES512" => curve(&sign::ECDSA_P521_SHA512_FIXED_SIGNING),
            "EdDSA" => Self::Edwards(Ed25519KeyPair::generate().unwrap()),
            other => panic!("nothing signs by {other}"),
        }
    }

    fn sign(&self, message: &str) -> Vec<u8> {
        let (message, random) = (message.as_bytes(), SystemRandom::new());
        match self {
            Self::Secret(key) => hmac::sign(key, message).as_ref().to_vec(),
            Self::Rsa(pair, encoding) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(*encoding, &random, message, &mut signature).unwrap();
                signature
            }
            Self::Curve(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Edwards(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }

    /// The public key as a SubjectPublicKeyInfo; none for a secret.
    fn public(&self) -> Option<Vec<u8>> {
        let der: PublicKeyX509Der<'_> = match self {
            Self::Secret(_) => return None,
            Self::Rsa(pair, _) => pair.public_key().as_der().unwrap(),
            Self::Curve(pair) => pair.public_key().as_der().unwrap(),
            Self::Edwards(pair) => pair.public_key().as_der().unwrap(),
        };
        Some(der.as_ref().to_vec())
    }

    /// The length of the numbers in an elliptic-curve signature.
    fn number(&self) -> Option<usize> {
        match self {
            Self::Curve(_) => Some(self.sign("").len() / 2),
            _ => None,
        }
    }

    fn token(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", BASE64.encode(header), BASE64.encode(claims));
        let signature = BASE64.encode(self.sign(&signed));
        format!("{signed}.{signature}")
    }
}

fn pem(der: &[u8]) -> String {
    format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der))
}

/// A gateway that knows the issuer.
fn gateway(algorithm: &str, issuer: &Signer) -> Gateway {
    let mut gateway = Gateway::new(PLUGINS);
    gateway.document.custom.set([custom::<JwtSecret>(json!({
        "id": id(0xd1), "consumer": id(1), "key": "issuer", "algorithm": algorithm,
        "secret": SECRET, "rsa_public_key": issuer.public().map(|der| pem(&der)),
    }))]);
    gateway
}

/// The same token with a part missing, added, or taken from another token.
fn misshapen(token: &str) -> Vec<(&'static str, String)> {
    let parts: Vec<&str> = token.split('.').collect();
    let [header, claims, signature] = parts[..] else { panic!("{token}") };
    let first = if signature.starts_with('A') { "B" } else { "A" };
    let other_claims = BASE64.encode(r#"{"iss":"issuer" }"#);
    let other_header =
        BASE64.encode(format!("{} ", String::from_utf8(BASE64.decode(header).unwrap()).unwrap()));
    vec![
        ("modified signature", format!("{header}.{claims}.{first}{}", &signature[1..])),
        ("modified claims", format!("{header}.{other_claims}.{signature}")),
        ("modified header", format!("{other_header}.{claims}.{signature}")),
        ("missing signature", format!("{header}.{claims}.")),
        ("missing signature and separator", format!("{header}.{claims}")),
        ("missing claims", format!("{header}..{signature}")),
        ("missing claims and separator", format!("{header}.{signature}")),
        ("missing header", format!(".{claims}.{signature}")),
        ("missing header and separator", format!("{claims}.{signature}")),
        ("missing header and signature", format!(".{claims}.")),
        ("claims alone", claims.to_owned()),
        ("an extra empty part", format!("{token}.")),
        ("an extra part", format!("{token}.foo")),
        ("spaces in the header", format!("{header}    .{claims}.{signature}")),
        ("spaces in the claims", format!("{header}.    {claims}.{signature}")),
        ("spaces in the signature", format!("{header}.{claims}.    {signature}")),
        ("no base64 in the header", format!("{header}####.{claims}.{signature}")),
        ("no base64 in the claims", format!("{header}.?{claims}.{signature}")),
        ("no base64 in the signature", format!("{header}.{claims}.?{signature}")),
        ("no base64 behind the signature", format!("{header}.{claims}.{signature}?")),
        ("JSON", json!({ "payload": claims, "protected": header, "signature": signature }).to_string()),
        ("none", format!("{}.{claims}.", BASE64.encode(r#"{"alg":"none"}"#))),
        ("none, signed", format!("{}.{claims}.{signature}", BASE64.encode(r#"{"alg":"none"}"#))),
    ]
}

/// Tokens made with nothing but the public key.
fn confused(algorithm: &str, issuer: &Signer) -> Vec<(&'static str, String)> {
    let mine = Signer::new(algorithm, "guessed");
    let mut tokens = vec![
        ("another's key", mine.token(&json!({ "alg": algorithm }).to_string(), CLAIMS)),
        (
            "a key in the header",
            mine.token(
                &json!({ "alg": algorithm, "jwk": { "kty": "oct", "k": "a25vd24" } }).to_string(),
                CLAIMS,
            ),
        ),
    ];
    let Some(der) = issuer.public() else { return tokens };
    let (text, chain) = (pem(&der), STANDARD.encode(&der));
    tokens.push((
        "a chain in the header",
        mine.token(&json!({ "alg": algorithm, "x5c": [chain] }).to_string(), CLAIMS),
    ));
    for (what, secret) in
        [("the public key as a secret", &der[..]), ("the key's text as a secret", text.as_bytes())]
    {
        let by_secret = Signer::Secret(Box::new(hmac::Key::new(hmac::HMAC_SHA256, secret)));
        tokens.push((what, by_secret.token(r#"{"alg":"HS256"}"#, CLAIMS)));
        tokens.push((what, by_secret.token(&json!({ "alg": algorithm }).to_string(), CLAIMS)));
    }
    tokens
}

/// Elliptic-curve signatures with numbers that are out of range.
fn out_of_range(algorithm: &str, issuer: &Signer) -> Vec<(&'static str, String)> {
    let Some(length) = issuer.number() else { return Vec::new() };
    let signed =
        format!("{}.{}", BASE64.encode(json!({ "alg": algorithm }).to_string()), BASE64.encode(CLAIMS));
    let good = issuer.sign(&signed);
    let (r, s) = good.split_at(length);
    let (zero, most) = (vec![0; length], vec![0xff; length]);
    let one = [&zero[1..], &[1]].concat();
    let token = |r: &[u8], s: &[u8]| format!("{signed}.{}", BASE64.encode([r, s].concat()));
    vec![
        ("both zero", token(&zero, &zero)),
        ("r zero", token(&zero, s)),
        ("s zero", token(r, &zero)),
        ("zero and one", token(&zero, &one)),
        ("both one", token(&one, &one)),
        ("r above the order", token(&most, s)),
        ("s above the order", token(r, &most)),
        ("numbers a byte longer", token(&[&[0], r].concat(), &[&[0], s].concat())),
        ("zeros behind", token(r, &[s, &[0, 0]].concat())),
        ("a number that overflows", token(&[&[1], r].concat(), &[&[0], s].concat())),
        ("very long numbers", token(&[&*vec![0; 4_096], r].concat(), &[&*vec![0; 4_096], s].concat())),
    ]
}

#[test]
fn no_forgery_is_believed_by_any_algorithm() {
    let mut refused = 0;
    for algorithm in key::names() {
        let issuer = Signer::new(algorithm, SECRET);
        let gateway = gateway(algorithm, &issuer);
        let plugin = gateway.plugin("jwt", json!({})).unwrap();
        let status = |token: &str| {
            gateway.send(&[&*plugin], &format!("GET /\nAuthorization: Bearer {token}")).status()
        };
        let token = issuer.token(&json!({ "alg": algorithm }).to_string(), CLAIMS);
        assert_eq!(status(&token), 200, "{algorithm}");
        let forged =
            [misshapen(&token), confused(algorithm, &issuer), out_of_range(algorithm, &issuer)].concat();
        for (how, forgery) in &forged {
            assert_eq!(status(forgery), 401, "{algorithm}: {how}: {forgery}");
        }
        refused += forged.len();
        assert_eq!(status(&token), 200, "{algorithm}, once more");
    }
    assert!(refused > 350, "{refused} forgeries");
}

/// Each algorithm's tokens under the name of every other algorithm.
#[test]
fn a_key_serves_its_own_algorithm_alone() {
    for algorithm in key::names() {
        let issuer = Signer::new(algorithm, SECRET);
        let gateway = gateway(algorithm, &issuer);
        let plugin = gateway.plugin("jwt", json!({})).unwrap();
        for other in key::names().filter(|other| *other != algorithm) {
            let token = issuer.token(&json!({ "alg": other }).to_string(), CLAIMS);
            let sent = gateway.send(&[&*plugin], &format!("GET /\nAuthorization: Bearer {token}"));
            assert_eq!(sent.status(), 401, "{algorithm} as {other}");
        }
    }
}

#[test]
fn a_key_of_a_set_is_for_what_it_says_it_is_for() {
    let pair = EcdsaKeyPair::generate(&sign::ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    let point = pair.public_key().as_ref();
    let (x, y) = (BASE64.encode(&point[1..33]), BASE64.encode(&point[33..]));
    let found = |more: serde_json::Value| {
        let mut key = json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": "k" });
        key.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let set = json!({ "keys": [key] }).to_string();
        Keys::read(Bytes::from(set)).unwrap().find("k").is_some()
    };
    for (more, usable) in [
        (json!({}), true),
        (json!({ "use": "sig", "alg": "ES256" }), true),
        (json!({ "key_ops": ["verify"] }), true),
        (json!({ "key_ops": ["sign", "verify"] }), true),
        (json!({ "use": "enc" }), false),
        (json!({ "key_ops": ["encrypt"] }), false),
        (json!({ "key_ops": ["sign"] }), false),
        (json!({ "key_ops": [] }), false),
        (json!({ "alg": "RS256" }), false),
        (json!({ "alg": "ES384" }), false),
        (json!({ "crv": "P-384" }), false),
        (json!({ "kty": "oct" }), false),
        (json!({ "kty": "OKP", "x": BASE64.encode(point) }), false),
        (json!({ "x": y, "y": x }), false),
        (json!({ "y": "AA" }), false),
        (json!({ "x": "no base64!" }), false),
    ] {
        assert_eq!(found(more.clone()), usable, "{more}");
    }
}

/// 65537 to the power of 128: the form that ROCA's moduli have modulo its primes.
fn roca() -> Vec<u8> {
    (0..128).fold(vec![1], |number: Vec<u8>, _| {
        let shifted = [&*number, &[0, 0]].concat();
        let mut carry = 0;
        let added = shifted.iter().rev().enumerate().map(|(place, byte)| {
            let own = number.iter().rev().nth(place).copied().unwrap_or_default();
            let sum = u16::from(*byte) + u16::from(own) + carry;
            carry = sum >> 8;
            sum as u8
        });
        let mut bytes: Vec<u8> = added.collect();
        bytes.extend((carry > 0).then_some(carry as u8));
        bytes.reverse();
        bytes
    })
}

#[test]
fn a_key_that_others_can_sign_with_is_reported_and_not_used() {
    let modulus = |size| {
        let pair = rsa::KeyPair::generate(size).unwrap();
        BASE64.encode(&pair.public_key().as_ref()[9..][..pair.public_modulus_len()])
    };
    let sound = modulus(rsa::KeySize::Rsa2048);
    let short = BASE64.encode([0xc5; 255]);
    let padded = BASE64.encode([&[0][..], &[0xc5; 255]].concat());
    let rsa = |n: &str| json!({ "kty": "RSA", "kid": "k", "n": n, "e": "AQAB" });
    let mut published = rsa(&sound);
    published["d"] = json!("AQAB");
    for (key, refused) in [
        (rsa(&sound), None),
        (rsa(&short), Some("its modulus has less than 2048 bits")),
        (rsa(&padded), Some("its modulus has less than 2048 bits")),
        (
            rsa(&BASE64.encode(roca())),
            Some("its generator made keys that can be factored (ROCA, CVE-2017-15361)"),
        ),
        (published, Some("its private part is published with it")),
        (
            json!({ "kty": "oct", "kid": "k", "k": "c2VjcmV0", "alg": "HS256" }),
            Some("it is a secret, and any client that reads the set could sign with it"),
        ),
    ] {
        let keys = Keys::read(Bytes::from(json!({ "keys": [key] }).to_string())).unwrap();
        assert_eq!(keys.find("k").is_some(), refused.is_none(), "{key}");
        let refusals: Vec<_> = keys.refused.iter().map(|(id, why)| (&**id, *why)).collect();
        assert_eq!(refusals, refused.map(|why| ("k", why)).into_iter().collect::<Vec<_>>(), "{key}");
    }
    let long = json!({ "keys": [{ "kty": "oct", "kid": "k".repeat(100_000), "k": "c2VjcmV0" }] });
    let keys = Keys::read(Bytes::from(long.to_string())).unwrap();
    assert!(keys.refused.iter().all(|(id, _)| id.len() <= 100), "its id is cut short");
}

/// RFC 7517, 4.5: keys with one id are alternatives.
#[test]
fn keys_of_one_id_are_selected_by_algorithm_and_all_tried() {
    let pairs = [(); 2].map(|()| EcdsaKeyPair::generate(&sign::ECDSA_P256_SHA256_FIXED_SIGNING).unwrap());
    let key = |pair: &EcdsaKeyPair| {
        let point = pair.public_key().as_ref();
        json!({ "kty": "EC", "crv": "P-256", "kid": "k", "x": BASE64.encode(&point[1..33]), "y": BASE64.encode(&point[33..]) })
    };
    let edwards = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "k", "x": "WDR0xz3cvSJRwMjV652UH8OMR_-8jcKMy9ewIrWQnxg" });
    let set = json!({ "keys": [key(&pairs[0]), edwards, key(&pairs[1])] }).to_string();
    let keys = Keys::read(Bytes::from(set)).unwrap();
    let found = keys.find("k").unwrap();
    assert_eq!(found.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["ES256", "EdDSA", "ES256"]);
    for pair in &pairs {
        let signature = pair.sign(&aws_lc_rs::rand::SystemRandom::new(), b"message").unwrap();
        let verify = |(_, verifier): &&(_, key::Verifier)| verifier.verifies(b"message", signature.as_ref());
        assert_eq!(found.iter().filter(verify).count(), 1);
    }
}

/// With an exponent of one a signature is its own padding, so anyone can write one.
#[test]
fn an_exponent_of_one_verifies_nothing() {
    let pair = rsa::KeyPair::generate(rsa::KeySize::Rsa2048).unwrap();
    // After the headers of a sequence and of a number that begins with a zero.
    let modulus = BASE64.encode(&pair.public_key().as_ref()[9..][..pair.public_modulus_len()]);
    let key = |e: &str| json!({ "kty": "RSA", "alg": "RS256", "kid": "k", "n": modulus, "e": e });
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, b"message");
    // RFC 8017, 9.2: the identifier of SHA-256 before the digest.
    let identifier = [
        0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00,
        0x04, 0x20,
    ];
    let padding = vec![0xff; pair.public_modulus_len() - 3 - identifier.len() - digest.as_ref().len()];
    let forged = [&[0, 1][..], &padding, &[0], &identifier, digest.as_ref()].concat();
    let verifies = |exponent: &str, signature: &[u8]| {
        let keys = Keys::read(Bytes::from(json!({ "keys": [key(exponent)] }).to_string())).unwrap();
        keys.find("k").is_some_and(|found| found[0].1.verifies(b"message", signature))
    };
    for exponent in ["AQ", "AAAB", "Ag", "AA", "AQAB"] {
        assert!(!verifies(exponent, &forged), "{exponent}");
    }
    let issuer = Signer::Rsa(Box::new(pair), &sign::RSA_PKCS1_SHA256);
    assert!(verifies("AQAB", &issuer.sign("message")), "the key is right but for its exponent");
}
