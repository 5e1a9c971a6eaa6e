//! HTTP/3, by the crates `quinn` and `h3`: each stream is one exchange, served as every other is.

mod body;
mod control;
mod endpoint;
mod frames;
mod one_way;
mod qpack;
mod quic;
mod receiving;
mod request;
mod sending;
mod server;
mod stream;

pub(crate) use endpoint::{Arriving, Quic, QuicListener, receive};
pub(crate) use server::serve;

use std::time::Duration;

/// How clients may use HTTP/3.
#[derive(Debug, Clone)]
pub struct Http3Options {
    /// Requests of one connection that are served at a time; more have to wait at the client.
    pub max_concurrent_streams: u32,
    /// The most bytes of a request's fields, as RFC 9114 (4.2.2) counts them.
    pub max_header_list_size: u32,
    /// The same for all requests of one connection that are served at a time; more are refused.
    pub connection_header_list_size: u32,
    /// How much of a request's body may come before it is asked for.
    pub body_preread_size: u32,
    /// The same for all requests of one connection together.
    pub connection_window_size: u32,
    /// How many requests a client may give up, at once and in each second.
    pub max_resets: u32,
    /// How long a client may be silent. It is asked whether it is still there three times as often.
    pub idle_timeout: Duration,
    /// How many handshakes may be under way with clients whose address is not proven; further ones must prove it.
    pub max_unproven_handshakes: u32,
    /// What responses over TLS say of HTTP/3 on the same port.
    pub alt_svc: AltSvc,
}

/// What `Alt-Svc` says.
#[derive(Debug, Clone, Copy)]
pub struct AltSvc {
    /// How long clients may remember it; zero says nothing.
    pub max_age: Duration,
    /// The port where clients reach the listener; none is the listener's own.
    pub port: Option<u16>,
}

impl Default for Http3Options {
    fn default() -> Self {
        Self {
            max_concurrent_streams: 128,
            max_header_list_size: 64 * 1024,
            connection_header_list_size: 256 * 1024,
            body_preread_size: 64 * 1024,
            connection_window_size: 1024 * 1024,
            max_resets: 256,
            idle_timeout: Duration::from_secs(60),
            max_unproven_handshakes: 100,
            alt_svc: AltSvc { max_age: Duration::from_secs(24 * 60 * 60), port: None },
        }
    }
}
