//! Connections to upstreams that speak HTTP/2, each shared by many requests of one worker.

mod connection;
mod stream;

pub(crate) use stream::Http2Stream;

use super::connect::{self, Trying};
use super::endpoint::{Endpoint, Speaks};
use super::health::Outcome;
use super::pool::UpstreamConnection;
use crate::answer::Failure;
use crate::worker::Worker;
use connection::{Connection, Place};
use foldhash::fast::RandomState;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use weir_net::io::Io;
use weir_net::tls::HTTP2;

/// How connections to upstreams are shared over HTTP/2.
#[derive(Debug, Clone)]
pub struct SharedConnections {
    /// Requests that one connection carries at a time.
    pub max_concurrent_streams: u32,
    /// Connections of one worker to one endpoint, for one server name; further requests wait until one has room.
    pub max_connections: usize,
    /// How often an upstream with requests under way is asked whether it is still there; zero never.
    pub ping_interval: Duration,
}

impl Default for SharedConnections {
    fn default() -> Self {
        Self { max_concurrent_streams: 100, max_connections: 16, ping_interval: Duration::from_secs(30) }
    }
}

/// What a request is sent on.
pub(crate) enum Opened {
    Http1(Box<UpstreamConnection>),
    Http2(Box<Http2Stream>),
}

/// The connections of one worker.
#[derive(Default)]
pub(crate) struct Http2Pool {
    shelves: RefCell<HashMap<u32, Shelves, RandomState>>,
    /// Endpoints that were offered HTTP/2 and chose HTTP/1.1.
    chose_http1: RefCell<HashSet<u32>>,
}

/// The connections to one endpoint, by the server name that they were made for: where clients choose the names, those
/// for one take no room from those for another.
type Shelves = HashMap<Rc<str>, Rc<Shelf>>;

/// The connections to one endpoint for one server name.
#[derive(Default)]
struct Shelf {
    connections: RefCell<Vec<Rc<Connection>>>,
    opening: Cell<bool>,
    /// Told when a connection was opened, or has room again.
    changed: Notify,
}

impl Http2Pool {
    /// Whether the endpoint is known to prefer HTTP/1.1.
    pub(crate) fn chose_http1(&self, endpoint: &Endpoint) -> bool {
        endpoint.speaks == Speaks::Either && self.chose_http1.borrow().contains(&endpoint.id)
    }

    /// A stream to the endpoint on a connection that has room, as most requests find one.
    pub(crate) fn ready(
        &self,
        worker: &Worker,
        endpoint: &Endpoint,
        server_name: Option<&str>,
    ) -> Option<Box<Http2Stream>> {
        if endpoint.is_down() {
            return None;
        }
        let shelves = self.shelves.borrow();
        let shelf = shelves.get(&endpoint.id)?.get(server_name.unwrap_or_default())?;
        shelf.place(worker, endpoint).map(|place| Box::new(Http2Stream::new(place)))
    }

    /// A stream to the endpoint, on a connection that has room or on a new one; or a connection of its own, where the
    /// endpoint chooses HTTP/1.1.
    pub(crate) async fn open(
        &self,
        worker: &Worker,
        endpoint: &Endpoint,
        server_name: Option<Rc<str>>,
        trying: &Trying,
    ) -> Result<Opened, Failure> {
        let shelf = self.shelf(endpoint, server_name.as_deref(), worker.options.upstream_keepalive.pool_size);
        loop {
            if endpoint.is_down() {
                // Found out while this waited, as others may have.
                shelf.changed.notify_one();
                return Err(Failure::NoPeer);
            }
            if let Some(place) = shelf.place(worker, endpoint) {
                return Ok(Opened::Http2(Box::new(Http2Stream::new(place))));
            }
            let is_http1 = self.chose_http1(endpoint);
            if !is_http1 && (shelf.opening.get() || shelf.is_full(worker, endpoint)) {
                shelf.changed.notified().await;
                continue;
            }
            let _opening = Opening::begin(&shelf);
            return Ok(match begin(worker, endpoint, server_name.as_deref(), trying).await? {
                Begun::Http1(io) => {
                    self.chose_http1.borrow_mut().insert(endpoint.id);
                    Opened::Http1(Box::new(UpstreamConnection::new(io, endpoint.id, server_name)))
                }
                Begun::Http2(connection) => {
                    self.chose_http1.borrow_mut().remove(&endpoint.id);
                    shelf.connections.borrow_mut().push(connection.clone());
                    // Taken here and now: whatever has become of the target meanwhile, there is no second attempt.
                    Opened::Http2(Box::new(Http2Stream::new(Place::take(connection, shelf.clone()))))
                }
            });
        }
    }

    /// The shelf for a server name. Of idle ones no more are kept than of idle connections.
    fn shelf(&self, endpoint: &Endpoint, server_name: Option<&str>, most: usize) -> Rc<Shelf> {
        let mut shelves = self.shelves.borrow_mut();
        let shelves = shelves.entry(endpoint.id).or_default();
        let name = server_name.unwrap_or_default();
        if let Some(shelf) = shelves.get(name) {
            return shelf.clone();
        }
        if shelves.len() >= most {
            shelves.retain(|_, shelf| shelf.is_used());
        }
        shelves.entry(name.into()).or_default().clone()
    }

    /// Closes what was idle for too long, and forgets what is closed.
    pub(crate) fn sweep(&self, now: Instant, idle_timeout: Duration) {
        self.shelves.borrow_mut().retain(|_, shelves| {
            shelves.retain(|_, shelf| {
                let is_over = |connection: &Rc<Connection>| connection.is_over(now, idle_timeout);
                shelf.connections.borrow_mut().retain(|connection| !is_over(connection));
                !shelf.connections.borrow().is_empty() || shelf.is_used()
            });
            !shelves.is_empty()
        });
    }
}

/// A new connection.
enum Begun {
    Http1(Io),
    Http2(Rc<Connection>),
}

/// Connects, and begins to speak HTTP/2 unless the endpoint chooses HTTP/1.1.
async fn begin(
    worker: &Worker,
    endpoint: &Endpoint,
    server_name: Option<&str>,
    trying: &Trying,
) -> Result<Begun, Failure> {
    let io = connect::open(worker, endpoint, server_name, trying).await?;
    let failed = |_: &Failure| endpoint.met(trying.get(), Outcome::TcpFailure);
    if !chose_http2(endpoint, &io).inspect_err(failed)? {
        return Ok(Begun::Http1(io));
    }
    let connection = Connection::begin(io, &worker.options.upstream_http2).await.inspect_err(failed)?;
    trying.set(None);
    Ok(Begun::Http2(connection))
}

/// Whether the endpoint speaks HTTP/2 on this byte stream, or HTTP/1.1 where it may.
fn chose_http2(endpoint: &Endpoint, io: &Io) -> Result<bool, Failure> {
    let chosen = endpoint.tls.is_none() || io.alpn() == Some(HTTP2);
    if chosen || endpoint.speaks == Speaks::Either {
        return Ok(chosen);
    }
    let what = "the upstream does not agree on HTTP/2 in the TLS handshake";
    Err(Failure::Connect(io::Error::new(io::ErrorKind::Unsupported, what)))
}

impl Shelf {
    /// Whether a request is on one of its connections, or waits for one: that holds the shelf.
    fn is_used(self: &Rc<Self>) -> bool {
        Rc::strong_count(self) > 1
    }

    /// A place on a connection to an address that may be asked, that has room.
    fn place(self: &Rc<Self>, worker: &Worker, endpoint: &Endpoint) -> Option<Place> {
        let options = &worker.options;
        let mut connections = self.connections.borrow_mut();
        connections.retain(|connection| connection.is_open());
        let has_room = |connection: &&Rc<Connection>| {
            endpoint.admits(connection.address)
                && connection.has_room(&options.upstream_http2, &options.upstream_keepalive)
        };
        let found = connections.iter().find(has_room)?.clone();
        Some(Place::take(found, self.clone()))
    }

    fn is_full(&self, worker: &Worker, endpoint: &Endpoint) -> bool {
        let keep_alive = &worker.options.upstream_keepalive;
        let taken = |connection: &&Rc<Connection>| {
            connection.is_open() && !connection.is_worn(keep_alive) && endpoint.admits(connection.address)
        };
        self.connections.borrow().iter().filter(taken).count()
            >= worker.options.upstream_http2.max_connections
    }
}

/// Others wait meanwhile, so that a burst of requests opens one connection.
struct Opening<'s>(&'s Shelf);

impl<'s> Opening<'s> {
    fn begin(shelf: &'s Shelf) -> Self {
        shelf.opening.set(true);
        Self(shelf)
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.opening.set(false);
        self.0.changed.notify_waiters();
    }
}
