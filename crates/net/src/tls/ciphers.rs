//! Selects the cipher suites that listeners offer to clients.

use super::provider;
use rustls::CipherSuite;
use rustls::crypto::CryptoProvider;
use std::sync::Arc;

/// A cipher suite of TLS 1.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cipher(CipherSuite);

const NAMES: [(&str, CipherSuite); 6] = [
    ("ECDHE-ECDSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

impl Cipher {
    /// The suite that OpenSSL calls so, if it is implemented.
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, suite)| Self(*suite))
    }

    /// OpenSSL's names of all that are implemented.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, _)| *name)
    }
}

/// Kong's `ssl_cipher_suite`, after Mozilla's recommendations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CipherSuites {
    /// TLS 1.3 alone.
    Modern,
    /// TLS 1.2 and 1.3 with forward secrecy and authenticated encryption.
    Intermediate,
    /// As intermediate: the weaker suites of this set are not implemented.
    Old,
    /// All of TLS 1.3, and these of TLS 1.2, the preferred one first.
    Custom(Vec<Cipher>),
}

impl CipherSuites {
    /// Cryptography with these suites alone.
    pub(super) fn provider(&self) -> Arc<CryptoProvider> {
        let Self::Custom(ciphers) = self else { return provider() };
        let place = |suite| ciphers.iter().position(|cipher| cipher.0 == suite);
        let mut chosen = (*provider()).clone();
        chosen.cipher_suites.retain(|suite| suite.tls13().is_some() || place(suite.suite()).is_some());
        chosen.cipher_suites.sort_by_key(|suite| place(suite.suite()));
        Arc::new(chosen)
    }
}
