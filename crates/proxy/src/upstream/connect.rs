//! Opening a connection to an endpoint.

use super::endpoint::{Endpoint, Speaks};
use super::health::Outcome;
use super::pool::UpstreamConnection;
use crate::answer::Failure;
use crate::worker::Worker;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use weir_net::connect;
use weir_net::io::Io;
use weir_net::resolve::{Addresses, ResolveError};
use weir_net::socket::Socket;
use weir_net::tls::HTTP1;

/// What is known of a connection that is being opened.
#[derive(Default)]
pub(crate) struct Trying {
    address: Cell<Option<SocketAddr>>,
    resolved: Cell<Option<Resolved>>,
}

/// How a name was looked up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resolved {
    pub(crate) took: Duration,
    /// Whether nobody had to be asked.
    pub(crate) is_cached: bool,
}

impl Trying {
    /// The address that is tried.
    pub(crate) fn get(&self) -> Option<SocketAddr> {
        self.address.get()
    }

    pub(crate) fn set(&self, address: Option<SocketAddr>) {
        self.address.set(address);
    }

    /// How its name was looked up, where it had one.
    pub(crate) fn resolved(&self) -> Option<Resolved> {
        self.resolved.get()
    }
}

/// Opens a connection over HTTP/1.1, name resolution and TLS handshake included.
pub(crate) async fn connect(
    worker: &Worker,
    endpoint: &Endpoint,
    server_name: Option<Rc<str>>,
    trying: &Trying,
) -> Result<Box<UpstreamConnection>, Failure> {
    let io = match worker.memory_upstream {
        Some(open) => Io::Memory(open()),
        None => {
            let socket = open_socket(worker, endpoint, trying).await?;
            // What may speak HTTP/2 is asked for HTTP/1.1 here.
            let only = (endpoint.speaks != Speaks::Http1).then_some(HTTP1);
            secured(endpoint, socket, server_name.as_deref(), only, trying).await?
        }
    };
    Ok(Box::new(UpstreamConnection::new(io, endpoint.id, server_name)))
}

/// Opens a byte stream, over TLS where the endpoint speaks it.
pub(super) async fn open(
    worker: &Worker,
    endpoint: &Endpoint,
    server_name: Option<&str>,
    trying: &Trying,
) -> Result<Io, Failure> {
    let socket = open_socket(worker, endpoint, trying).await?;
    secured(endpoint, socket, server_name, None, trying).await
}

/// Speaks TLS where the endpoint does, with one protocol to choose or with all that the endpoint may speak.
async fn secured(
    endpoint: &Endpoint,
    socket: Socket,
    server_name: Option<&str>,
    only: Option<&[u8]>,
    trying: &Trying,
) -> Result<Io, Failure> {
    match &endpoint.tls {
        Some(config) => {
            let secured = secure(socket, config, endpoint, server_name, only).await;
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
    only: Option<&[u8]>,
) -> Result<Io, Failure> {
    let name = server_name.unwrap_or(&endpoint.host);
    let connected = connect::tls(socket, config.clone(), name, only).await;
    connected.map(|tls| Io::TlsClient(Box::new(tls))).map_err(Failure::Connect)
}

/// Connects without TLS.
pub(crate) async fn open_socket(
    worker: &Worker,
    endpoint: &Endpoint,
    trying: &Trying,
) -> Result<Socket, Failure> {
    match &endpoint.unix {
        Some(path) => connect::unix(path).await.map(Socket::Unix).map_err(Failure::Connect),
        None => open_tcp(worker, endpoint, trying).await.map(Socket::Tcp),
    }
}

/// Tries the endpoint's healthy addresses in turn; the first that answers wins.
async fn open_tcp(worker: &Worker, endpoint: &Endpoint, trying: &Trying) -> Result<TcpStream, Failure> {
    let attempt = async |address| {
        trying.set(Some(address));
        connect::tcp(address).await.inspect_err(|_| endpoint.met(Some(address), Outcome::TcpFailure))
    };
    if let Some(ip) = endpoint.ip {
        return attempt(SocketAddr::new(ip, endpoint.port)).await.map_err(Failure::Connect);
    }
    let resolved = resolve(worker, &endpoint.host, trying).await;
    let addresses = resolved.map_err(|error| Failure::NameResolution(error.to_string()))?;
    let sockets = addresses.sockets(endpoint.port, worker.random() as usize);
    let opened = connect::first(sockets.filter(|address| endpoint.admits(Some(*address))), attempt).await;
    let none = || Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address that may be asked"));
    opened.unwrap_or_else(none).map_err(Failure::Connect)
}

async fn resolve(worker: &Worker, host: &str, trying: &Trying) -> Result<Arc<Addresses>, ResolveError> {
    let (start, mut is_cached) = (Instant::now(), true);
    let mut resolving = pin!(worker.node.resolver.resolve(host));
    let resolved = poll_fn(|cx| {
        let polled = resolving.as_mut().poll(cx);
        is_cached &= polled.is_ready();
        polled
    });
    let resolved = resolved.await;
    trying.resolved.set(Some(Resolved { took: start.elapsed(), is_cached }));
    resolved
}
