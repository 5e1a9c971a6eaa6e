//! The HTTP/2 connection pool: many requests of one worker share a connection to an upstream.

mod connection;
mod fields;
mod stream;

pub use stream::Http2Stream;

use super::connect::ConnectAttempt;
use super::endpoint::{Endpoint, FIRST_DYNAMIC, UpstreamProtocol};
use super::error::UpstreamError;
use super::health::Outcome;
use super::pool::UpstreamConnection;
use super::pools::Pools;
use connection::{Connection, StreamSlot};
use foldhash::fast::RandomState;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use weir_net::io::Io;
use weir_net::tls::HTTP2;

/// How many endpoints are remembered to prefer HTTP/1.1 before those that requests have chosen are forgotten.
const MAX_REMEMBERED: usize = 1024;

/// How connections to upstreams are shared over HTTP/2.
#[derive(Debug, Clone)]
pub struct Http2UpstreamOptions {
    /// Requests that one connection carries at a time.
    pub max_concurrent_streams: u32,
    /// Connections of one worker to one endpoint, for one server name; further requests wait until one has room.
    pub max_connections: usize,
    /// How often a connection with requests in flight is pinged; zero disables pings.
    pub ping_interval: Duration,
}

impl Default for Http2UpstreamOptions {
    fn default() -> Self {
        Self { max_concurrent_streams: 100, max_connections: 16, ping_interval: Duration::from_secs(30) }
    }
}

/// What a request is sent on.
pub enum Opened {
    /// A connection of its own.
    Http1(Box<UpstreamConnection>),
    /// A stream of a shared connection.
    Http2(Box<Http2Stream>),
}

/// The connections of one worker.
#[derive(Default)]
pub struct Http2Pool {
    by_endpoint: RefCell<HashMap<u32, ByServerName, RandomState>>,
    /// Endpoints that were offered HTTP/2 and chose HTTP/1.1.
    chose_http1: RefCell<HashSet<u32>>,
}

/// The connections to one endpoint, by the server name that they were made for: where clients choose the names, those
/// for one take no room from those for another.
type ByServerName = HashMap<Rc<str>, Rc<SharedConnections>>;

/// The connections to one endpoint for one server name.
#[derive(Default)]
struct SharedConnections {
    connections: RefCell<Vec<Rc<Connection>>>,
    opening: Cell<bool>,
    waiting: Rc<Waiting>,
}

/// The requests that wait for a connection, or for room on one.
#[derive(Default)]
struct Waiting {
    count: Cell<usize>,
    /// Notified when a connection was opened, has room again, or takes no more.
    changed: Notify,
}

impl Waiting {
    fn is_any(&self) -> bool {
        self.count.get() > 0
    }

    async fn change(&self) {
        let _counted = Waiter::begin(self);
        self.changed.notified().await;
    }
}

/// Counts one of them, as long as it waits.
struct Waiter<'w>(&'w Waiting);

impl<'w> Waiter<'w> {
    fn begin(waiting: &'w Waiting) -> Self {
        waiting.count.set(waiting.count.get() + 1);
        Self(waiting)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
    }
}

impl Http2Pool {
    /// Whether the endpoint is known to prefer HTTP/1.1.
    pub fn chose_http1(&self, endpoint: &Endpoint) -> bool {
        endpoint.protocol == UpstreamProtocol::Either && self.chose_http1.borrow().contains(&endpoint.id)
    }

    /// The connections for a server name. Of idle ones no more are kept than of idle connections.
    fn shared(&self, endpoint: &Endpoint, server_name: Option<&str>, most: usize) -> Rc<SharedConnections> {
        let mut by_endpoint = self.by_endpoint.borrow_mut();
        let by_endpoint = by_endpoint.entry(endpoint.id).or_default();
        let name = server_name.unwrap_or_default();
        if let Some(shared) = by_endpoint.get(name) {
            return shared.clone();
        }
        if by_endpoint.len() >= most {
            by_endpoint.retain(|_, shared| shared.is_used());
        }
        by_endpoint.entry(name.into()).or_default().clone()
    }

    /// Closes connections that were idle for too long, and removes closed ones.
    pub fn sweep(&self, now: Instant, idle_timeout: Duration) {
        let mut by_endpoint = self.by_endpoint.borrow_mut();
        by_endpoint.retain(|_, by_endpoint| {
            by_endpoint.retain(|_, shared| {
                let is_over = |connection: &Rc<Connection>| connection.is_over(now, idle_timeout);
                shared.connections.borrow_mut().retain(|connection| !is_over(connection));
                !shared.connections.borrow().is_empty() || shared.is_used()
            });
            !by_endpoint.is_empty()
        });
        let mut chose_http1 = self.chose_http1.borrow_mut();
        if chose_http1.len() > MAX_REMEMBERED {
            // Of endpoints that requests choose there may be any number.
            chose_http1.retain(|id| *id < FIRST_DYNAMIC);
        }
    }
}

impl Pools {
    /// A stream to the endpoint on a connection over HTTP/2 that has room, as most requests find one.
    pub fn ready_stream(&self, endpoint: &Endpoint, server_name: Option<&str>) -> Option<Box<Http2Stream>> {
        if endpoint.is_down() {
            return None;
        }
        let by_endpoint = self.http2.by_endpoint.borrow();
        let shared = by_endpoint.get(&endpoint.id)?.get(server_name.unwrap_or_default())?;
        shared.slot(self, endpoint).map(|slot| Box::new(Http2Stream::new(slot)))
    }

    /// A stream to the endpoint, on a connection that has room or on a new one; or a connection of its own, where the
    /// endpoint chooses HTTP/1.1.
    pub async fn open_stream(
        &self,
        endpoint: &Endpoint,
        server_name: Option<Rc<str>>,
        attempt: &ConnectAttempt,
    ) -> Result<Opened, UpstreamError> {
        let pool = &self.http2;
        let shared = pool.shared(endpoint, server_name.as_deref(), self.keep_alive.pool_size);
        loop {
            if endpoint.is_down() {
                // Found out while this waited, as others may have.
                shared.waiting.changed.notify_one();
                return Err(UpstreamError::NoTarget);
            }
            if let Some(slot) = shared.slot(self, endpoint) {
                return Ok(Opened::Http2(Box::new(Http2Stream::new(slot))));
            }
            let is_http1 = pool.chose_http1(endpoint);
            if !is_http1 && (shared.opening.get() || shared.is_full(self, endpoint)) {
                shared.waiting.change().await;
                continue;
            }
            let _opening = Opening::begin(&shared);
            return Ok(match begin(self, endpoint, &shared, (server_name.as_deref(), attempt)).await? {
                Begun::Http1(io) => {
                    pool.chose_http1.borrow_mut().insert(endpoint.id);
                    Opened::Http1(Box::new(UpstreamConnection::new(io, endpoint.id, server_name)))
                }
                Begun::Http2(connection) => {
                    pool.chose_http1.borrow_mut().remove(&endpoint.id);
                    shared.connections.borrow_mut().push(connection.clone());
                    // Takes the slot at once, whatever the target's health is now, so that there is no second attempt.
                    Opened::Http2(Box::new(Http2Stream::new(StreamSlot::take(connection, shared.clone()))))
                }
            });
        }
    }
}

/// A new connection.
enum Begun {
    Http1(Io),
    Http2(Rc<Connection>),
}

/// Connects, and performs the HTTP/2 handshake unless the endpoint chooses HTTP/1.1.
async fn begin(
    pools: &Pools,
    endpoint: &Endpoint,
    shared: &SharedConnections,
    (server_name, attempt): (Option<&str>, &ConnectAttempt),
) -> Result<Begun, UpstreamError> {
    let io = pools.open(endpoint, server_name, None, attempt).await?;
    let failed = |_: &UpstreamError| endpoint.record_outcome(attempt.get(), Outcome::TcpFailure);
    if !chose_http2(endpoint, &io).inspect_err(failed)? {
        return Ok(Begun::Http1(io));
    }
    let connection = Connection::begin(io, &pools.sharing, &shared.waiting).await.inspect_err(failed)?;
    attempt.set(None);
    Ok(Begun::Http2(connection))
}

/// Whether the endpoint speaks HTTP/2 on this byte stream, or HTTP/1.1 where it may.
fn chose_http2(endpoint: &Endpoint, io: &Io) -> Result<bool, UpstreamError> {
    let chosen = endpoint.tls.is_none() || io.alpn() == Some(HTTP2);
    if chosen || endpoint.protocol == UpstreamProtocol::Either {
        return Ok(chosen);
    }
    let what = "the upstream does not agree on HTTP/2 in the TLS handshake";
    Err(UpstreamError::Connect(io::Error::new(io::ErrorKind::Unsupported, what)))
}

impl Connection {
    /// Whether its address is one that the endpoint leads to now, and that may be asked.
    fn leads_there(&self, endpoint: &Endpoint, pools: &Pools) -> bool {
        self.is_current(endpoint, pools) && endpoint.admits(self.address)
    }

    fn is_current(&self, endpoint: &Endpoint, pools: &Pools) -> bool {
        self.address_check.passes((endpoint, self.address), &pools.resolver)
    }
}

impl SharedConnections {
    /// Whether a request is on one of its connections, or waits for one.
    fn is_used(self: &Rc<Self>) -> bool {
        Rc::strong_count(self) > 1
    }

    /// A slot on a connection to an address that may be asked, that has room.
    fn slot(self: &Rc<Self>, pools: &Pools, endpoint: &Endpoint) -> Option<StreamSlot> {
        let mut connections = self.connections.borrow_mut();
        // One that leads elsewhere ends with its last request.
        connections.retain(|connection| {
            connection.is_open() && (connection.is_used() || connection.is_current(endpoint, pools))
        });
        let has_room = |connection: &&Rc<Connection>| {
            connection.leads_there(endpoint, pools) && connection.has_room(&pools.sharing, &pools.keep_alive)
        };
        let found = connections.iter().find(has_room)?.clone();
        Some(StreamSlot::take(found, self.clone()))
    }

    fn is_full(&self, pools: &Pools, endpoint: &Endpoint) -> bool {
        let keep_alive = &pools.keep_alive;
        let taken = |connection: &&Rc<Connection>| {
            connection.is_open() && !connection.is_worn(keep_alive) && connection.leads_there(endpoint, pools)
        };
        self.connections.borrow().iter().filter(taken).count() >= pools.sharing.max_connections
    }
}

/// Others wait meanwhile, so that a burst of requests opens one connection.
struct Opening<'s>(&'s SharedConnections);

impl<'s> Opening<'s> {
    fn begin(shared: &'s SharedConnections) -> Self {
        shared.opening.set(true);
        Self(shared)
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.opening.set(false);
        self.0.waiting.changed.notify_waiters();
    }
}
