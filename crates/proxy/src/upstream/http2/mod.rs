//! Connections to upstreams that speak HTTP/2, each shared by many requests of one worker.

mod connection;
mod stream;

pub(crate) use stream::Http2Stream;

use super::connect::{self, Trying};
use super::endpoint::{Endpoint, Speaks};
use super::health::Outcome;
use super::pool::UpstreamConnection;
use crate::answer::Failure;
use crate::io::Io;
use crate::tls::HTTP2;
use crate::worker::Worker;
use connection::{Connection, Place};
use foldhash::fast::RandomState;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How connections to upstreams are shared over HTTP/2.
#[derive(Debug, Clone)]
pub struct SharedConnections {
    /// Requests that one connection carries at a time.
    pub max_concurrent_streams: u32,
    /// Connections of one worker to one endpoint; further requests wait until one has room.
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

/// The connections of one worker, by endpoint.
#[derive(Default)]
pub(crate) struct Http2Pool(RefCell<HashMap<u32, Rc<Shelf>, RandomState>>);

/// The connections to one endpoint.
#[derive(Default)]
struct Shelf {
    connections: RefCell<Vec<Rc<Connection>>>,
    opening: Cell<bool>,
    /// Told when a connection was opened, or has room again.
    changed: Notify,
    /// The endpoint was offered HTTP/2 and chose HTTP/1.1.
    chose_http1: Cell<bool>,
}

impl Http2Pool {
    /// Whether the endpoint is known to prefer HTTP/1.1.
    pub(crate) fn chose_http1(&self, endpoint: &Endpoint) -> bool {
        endpoint.speaks == Speaks::Either && self.shelf(endpoint).chose_http1.get()
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
        let shelf = self.shelf(endpoint);
        loop {
            if let Some(place) = shelf.place(worker, endpoint, server_name.as_deref()) {
                return Ok(Opened::Http2(Box::new(Http2Stream::new(place))));
            }
            let known_http1 = shelf.chose_http1.get();
            if !known_http1 && (shelf.opening.get() || shelf.is_full(worker, endpoint)) {
                shelf.changed.notified().await;
                continue;
            }
            let _opening = Opening::begin(&shelf);
            let io = connect::open(worker, endpoint, server_name.as_deref(), trying).await?;
            let failed = |_: &Failure| endpoint.met(trying.get(), Outcome::TcpFailure);
            if chose_http2(endpoint, &io).inspect_err(failed)? {
                let options = &worker.options.upstream_http2;
                let begun = Connection::begin(io, options, server_name.clone()).await;
                let connection = begun.inspect_err(failed)?;
                trying.set(None);
                shelf.chose_http1.set(false);
                shelf.connections.borrow_mut().push(connection);
            } else {
                shelf.chose_http1.set(true);
                return Ok(Opened::Http1(Box::new(UpstreamConnection::new(io, endpoint.id, server_name))));
            }
        }
    }

    fn shelf(&self, endpoint: &Endpoint) -> Rc<Shelf> {
        self.0.borrow_mut().entry(endpoint.id).or_default().clone()
    }

    /// Closes what was idle for too long, and forgets what is closed.
    pub(crate) fn sweep(&self, now: Instant, idle_timeout: Duration) {
        self.0.borrow_mut().retain(|_, shelf| {
            let mut connections = shelf.connections.borrow_mut();
            connections.retain(|connection| !connection.is_over(now, idle_timeout));
            // One that is being opened holds the shelf.
            !connections.is_empty() || Rc::strong_count(shelf) > 1 || shelf.chose_http1.get()
        });
    }
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
    /// A place on a connection for this server name, to an address that may be asked, that has room.
    fn place(
        self: &Rc<Self>,
        worker: &Worker,
        endpoint: &Endpoint,
        server_name: Option<&str>,
    ) -> Option<Place> {
        let options = &worker.options;
        let mut connections = self.connections.borrow_mut();
        connections.retain(|connection| connection.is_open());
        let has_room = |connection: &&Rc<Connection>| {
            connection.server_name.as_deref() == server_name
                && endpoint.admits(connection.address)
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
