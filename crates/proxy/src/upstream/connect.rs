//! Opening a connection to an endpoint.

use super::endpoint::Endpoint;
use super::health::Outcome;
use super::pool::UpstreamConnection;
use crate::answer::Failure;
use crate::io::Io;
use crate::socket::Socket;
use crate::wire::Wire;
use crate::worker::Worker;
use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// Connects within the timeout, name resolution and TLS handshake included.
pub(crate) async fn connect(
    worker: &Worker,
    endpoint: &Endpoint,
    server_name: Option<Rc<str>>,
    timeout: Duration,
) -> Result<Box<UpstreamConnection>, Failure> {
    let io = match worker.memory_upstream {
        Some(open) => Io::Memory(open()),
        None => {
            let trying = Cell::new(None);
            let opening = open(worker, endpoint, server_name.as_deref(), &trying);
            match tokio::time::timeout(timeout, opening).await {
                Ok(opened) => opened?,
                Err(_) => {
                    endpoint.met(trying.get(), Outcome::Timeout);
                    return Err(Failure::ConnectTimeout);
                }
            }
        }
    };
    let address = io.peer();
    Ok(Box::new(UpstreamConnection {
        wire: Wire::new(io),
        endpoint: endpoint.id,
        address,
        server_name,
        requests: 0,
        lease: None,
    }))
}

async fn open(
    worker: &Worker,
    endpoint: &Endpoint,
    server_name: Option<&str>,
    trying: &Cell<Option<SocketAddr>>,
) -> Result<Io, Failure> {
    let socket = open_socket(worker, endpoint, trying).await?;
    match &endpoint.tls {
        Some(config) => {
            let secured = secure(socket, config, endpoint, server_name).await;
            secured.inspect_err(|_| endpoint.met(trying.get(), Outcome::TcpFailure))
        }
        None => Ok(Io::Plain(socket)),
    }
}

/// Speaks TLS over an open connection.
pub(crate) async fn secure(
    socket: Socket,
    config: &Arc<rustls::ClientConfig>,
    endpoint: &Endpoint,
    server_name: Option<&str>,
) -> Result<Io, Failure> {
    let name = server_name.unwrap_or(&endpoint.host).to_owned();
    let name = ServerName::try_from(name).map_err(|error| Failure::Connect(io::Error::other(error)))?;
    let tls = TlsConnector::from(config.clone()).connect(name, socket).await.map_err(Failure::Connect)?;
    Ok(Io::TlsClient(Box::new(tls)))
}

/// Connects without TLS.
pub(crate) async fn open_socket(
    worker: &Worker,
    endpoint: &Endpoint,
    trying: &Cell<Option<SocketAddr>>,
) -> Result<Socket, Failure> {
    match &endpoint.unix {
        Some(path) => UnixStream::connect(path).await.map(Socket::Unix).map_err(Failure::Connect),
        None => open_tcp(worker, endpoint, trying).await.map(Socket::Tcp),
    }
}

/// Tries the endpoint's healthy addresses in turn; the first that answers wins.
async fn open_tcp(
    worker: &Worker,
    endpoint: &Endpoint,
    trying: &Cell<Option<SocketAddr>>,
) -> Result<TcpStream, Failure> {
    let attempt = async |address| {
        trying.set(Some(address));
        open_address(address).await.inspect_err(|_| endpoint.met(Some(address), Outcome::TcpFailure))
    };
    if let Some(ip) = endpoint.ip {
        return attempt(SocketAddr::new(ip, endpoint.port)).await.map_err(Failure::Connect);
    }
    let resolved = worker.node.resolver.resolve(&endpoint.host).await;
    let addresses = resolved.map_err(|error| Failure::NameResolution(error.to_string()))?;
    let entries = &addresses.entries;
    let first = worker.random() as usize;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for turn in 0..entries.len() {
        let entry = &entries[(first.wrapping_add(turn)) % entries.len()];
        let address = SocketAddr::new(entry.ip, entry.port.unwrap_or(endpoint.port));
        if !endpoint.admits(Some(address)) {
            continue;
        }
        match attempt(address).await {
            Ok(tcp) => return Ok(tcp),
            Err(error) => last = error,
        }
    }
    Err(Failure::Connect(last))
}

async fn open_address(address: SocketAddr) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}
