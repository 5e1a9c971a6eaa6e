//! Opens connections. This is the only module that connects sockets and starts client TLS handshakes.

use crate::io::Duplex;
use rustix::io::Errno;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A network in memory, in the place of the system's: for benchmarks and simulations. It carries no TLS.
pub trait MemoryNetwork {
    /// Connects to an address.
    fn connect(&self, address: SocketAddr) -> MemoryConnecting;
}

/// A connection in memory that is being opened.
pub type MemoryConnecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Duplex>>>>>;

/// Connects to an address. Sets `TCP_NODELAY`, because messages are written in one piece.
pub async fn tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

/// Whether a connection could not be opened because this process or its machine is short of something, such as descriptors: that says
/// nothing about the other side.
pub fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    error.raw_os_error().is_some_and(|code| shortages.iter().any(|shortage| shortage.raw_os_error() == code))
}

/// Connects to a Unix socket.
pub async fn unix(path: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(path).await
}

/// Tries addresses one after another: the first connection, or the last error. None where there is no address to try.
pub async fn first<S>(
    addresses: impl IntoIterator<Item = SocketAddr>,
    open: impl AsyncFn(SocketAddr) -> io::Result<S>,
) -> Option<io::Result<S>> {
    let mut outcome = None;
    for address in addresses {
        let opened = open(address).await;
        let is_open = opened.is_ok();
        outcome = Some(opened);
        if is_open {
            break;
        }
    }
    outcome
}

/// Does a TLS handshake with the server of this name, offering the protocols (ALPN) that the configuration offers, or one
/// of them alone.
pub async fn tls<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin>(
    stream: S,
    config: Arc<ClientConfig>,
    name: &str,
    only: Option<&[u8]>,
) -> io::Result<TlsStream<S>> {
    let server = ServerName::try_from(name.to_owned()).map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{name} is no host name: TLS cannot be spoken"))
    })?;
    let connector = TlsConnector::from(config);
    match only {
        None => connector.connect(server, stream).await,
        Some(protocol) => connector.with_alpn(vec![protocol.to_vec()]).connect(server, stream).await,
    }
}
