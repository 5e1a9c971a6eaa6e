//! Opening a connection to an endpoint.

use super::endpoint::Endpoint;
use super::pool::UpstreamConnection;
use crate::answer::Failure;
use crate::io::Io;
use crate::worker::Worker;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpStream;
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
        None => match tokio::time::timeout(timeout, open(worker, endpoint, server_name.as_deref())).await {
            Ok(opened) => opened?,
            Err(_) => return Err(Failure::ConnectTimeout),
        },
    };
    Ok(Box::new(UpstreamConnection::new(io, endpoint.id, server_name)))
}

/// Opens a byte stream, over TLS where the endpoint speaks it.
pub(super) async fn open(
    worker: &Worker,
    endpoint: &Endpoint,
    server_name: Option<&str>,
) -> Result<Io, Failure> {
    let tcp = open_tcp(worker, endpoint).await?;
    let Some(config) = &endpoint.tls else { return Ok(Io::Tcp(tcp)) };
    let name = server_name.unwrap_or(&endpoint.host).to_owned();
    let name = ServerName::try_from(name).map_err(|error| Failure::Connect(io::Error::other(error)))?;
    let tls = TlsConnector::from(config.clone()).connect(name, tcp).await.map_err(Failure::Connect)?;
    Ok(Io::TlsClient(Box::new(tls)))
}

/// Tries the endpoint's addresses in turn; the first that answers wins.
async fn open_tcp(worker: &Worker, endpoint: &Endpoint) -> Result<TcpStream, Failure> {
    if let Some(ip) = endpoint.ip {
        return open_address(ip, endpoint.port).await.map_err(Failure::Connect);
    }
    let resolved = worker.node.resolver.resolve(&endpoint.host).await;
    let addresses = resolved.map_err(|error| Failure::NameResolution(error.to_string()))?;
    let entries = &addresses.entries;
    let first = worker.random() as usize;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for turn in 0..entries.len() {
        let entry = &entries[(first.wrapping_add(turn)) % entries.len()];
        match open_address(entry.ip, entry.port.unwrap_or(endpoint.port)).await {
            Ok(tcp) => return Ok(tcp),
            Err(error) => last = error,
        }
    }
    Err(Failure::Connect(last))
}

async fn open_address(ip: IpAddr, port: u16) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect(SocketAddr::new(ip, port)).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}
