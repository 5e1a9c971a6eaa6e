//! Secrets and their hashes. New hashes are Argon2id. Those that Kong writes are verified too: PBKDF2 and Argon2 as PHC strings,
//! bcrypt in its own form.

use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::pbkdf2;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use sha2::{Digest, Sha256};
use std::num::NonZeroU32;
use subtle::ConstantTimeEq;

/// The cost of new hashes: KiB of memory, passes and lanes, as OWASP recommends.
const COST: (u32, u32, u32) = (19_456, 2, 1);

/// A hash that costs more than this is not verified, because one request would hold up the others.
const MAX_COST: (u32, u32, u32) = (1 << 18, 16, 16);
const MAX_ITERATIONS: u32 = 10_000_000;
const MAX_BCRYPT_COST: u32 = 16;

/// How many bytes a hash has.
const HASH_LEN: usize = 32;

/// Compares in constant time.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

/// A secret's hash, with a salt that is made from this text.
pub(super) fn hash(secret: &str, salted_with: &str) -> String {
    let salt = &Sha256::digest(salted_with)[..16];
    let (memory, passes, lanes) = COST;
    let hash = argon2(Algorithm::Argon2id, COST, (secret.as_bytes(), salt), HASH_LEN).unwrap_or_default();
    let [salt, hash] = [salt, &hash].map(|bytes| STANDARD_NO_PAD.encode(bytes));
    format!("$argon2id$v=19$m={memory},t={passes},p={lanes}${salt}${hash}")
}

/// Whether a text is a hash already.
pub(super) fn is_hash(text: &str) -> bool {
    is_bcrypt(text) || Phc::read(text).is_some()
}

/// Whether a hash is a secret's. It takes milliseconds of computation.
pub(super) fn verify(secret: &str, hash: &str) -> bool {
    if is_bcrypt(hash) {
        return bcrypt::verify(secret, hash).unwrap_or(false);
    }
    let Some(phc) = Phc::read(hash) else { return false };
    match phc.algorithm {
        Hash::Argon2(algorithm, cost) => {
            let given = argon2(algorithm, cost, (secret.as_bytes(), &phc.salt), phc.hash.len());
            given.is_some_and(|given| given.ct_eq(&phc.hash).into())
        }
        Hash::Pbkdf2(algorithm, iterations) => {
            pbkdf2::verify(algorithm, iterations, &phc.salt, secret.as_bytes(), &phc.hash).is_ok()
        }
    }
}

fn argon2(
    algorithm: Algorithm,
    (memory, passes, lanes): (u32, u32, u32),
    (secret, salt): (&[u8], &[u8]),
    len: usize,
) -> Option<Vec<u8>> {
    let params = Params::new(memory, passes, lanes, Some(len)).ok()?;
    let mut hash = vec![0; len];
    Argon2::new(algorithm, Version::V0x13, params).hash_password_into(secret, salt, &mut hash).ok()?;
    Some(hash)
}

/// `$2b$09$` and what follows.
fn is_bcrypt(text: &str) -> bool {
    let mut parts = text.split('$');
    let is_version =
        parts.next() == Some("") && matches!(parts.next(), Some("2" | "2a" | "2b" | "2x" | "2y"));
    let cost = parts.next().and_then(|cost| cost.parse().ok());
    is_version && text.len() == 60 && cost.is_some_and(|cost: u32| cost <= MAX_BCRYPT_COST)
}

enum Hash {
    Argon2(Algorithm, (u32, u32, u32)),
    Pbkdf2(pbkdf2::Algorithm, NonZeroU32),
}

/// A hash as `$name$parameters$salt$hash`, as the Password Hashing Competition has them.
struct Phc {
    algorithm: Hash,
    salt: Vec<u8>,
    hash: Vec<u8>,
}

impl Phc {
    /// None for what is no such string, or costs too much.
    fn read(text: &str) -> Option<Phc> {
        let mut parts = text.strip_prefix('$')?.split('$');
        let name = parts.next()?;
        let mut parameters = parts.next()?;
        if let Some(version) = parameters.strip_prefix("v=") {
            (version == "19").then_some(())?;
            parameters = parts.next()?;
        }
        let [salt, hash] = [parts.next()?, parts.next()?].map(|part| STANDARD_NO_PAD.decode(part).ok());
        let (salt, hash) = (salt?, hash.filter(|hash| (4..=128).contains(&hash.len()))?);
        let value = |key: &str| {
            let pairs = parameters.split(',').filter_map(|pair| pair.split_once('='));
            pairs.filter(|(name, _)| *name == key).find_map(|(_, value)| value.parse::<u32>().ok())
        };
        let algorithm = match name {
            "pbkdf2-sha256" | "pbkdf2-sha512" => {
                let iterations = value("i").filter(|iterations| *iterations <= MAX_ITERATIONS)?;
                let is_256 = name == "pbkdf2-sha256";
                let algorithm = if is_256 { pbkdf2::PBKDF2_HMAC_SHA256 } else { pbkdf2::PBKDF2_HMAC_SHA512 };
                Hash::Pbkdf2(algorithm, NonZeroU32::new(iterations)?)
            }
            _ => {
                let algorithm = Algorithm::new(name).ok()?;
                let cost = (value("m")?, value("t")?, value("p")?);
                let is_bounded = cost.0 <= MAX_COST.0 && cost.1 <= MAX_COST.1 && cost.2 <= MAX_COST.2;
                Hash::Argon2(algorithm, is_bounded.then_some(cost)?)
            }
        };
        (parts.next().is_none()).then_some(Phc { algorithm, salt, hash })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_the_secrets_and_the_same_for_the_same_salt() {
        let hashed = hash("correct horse", "salt");
        assert!(hashed.starts_with("$argon2id$v=19$m=19456,t=2,p=1$") && is_hash(&hashed), "{hashed}");
        assert_eq!(hash("correct horse", "salt"), hashed);
        assert_ne!(hash("correct horse", "pepper"), hashed);
        assert!(verify("correct horse", &hashed));
        assert!(!verify("wrong horse", &hashed) && !verify("", &hashed));
    }

    /// Made with Python's hashlib, with crypt(3), and of the tests of Argon2's authors.
    #[test]
    fn hashes_of_others_are_verified() {
        for (secret, hashed) in HASHES {
            assert!(is_hash(hashed) && verify(secret, hashed), "{hashed}");
            assert!(!verify("wrong horse", hashed), "{hashed}");
        }
    }

    #[test]
    fn what_is_no_hash_or_too_costly_is_never_right() {
        for text in [
            "",
            "correct horse",
            "$argon2id$v=19$m=99999999,t=1,p=1$c29tZXNhbHQ$WzxRjsGTeVQ",
            "$argon2id$v=16$m=64,t=1,p=1$c29tZXNhbHQ$WzxRjsGTeVQ",
            "$pbkdf2-sha512$i=0,l=32$c29tZXNhbHQ$WzxRjsGTeVQ",
            "$pbkdf2-sha512$i=4000000000,l=32$c29tZXNhbHQ$WzxRjsGTeVQ",
            "$pbkdf2-md5$i=1,l=32$c29tZXNhbHQ$WzxRjsGTeVQ",
            "$2b$31$C6UzMDM.H6dfI/f/IKcEeO0fQ6x2F7m1a0l8Jm2l1QyQ5jI3sJ0b2",
            "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQ$WzxRjsGTeVQ$x",
        ] {
            assert!(!is_hash(text) && !verify("correct horse", text), "{text}");
        }
    }

    const HASHES: [(&str, &str); 3] = [
        (
            "correct horse",
            "$pbkdf2-sha512$i=10000,l=32$MDEyMzQ1Njc4OWFiY2RlZg$Ku2kkJn6DxC9USh74Agbkv4vbBI4ZhZ8d47MX26bL/c",
        ),
        ("correct horse", "$2b$05$abcdefghijklmnopqrstuuHNbAKRhpaujgo33bRWs.NLUTJO3lOy2"),
        ("password", "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4"),
    ];
}
