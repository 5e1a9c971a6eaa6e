//! The downstream side: clients' connections, and their requests over each version of HTTP.

pub(crate) mod connection;
pub(crate) mod handshake;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod http3;
pub(crate) mod multiplex;
pub mod proxy_protocol;
mod request_slot;
