//! Opens a connection to an endpoint: resolves its name, connects, and performs the TLS handshake.

use super::endpoint::{Endpoint, UpstreamProtocol};
use super::error::UpstreamError;
use super::health::Outcome;
use super::pool::UpstreamConnection;
use super::pools::Pools;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use weir_net::connect;
use weir_net::io::Io;
use weir_net::resolve::{Addresses, ResolveError, Resolver};
use weir_net::socket::Socket;
use weir_net::tls::HTTP1;

/// How long a connection waits for what this process is short of. `connect_timeout` may end it earlier.
const SHORTAGE_WAIT: Duration = Duration::from_secs(1);
/// The longest time between two tries meanwhile; short, so that those who have waited for longer are not behind all others.
const MAX_SHORTAGE_PAUSE: Duration = Duration::from_millis(16);

/// The state of a connection that is being opened.
pub struct ConnectAttempt {
    /// Which of a name's addresses is tried first.
    first: usize,
    address: Cell<Option<SocketAddr>>,
    srv_name: RefCell<Option<Arc<str>>>,
    resolved: Cell<Option<Resolved>>,
}

/// The result of a name lookup.
#[derive(Debug, Clone, Copy)]
pub struct Resolved {
    /// How long it took.
    pub took: Duration,
    /// Whether the cache held the answer.
    pub is_cached: bool,
}

impl ConnectAttempt {
    /// A new attempt. A random number spreads connections over the addresses of a name.
    pub fn new(random: u64) -> Self {
        Self {
            first: random as usize,
            address: Cell::default(),
            srv_name: RefCell::default(),
            resolved: Cell::default(),
        }
    }

    /// The address that is tried.
    pub fn get(&self) -> Option<SocketAddr> {
        self.address.get()
    }

    /// Sets the address that is tried.
    pub fn set(&self, address: Option<SocketAddr>) {
        self.address.set(address);
    }

    /// How its name was looked up, where it had one.
    pub fn resolved(&self) -> Option<Resolved> {
        self.resolved.get()
    }
}

impl Pools {
    /// Opens a connection over HTTP/1.1, name resolution and TLS handshake included.
    pub async fn connect(
        &self,
        endpoint: &Endpoint,
        server_name: Option<Rc<str>>,
        attempt: &ConnectAttempt,
    ) -> Result<Box<UpstreamConnection>, UpstreamError> {
        // Offers HTTP/1.1 alone, even if the endpoint may speak HTTP/2.
        let only = (endpoint.protocol != UpstreamProtocol::Http1).then_some(HTTP1);
        let io = self.open(endpoint, server_name.as_deref(), only, attempt).await?;
        let mut connection = UpstreamConnection::new(io, endpoint.id, server_name);
        // A stream in memory does not know its peer.
        connection.address = connection.address.or(attempt.get());
        Ok(Box::new(connection))
    }

    /// Opens a byte stream, over TLS where the endpoint speaks it, offering one protocol or all that it may speak.
    pub(super) async fn open(
        &self,
        endpoint: &Endpoint,
        server_name: Option<&str>,
        only: Option<&[u8]>,
        attempt: &ConnectAttempt,
    ) -> Result<Io, UpstreamError> {
        if let Some(network) = &self.memory {
            let opening = open_first(&self.resolver, endpoint, attempt, |address| network.connect(address));
            return opening.await.map(Io::Memory);
        }
        let socket = self.open_socket(endpoint, attempt).await?;
        secured(endpoint, socket, server_name, only, attempt).await
    }

    /// Connects without TLS.
    pub async fn open_socket(
        &self,
        endpoint: &Endpoint,
        attempt: &ConnectAttempt,
    ) -> Result<Socket, UpstreamError> {
        match &endpoint.unix {
            Some(path) => connect::unix(path).await.map(Socket::Unix).map_err(UpstreamError::Connect),
            None => open_first(&self.resolver, endpoint, attempt, connect::tcp).await.map(Socket::Tcp),
        }
    }
}

/// Performs the endpoint's TLS handshake, if it uses TLS, and offers one protocol or all that it may speak.
async fn secured(
    endpoint: &Endpoint,
    socket: Socket,
    server_name: Option<&str>,
    only: Option<&[u8]>,
    attempt: &ConnectAttempt,
) -> Result<Io, UpstreamError> {
    match &endpoint.tls {
        Some(config) => {
            // A name that the client or a plugin has chosen stays.
            let is_own = server_name.is_none_or(|name| name == &*endpoint.host);
            let srv_name = attempt.srv_name.borrow().clone().filter(|_| is_own);
            let server_name = srv_name.as_deref().or(server_name);
            let secured = secure(socket, config, endpoint, server_name, only).await;
            secured.inspect_err(|_| endpoint.record_outcome(attempt.get(), Outcome::TcpFailure))
        }
        None => Ok(Io::Plain(socket)),
    }
}

/// Performs a TLS handshake on an open connection.
pub async fn secure(
    socket: Socket,
    config: &Arc<rustls::ClientConfig>,
    endpoint: &Endpoint,
    server_name: Option<&str>,
    only: Option<&[u8]>,
) -> Result<Io, UpstreamError> {
    let name = server_name.unwrap_or(&endpoint.host);
    let connected = connect::tls(socket, config.clone(), name, only).await;
    connected.map(|tls| Io::TlsClient(Box::new(tls))).map_err(UpstreamError::Connect)
}

/// Connects to an address. Where this process is short of what that takes, such as a descriptor, it is waited for, because other
/// connections give theirs back all the time.
async fn connect_when_possible<S>(
    attempt: &ConnectAttempt,
    address: SocketAddr,
    connect: &impl AsyncFn(SocketAddr) -> io::Result<S>,
) -> io::Result<S> {
    let (begun, mut pause) = (Instant::now(), Duration::from_millis(1));
    loop {
        attempt.set(Some(address));
        let connected = connect(address).await;
        let is_short = connected.as_ref().is_err_and(connect::is_shortage);
        if !is_short || begun.elapsed() >= SHORTAGE_WAIT {
            return connected;
        }
        // A timeout meanwhile says nothing of the target.
        attempt.set(None);
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(MAX_SHORTAGE_PAUSE);
    }
}

/// Tries the endpoint's healthy addresses in turn; the first that answers wins.
async fn open_first<S>(
    resolver: &Resolver,
    endpoint: &Endpoint,
    attempt: &ConnectAttempt,
    connect: impl AsyncFn(SocketAddr) -> io::Result<S>,
) -> Result<S, UpstreamError> {
    let open = async |address| {
        let connected = connect_when_possible(attempt, address, &connect).await;
        if connected.as_ref().is_err_and(|error| !connect::is_shortage(error)) {
            endpoint.record_outcome(Some(address), Outcome::TcpFailure);
        }
        connected
    };
    if let Some(ip) = endpoint.ip {
        return open(SocketAddr::new(ip, endpoint.port)).await.map_err(UpstreamError::Connect);
    }
    let resolved = resolve(resolver, &endpoint.host, attempt).await;
    let addresses = resolved.map_err(UpstreamError::NameResolution)?;
    endpoint.learn(&addresses);
    let sockets = addresses.sockets(endpoint.port, attempt.first);
    let opened = connect::first(sockets.filter(|address| endpoint.admits(Some(*address))), open).await;
    let none = || Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address that may be asked"));
    if endpoint.use_srv_name {
        let named = attempt.get().and_then(|address| addresses.srv_name(address).cloned());
        attempt.srv_name.replace(named);
    }
    opened.unwrap_or_else(none).map_err(UpstreamError::Connect)
}

async fn resolve(
    resolver: &Resolver,
    host: &str,
    attempt: &ConnectAttempt,
) -> Result<Arc<Addresses>, ResolveError> {
    let (start, mut is_cached) = (Instant::now(), true);
    let mut resolving = pin!(resolver.resolve(host));
    let resolved = poll_fn(|cx| {
        let polled = resolving.as_mut().poll(cx);
        is_cached &= polled.is_ready();
        polled
    });
    let resolved = resolved.await;
    attempt.resolved.set(Some(Resolved { took: start.elapsed(), is_cached }));
    resolved
}
