//! TLS on both sides: certificates by server name towards clients, verification towards upstreams.
//!
//! [`ServerTls`] is made once for a set of listeners and kept over every reload; only the [`Certificates`] behind it
//! are replaced, so that neither connections nor resumable sessions are lost.
//!
//! An idle connection takes about 8 KiB of the process's memory: 1.2 KiB of state, a read buffer that rustls shrinks to
//! 4 KiB once the peer pauses, and keys. Sent bytes are not kept, but rustls buffers up to 64 KiB that the socket did
//! not accept, so code that writes bodies must flush before it writes more.

mod certificates;
mod ciphers;
mod client;
mod control;
mod default;
mod error;
mod handshake_fault;
mod ocsp;
mod pem;
mod presented;
mod remembered;
mod responder;
mod revocation;
mod server;
mod sessions;
mod stapling;
#[cfg(test)]
mod tests;

pub use certificates::Certificates;
pub use ciphers::{Cipher, CipherSuites};
use client::OLD_VERSION;
pub use client::{AcceptAny, Verify, check_validity, client_config};
pub use control::server_config;
pub use default::{client_certificate, default_certificate};
pub use error::{Problem, Subject, TlsError};
pub use handshake_fault::{FaultKind, HandshakeFault};
pub use pem::{ca_certificates, certified_key, roots};
pub use presented::{ClientAuthorities, ClientCertificate};
pub use revocation::{Revocation, revocation};
pub use rustls::sign::CertifiedKey;
pub use server::{ServerTls, TlsOptions, Version, negotiated};
pub use stapling::keep_fresh;

use rustls::crypto::CryptoProvider;
use std::sync::{Arc, OnceLock};

/// HTTP/1.1's name in ALPN.
pub const HTTP1: &[u8] = b"http/1.1";
/// HTTP/2's name in ALPN.
pub const HTTP2: &[u8] = b"h2";
/// HTTP/3's name in ALPN.
const HTTP3: &[u8] = b"h3";

/// The one provider of cryptography, shared so that every configuration reuses it.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider())).clone()
}
