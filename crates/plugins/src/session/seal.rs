//! Seals what clients and the database keep of a session, so that they can neither read nor change it: AES-256-GCM, with a key of
//! its own for each text.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use weir_plugin::Secret;

/// The bytes that a key derives from, beside the secret.
const SALT_LEN: usize = 32;
const KEY_LEN: usize = 32;
const TAG_LEN: usize = 16;

/// How many bytes derive from the secret for one text.
struct Derived;

impl KeyType for Derived {
    fn len(&self) -> usize {
        KEY_LEN + NONCE_LEN
    }
}

/// Seals texts for one purpose: those for another one, or by another secret, are not accepted.
pub(crate) struct Sealer {
    secret: Prk,
    purpose: Vec<u8>,
}

impl Sealer {
    pub(crate) fn new(secret: &Secret, purpose: &str) -> Self {
        let secret = Salt::new(HKDF_SHA256, b"weir session 1").extract(secret.expose().as_bytes());
        Self { secret, purpose: purpose.as_bytes().to_vec() }
    }

    /// A key that is used once, so that its nonce may derive as well.
    fn key(&self, salt: &[u8], bound_to: &[u8]) -> Result<(LessSafeKey, Nonce), Unspecified> {
        let mut derived = [0; KEY_LEN + NONCE_LEN];
        // What is between them has a fixed length, so that neighbours cannot run into each other.
        self.secret.expand(&[bound_to, salt, &self.purpose], Derived)?.fill(&mut derived)?;
        let (key, nonce) = derived.split_at(KEY_LEN);
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key)?);
        Ok((key, Nonce::try_assume_unique_for_key(nonce)?))
    }

    /// Seals bytes; they are opened with the same `bound_to` alone, whose length is the same for all texts of the purpose.
    pub(crate) fn seal(&self, bytes: &[u8], bound_to: &[u8]) -> Result<String, Unspecified> {
        let mut salt = [0; SALT_LEN];
        rand::fill(&mut salt)?;
        let (key, nonce) = self.key(&salt, bound_to)?;
        let mut sealed = Vec::with_capacity(SALT_LEN + bytes.len() + TAG_LEN);
        sealed.extend_from_slice(&salt);
        sealed.extend_from_slice(bytes);
        let tag = key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut sealed[SALT_LEN..])?;
        sealed.extend_from_slice(tag.as_ref());
        Ok(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// None if the text was not sealed here.
    pub(crate) fn open(&self, text: &[u8], bound_to: &[u8]) -> Option<Vec<u8>> {
        let mut sealed = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (salt, sealed) = sealed.split_at_mut_checked(SALT_LEN)?;
        let (key, nonce) = self.key(salt, bound_to).ok()?;
        Some(key.open_in_place(nonce, Aad::empty(), sealed).ok()?.to_vec())
    }
}

/// A random id.
pub(crate) fn random_id() -> Result<[u8; 32], Unspecified> {
    let mut id = [0; 32];
    rand::fill(&mut id)?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sealer(secret: &str, purpose: &str) -> Sealer {
        Sealer::new(&secret.to_owned().into(), purpose)
    }

    #[test]
    fn a_text_is_opened_with_its_secret_purpose_and_place_alone() {
        let sealed = sealer("secret", "cookie a").seal(b"text", b"here").unwrap();
        let open =
            |secret, purpose, bound_to: &[u8]| sealer(secret, purpose).open(sealed.as_bytes(), bound_to);
        assert_eq!(open("secret", "cookie a", b"here").as_deref(), Some(&b"text"[..]));
        for (secret, purpose, bound_to) in [
            ("Secret", "cookie a", &b"here"[..]),
            ("secret", "cookie b", b"here"),
            ("secret", "cookie a", b"Here"),
            ("", "", b""),
        ] {
            assert_eq!(open(secret, purpose, bound_to), None);
        }
        assert_ne!(sealer("secret", "cookie a").seal(b"text", b"here").unwrap(), sealed);
    }

    proptest! {
        #[test]
        fn a_change_of_any_bit_is_noticed(bytes in prop::collection::vec(any::<u8>(), 0..200), at: usize, bit in 0..8) {
            let sealer = sealer("secret", "cookie");
            let text = sealer.seal(&bytes, b"").unwrap();
            prop_assert_eq!(sealer.open(text.as_bytes(), b""), Some(bytes));
            let mut sealed = URL_SAFE_NO_PAD.decode(&text).unwrap();
            let at = at % sealed.len();
            sealed[at] ^= 1u8 << bit;
            prop_assert_eq!(sealer.open(URL_SAFE_NO_PAD.encode(&sealed).as_bytes(), b""), None);
            sealed.truncate(at);
            prop_assert_eq!(sealer.open(URL_SAFE_NO_PAD.encode(&sealed).as_bytes(), b""), None);
        }

        #[test]
        fn rubbish_is_not_opened(text in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(sealer("secret", "cookie").open(&text, b""), None);
        }
    }
}
