//! Digests and message authentication codes by the names of OpenSSL.

use aws_lc_rs::{digest, hmac};
use md5::{Digest as _, Md5};

/// The bytes of a digest; none for a name that is not known.
pub(in crate::modules) fn digest(name: &str, data: &[u8]) -> Option<Vec<u8>> {
    if name.eq_ignore_ascii_case("md5") {
        return Some(md5(data).to_vec());
    }
    Some(digest::digest(sha(name)?, data).as_ref().to_vec())
}

/// MD5.
pub(in crate::modules) fn md5(data: &[u8]) -> [u8; 16] {
    Md5::digest(data).into()
}

/// SHA-1.
pub(in crate::modules) fn sha1(data: &[u8]) -> Vec<u8> {
    digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, data).as_ref().to_vec()
}

/// An algorithm of the SHA family: `sha256`, `SHA-256` or `RSA-SHA256`.
pub(in crate::modules) fn sha(name: &str) -> Option<&'static digest::Algorithm> {
    Some(match &*name.to_ascii_lowercase().replace('-', "") {
        "sha1" => &digest::SHA1_FOR_LEGACY_USE_ONLY,
        "sha224" => &digest::SHA224,
        "sha256" => &digest::SHA256,
        "sha384" => &digest::SHA384,
        "sha512" => &digest::SHA512,
        _ => return None,
    })
}

/// A code of the data under a key; none for a digest that is not known.
pub(in crate::modules) fn hmac(name: &str, key: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    if name.eq_ignore_ascii_case("md5") {
        return Some(hmac_md5(key, data));
    }
    let algorithm = match &*name.to_ascii_lowercase().replace('-', "") {
        "sha1" => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        "sha224" => hmac::HMAC_SHA224,
        "sha256" => hmac::HMAC_SHA256,
        "sha384" => hmac::HMAC_SHA384,
        "sha512" => hmac::HMAC_SHA512,
        _ => return None,
    };
    Some(hmac::sign(&hmac::Key::new(algorithm, key), data).as_ref().to_vec())
}

/// RFC 2104 over MD5, whose block has 64 bytes.
fn hmac_md5(key: &[u8], data: &[u8]) -> Vec<u8> {
    let mut block = [0; 64];
    if key.len() > block.len() {
        block[..16].copy_from_slice(&md5(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = Md5::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(data).finalize();
    Md5::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().to_vec()
}

/// Lower-case hexadecimal digits.
pub(in crate::modules) fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
}
