//! Keyed 128-bit hashes of what clients send, for tables that a client must not be able to guess its way through.
//!
//! Each process draws new random keys, so no client can provoke collisions, and the timing of a lookup reveals nothing
//! about the texts in the table, because only hashes are compared.

use siphasher::sip128::{Hasher128, SipHasher13};
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::OnceLock;

/// A keyed hash of one or more byte strings.
pub type Fingerprint = u128;

/// A table by fingerprint; fingerprints are as random as a hash can be, so they are not hashed again.
pub type FingerprintMap<T> = HashMap<Fingerprint, T, BuildHasherDefault<AsItIs>>;

/// The hasher of tables whose keys are fingerprints.
pub type FingerprintState = BuildHasherDefault<AsItIs>;

/// Makes fingerprints under one secret key. A clone continues from the bytes written so far.
#[derive(Clone)]
pub struct Fingerprinter(SipHasher13);

impl Fingerprinter {
    /// One with a new random key.
    pub fn with_random_key() -> Self {
        let (one, other) = random_key();
        Self(SipHasher13::new_with_keys(one, other))
    }

    /// One with the key of this node, which a process that replaces this one has as well: for what it takes over.
    pub fn with_node_key() -> Self {
        let (one, other) = node_key();
        Self(SipHasher13::new_with_keys(one, other))
    }

    /// Continues with these bytes. Their length is part of the hash, so neighbours cannot run into each other.
    #[must_use]
    pub fn with(mut self, bytes: &[u8]) -> Self {
        self.0.write_usize(bytes.len());
        self.0.write(bytes);
        self
    }

    /// The fingerprint of what was written, then these bytes.
    pub fn of(&self, bytes: &[u8]) -> Fingerprint {
        let mut hasher = self.0;
        hasher.write(bytes);
        hasher.finish128().as_u128()
    }
}

static NODE_KEY: OnceLock<(u64, u64)> = OnceLock::new();

fn random_key() -> (u64, u64) {
    let random = |salt: u64| RandomState::new().hash_one(salt);
    (random(0), random(1))
}

/// The secret key of the node, for the process that replaces this one.
pub fn node_key() -> (u64, u64) {
    *NODE_KEY.get_or_init(random_key)
}

/// Takes over the key of the process that this one replaces, before anything has used one.
pub fn inherit_node_key(key: (u64, u64)) {
    // It was used already only if the process replaces none.
    let _ = NODE_KEY.set(key);
}

/// Takes a fingerprint's low half as its hash.
#[derive(Default)]
pub struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u128(&mut self, fingerprint: u128) {
        self.0 = fingerprint as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_bytes_have_equal_fingerprints_under_one_key_only() {
        let (one, other) = (Fingerprinter::with_random_key(), Fingerprinter::with_random_key());
        assert_eq!(one.of(b"secret"), one.of(b"secret"));
        assert_ne!(one.of(b"secret"), one.of(b"secreT"));
        assert_ne!(one.of(b"secret"), other.of(b"secret"));
    }

    #[test]
    fn neighbours_do_not_run_into_each_other() {
        let key = Fingerprinter::with_random_key();
        let of = |a: &[u8], b: &[u8]| key.clone().with(a).of(b);
        assert_ne!(of(b"ab", b"c"), of(b"a", b"bc"));
        assert_ne!(of(b"", b"x"), key.of(b"x"));
    }
}
