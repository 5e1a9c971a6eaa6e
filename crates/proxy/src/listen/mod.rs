//! Where clients connect: addresses, the sockets that are listened on, and what an accepted connection is.

mod bind;
mod complaint;
mod network;
mod table;
mod unix_file;

pub use bind::{Bound, Listener};
pub(crate) use complaint::Complaint;
pub use network::Network;
pub(crate) use table::setting_of;
pub use table::{NamedSocket, SocketTable};
pub use unix_file::UnixFile;

use crate::limits::AddressPermit;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
pub use weir_net::socket::Socket;

/// A place to listen on or to connect to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// An IP address and a port; port 0 lets the system choose.
    Ip(SocketAddr),
    /// The file of a Unix socket.
    Unix(Arc<Path>),
}

impl Address {
    /// The IP address and port, unless it is a Unix socket.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Address::Ip(address) => Some(*address),
            Address::Unix(_) => None,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Address::Ip(address)
    }
}

impl FromStr for Address {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.strip_prefix("unix:") {
            Some(path) if path.starts_with('/') => Ok(Address::Unix(Path::new(path).into())),
            Some(_) => Err(()),
            None => text.parse().map(Address::Ip).map_err(drop),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Ip(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl serde::Serialize for Address {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What stands for the other end of a Unix socket, which has no address: this machine.
pub const LOCAL_PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// What a listener's clients bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// HTTP requests.
    Http,
    /// HTTP requests over QUIC.
    Quic,
    /// Connections that are passed on as they are.
    Stream,
    /// Datagrams.
    Datagram,
}

impl Traffic {
    /// Whether it is HTTP requests.
    pub fn is_http(self) -> bool {
        matches!(self, Traffic::Http | Traffic::Quic)
    }
}

/// One address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The address.
    pub address: Address,
    /// What clients bring there.
    pub traffic: Traffic,
    /// Whether clients speak TLS there.
    pub tls: bool,
    /// Whether they may speak HTTP/2: over TLS where they agree on it, otherwise by beginning with it.
    pub http2: bool,
    /// Whether each connection begins with a header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// How many connections may wait to be accepted.
    pub backlog: u32,
    /// Who may connect to a Unix socket, as of `chmod`.
    pub mode: u32,
}

impl Listen {
    /// An address where requests come in clear.
    pub fn http(address: impl Into<Address>) -> Self {
        let address = address.into();
        Self {
            address,
            traffic: Traffic::Http,
            tls: false,
            http2: false,
            proxy_protocol: false,
            backlog: 16_384,
            mode: 0o666,
        }
    }
}

/// A client's connection, not yet part of a worker's runtime.
#[allow(missing_docs)]
pub(crate) enum Incoming {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A client's connection, as it was accepted.
pub(crate) struct Accepted {
    pub(crate) incoming: Incoming,
    /// The other end.
    pub(crate) peer: SocketAddr,
    /// What it connected to. A Unix socket's port is that of its scheme.
    pub(crate) local: SocketAddr,
    pub(crate) listener: Kind,
    /// Counts it among those of its client's address, if these are limited.
    pub(crate) permit: Option<AddressPermit>,
}

/// What is expected of a listener's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) traffic: Traffic,
    pub(crate) tls: bool,
    pub(crate) http2: bool,
    pub(crate) proxy_protocol: bool,
    pub(crate) unix: bool,
}

impl Kind {
    pub(crate) fn of(listen: &Listen) -> Self {
        let Listen { address, traffic, tls, http2, proxy_protocol, .. } = listen;
        let unix = matches!(address, Address::Unix(_));
        Self { traffic: *traffic, tls: *tls, http2: *http2, proxy_protocol: *proxy_protocol, unix }
    }

    /// What stands for the local address of a Unix socket.
    pub(crate) fn unix_local(self) -> SocketAddr {
        SocketAddr::new(LOCAL_PEER.ip(), if self.tls { 443 } else { 80 })
    }
}

impl Incoming {
    /// The socket, on the runtime that this is called on.
    pub(crate) fn socket(self) -> io::Result<Socket> {
        match self {
            Incoming::Tcp(tcp) => tokio::net::TcpStream::from_std(tcp).map(Socket::Tcp),
            Incoming::Unix(unix) => tokio::net::UnixStream::from_std(unix).map(Socket::Unix),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in ["127.0.0.1:8000", "[::1]:0", "unix:/run/weir/a.sock"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["unix:", "unix:relative", "/run/a.sock", "localhost:80", ""] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
