//! HTTP/2 clients, with the `h2` crate: each stream is one exchange, served like every other.

mod fields;
mod server;
mod stream;

pub(crate) use server::serve;

/// What begins a connection of HTTP/2 (RFC 9113, 3.4), as far as a parser of HTTP/1.1 looks before it gives up.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";
