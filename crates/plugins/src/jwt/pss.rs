//! Signatures of RSASSA-PSS with a salt of any length (RFC 8017, 8.1.2 and 9.1.2). By RFC 7518 it is as long as the hash,
//! which is what the library of cryptography checks; some issuers sign with another, and Kong accepts them.

use aws_lc_rs::digest::{self, Algorithm, Context};
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::signature::ParsedPublicKey;
use num_bigint::BigUint;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

/// The last byte of every encoded message.
const TRAILER: u8 = 0xbc;

/// A public key, and the one hash that is used with it.
pub(crate) struct PssKey {
    modulus: BigUint,
    exponent: BigUint,
    hash: &'static Algorithm,
    /// Whether the last signature that this key verified had a salt of another length than the hash.
    had_other_salt: AtomicBool,
}

impl PssKey {
    /// The same key as one that was parsed, and so is one of RSA that may be used.
    pub(super) fn of(key: &ParsedPublicKey, hash: &'static Algorithm) -> Option<Self> {
        let der = key.as_der().ok()?;
        let (_, info) = SubjectPublicKeyInfo::from_der(der.as_ref()).ok()?;
        let PublicKey::RSA(key) = info.parsed().ok()? else { return None };
        let number = BigUint::from_bytes_be;
        Some(Self {
            modulus: number(key.modulus),
            exponent: number(key.exponent),
            hash,
            had_other_salt: AtomicBool::new(false),
        })
    }

    /// Whether this key made the signature. What the library says of it is asked for first, because the library is faster,
    /// unless the issuer uses another length of salt: so nearly all signatures are computed with once.
    pub(super) fn verifies(
        &self,
        (message, signature): (&[u8], &[u8]),
        library: impl FnOnce() -> bool,
    ) -> bool {
        if !self.had_other_salt.load(Relaxed) && library() {
            return true;
        }
        let Some(salt) = self.salt_len(message, signature) else { return false };
        let is_other = salt != self.hash.output_len();
        if self.had_other_salt.load(Relaxed) != is_other {
            self.had_other_salt.store(is_other, Relaxed);
        }
        true
    }

    /// The length of the salt of a signature that this key made.
    fn salt_len(&self, message: &[u8], signature: &[u8]) -> Option<usize> {
        let number = BigUint::from_bytes_be(signature);
        if signature.len() as u64 != self.modulus.bits().div_ceil(8) || number >= self.modulus {
            return None;
        }
        let bits = self.modulus.bits() as usize - 1;
        let digits = number.modpow(&self.exponent, &self.modulus).to_bytes_be();
        let mut encoded = vec![0; bits.div_ceil(8).checked_sub(digits.len())?];
        encoded.extend(digits);
        self.salt_len_of_encoded(&mut encoded, bits, message)
    }

    /// The length of the salt, if a message was encoded to this, of so many bits (EMSA-PSS-VERIFY).
    fn salt_len_of_encoded(&self, encoded: &mut [u8], bits: usize, message: &[u8]) -> Option<usize> {
        let [data @ .., TRAILER] = encoded else { return None };
        let (block, hash) = data.split_at_mut(data.len().checked_sub(self.hash.output_len())?);
        let unused = 0xff_u8.checked_shl(8 - (8 * (block.len() + hash.len() + 1) - bits) as u32).unwrap_or(0);
        (block.first()? & unused == 0).then_some(())?;
        self.unmask(block, hash);
        block[0] &= !unused;
        let [1, salt @ ..] = &block[block.iter().position(|byte| *byte != 0)?..] else { return None };
        let mut expected = Context::new(self.hash);
        expected.update(&[0; 8]);
        expected.update(digest::digest(self.hash, message).as_ref());
        expected.update(salt);
        (*expected.finish().as_ref() == *hash).then_some(salt.len())
    }

    /// Takes the mask off that the seed makes (MGF1).
    fn unmask(&self, block: &mut [u8], seed: &[u8]) {
        for (counter, masked) in (0u32..).zip(block.chunks_mut(self.hash.output_len())) {
            let mut mask = Context::new(self.hash);
            mask.update(seed);
            mask.update(&counter.to_be_bytes());
            masked.iter_mut().zip(mask.finish().as_ref()).for_each(|(byte, mask)| *byte ^= mask);
        }
    }
}
