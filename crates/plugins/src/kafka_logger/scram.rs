//! The client's side of SCRAM (RFC 5802, RFC 7677), by which a user logs in without sending the password.

use aws_lc_rs::{digest, hmac, pbkdf2, rand};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::num::NonZeroU32;

/// How often Kafka hashes a password. Fewer rounds would help an attacker who poses as a broker, more would keep this
/// thread busy.
const ITERATIONS: std::ops::RangeInclusive<u32> = 4096..=16384;

/// The hash of a mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hash {
    Sha256,
    Sha512,
}

impl Hash {
    fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }

    fn pbkdf2(self) -> pbkdf2::Algorithm {
        match self {
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }

    fn sign(self, key: &[u8], message: &[u8]) -> hmac::Tag {
        hmac::sign(&hmac::Key::new(self.hmac(), key), message)
    }
}

/// A login in progress.
pub(super) struct Scram {
    hash: Hash,
    nonce: String,
    /// The first message without its header.
    first: String,
}

/// The client's second message, and what proves that the broker knows the password too.
pub(super) struct Proof {
    pub(super) message: String,
    server: hmac::Tag,
}

impl Scram {
    /// A login of this user.
    pub(super) fn new(hash: Hash, user: &str) -> Result<Self, String> {
        let mut random = [0; 24];
        rand::fill(&mut random).map_err(|_| "the system has no random numbers".to_owned())?;
        Ok(Self::with_nonce(hash, user, BASE64_STANDARD.encode(random)))
    }

    fn with_nonce(hash: Hash, user: &str, nonce: String) -> Self {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        Self { hash, first: format!("n={user},r={nonce}"), nonce }
    }

    /// The client's first message.
    pub(super) fn first_message(&self) -> String {
        format!("n,,{}", self.first)
    }

    /// The response to the broker's first message.
    pub(super) fn prove(&self, password: &str, challenge: &str) -> Result<Proof, String> {
        let nonce = member(challenge, "r=").filter(|nonce| nonce.starts_with(&self.nonce));
        let nonce = nonce.ok_or("the broker's challenge has another nonce")?;
        let salt = member(challenge, "s=").and_then(|salt| BASE64_STANDARD.decode(salt).ok());
        let salt = salt.ok_or("the broker's challenge has no salt")?;
        let rounds = member(challenge, "i=").and_then(|rounds| rounds.parse::<u32>().ok());
        let rounds = rounds.filter(|rounds| ITERATIONS.contains(rounds)).and_then(NonZeroU32::new);
        let rounds = rounds.ok_or("the broker asks for fewer than 4096 or more than 16384 iterations")?;

        let mut salted = vec![0; self.hash.hmac().digest_algorithm().output_len()];
        pbkdf2::derive(self.hash.pbkdf2(), rounds, &salt, password.as_bytes(), &mut salted);
        let bare = format!("c=biws,r={nonce}");
        let signed = format!("{},{challenge},{bare}", self.first);
        let client_key = self.hash.sign(&salted, b"Client Key");
        let stored_key = digest::digest(self.hash.hmac().digest_algorithm(), client_key.as_ref());
        let signature = self.hash.sign(stored_key.as_ref(), signed.as_bytes());
        let proof: Vec<u8> =
            client_key.as_ref().iter().zip(signature.as_ref()).map(|(key, sign)| key ^ sign).collect();
        let server_key = self.hash.sign(&salted, b"Server Key");
        Ok(Proof {
            message: format!("{bare},p={}", BASE64_STANDARD.encode(proof)),
            server: self.hash.sign(server_key.as_ref(), signed.as_bytes()),
        })
    }
}

impl Proof {
    /// Whether the broker's last message proves that it knows the password.
    pub(super) fn is_answered_by(&self, last: &str) -> bool {
        let signature = member(last, "v=").and_then(|signature| BASE64_STANDARD.decode(signature).ok());
        signature.is_some_and(|signature| signature == self.server.as_ref())
    }
}

/// The value of a message's member.
fn member<'m>(message: &'m str, name: &str) -> Option<&'m str> {
    message.split(',').find_map(|member| member.strip_prefix(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHALLENGE: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    fn scram() -> Scram {
        Scram::with_nonce(Hash::Sha256, "user", "rOprNGfwEbeRWgbNEkqO".to_owned())
    }

    #[test]
    fn the_exchange_of_rfc_7677_comes_out() {
        assert_eq!(scram().first_message(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let proof = scram().prove("pencil", CHALLENGE).unwrap();
        assert_eq!(
            proof.message,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert!(proof.is_answered_by("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
        for wrong in ["v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=", "e=other-error", "v=", ""] {
            assert!(!proof.is_answered_by(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_challenge_that_would_weaken_the_login_is_refused() {
        for (wrong, expected) in [
            (CHALLENGE.replace("r=rOpr", "r=ROPR"), "nonce"),
            (CHALLENGE.replace("i=4096", "i=1"), "iterations"),
            (CHALLENGE.replace("i=4096", "i=99999999"), "iterations"),
            (CHALLENGE.replace("s=W", "s=%"), "salt"),
            (String::new(), "nonce"),
        ] {
            assert!(scram().prove("pencil", &wrong).err().unwrap().contains(expected), "{wrong}");
        }
    }

    #[test]
    fn names_are_escaped_and_nonces_differ() {
        let named = Scram::with_nonce(Hash::Sha512, "a=b,c", "x".to_owned());
        assert_eq!(named.first_message(), "n,,n=a=3Db=2Cc,r=x");
        let nonce = || Scram::new(Hash::Sha512, "a").unwrap().nonce;
        assert_ne!(nonce(), nonce());
    }
}
