//! Why a data plane could not start.

use crate::listen::{Address, Traffic};
use std::io;
use weir_net::tls::TlsError;

/// Why a data plane could not start.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be listened on.
    Listen(Address, Traffic, io::Error),
    /// A thread or a runtime cannot be made.
    System(io::Error),
    /// The TLS settings cannot be used.
    Tls(TlsError),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Listen(address, traffic, error) if error.kind() == io::ErrorKind::AddrInUse => {
                let setting = if traffic.is_http() { "proxy_listen" } else { "stream_listen" };
                write!(f, "{address} is in use: stop what listens there, or set another {setting}")
            }
            StartError::Listen(address, _, error) => write!(f, "cannot listen on {address}: {error}"),
            StartError::System(error) => write!(f, "cannot start: {error}"),
            StartError::Tls(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for StartError {}
