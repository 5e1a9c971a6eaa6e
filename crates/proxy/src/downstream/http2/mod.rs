//! HTTP/2, by the `h2` crate: each stream is one exchange, served as every other is.

mod fields;
mod server;
mod stream;

pub(crate) use server::serve;

use std::time::Duration;

/// What begins a connection of HTTP/2 (RFC 9113, 3.4), as far as a parser of HTTP/1.1 looks before it gives up.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

/// How clients may use HTTP/2.
#[derive(Debug, Clone)]
pub struct Http2Options {
    /// Requests of one connection that are served at a time; more are refused.
    pub max_concurrent_streams: u32,
    /// The most bytes of a request's fields, as RFC 9113 (6.5.2) counts them.
    pub max_header_list_size: u32,
    /// The same for all requests of one connection that are served at a time; more are refused.
    pub connection_header_list_size: u32,
    /// How much of a request's body may come before it is asked for.
    pub body_preread_size: u32,
    /// The same for all requests of one connection together.
    pub connection_window_size: u32,
    /// How many requests a client may give up, at once and in each second.
    pub max_resets: u32,
    /// How often a client with requests under way is asked whether it is still there.
    pub ping_interval: Duration,
}

impl Default for Http2Options {
    fn default() -> Self {
        Self {
            max_concurrent_streams: 128,
            max_header_list_size: 64 * 1024,
            connection_header_list_size: 256 * 1024,
            body_preread_size: 64 * 1024,
            connection_window_size: 1024 * 1024,
            max_resets: 256,
            ping_interval: Duration::from_secs(30),
        }
    }
}
