//! One HTTP/2 connection to an upstream: its handshake, its limits, and the task that drives it.

use super::{Http2UpstreamOptions, SharedConnections, Waiting};
use crate::UpstreamError;
use crate::address_check::AddressCheck;
use crate::pool::KeepAlive;
use bytes::Bytes;
use h2::client::{self, SendRequest};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Instant;
use weir_net::http2::{KeepAlivePing, Sender, Transport, broken, gone};
use weir_net::io::Io;

/// What is queued of a request's body that the upstream does not take, and what an upstream may send of a response
/// that its client does not.
const WINDOW: u32 = 64 * 1024;

/// The most bytes of a response's fields.
const HEADERS: u32 = 64 * 1024;

/// How many reset streams are remembered for a second, because frames that the upstream sent before it received the
/// reset are not errors.
const RESET_STREAMS: usize = 10_000;

/// How many stream errors close the whole connection, with the other requests on it.
const FAULTS: usize = 64 * 1024;

/// What pieces of responses, each of which weighs more than its bytes, may weigh until requests take them: as much as
/// messages of 50 bytes that fill the windows of a hundred.
const PIECES: usize = 32 * 1024 * 1024;

/// One connection.
pub(super) struct Connection {
    pub requests: SendRequest<Bytes>,
    pub address: Option<SocketAddr>,
    /// Whether the endpoint's name still leads there.
    pub address_check: AddressCheck,
    state: Rc<State>,
}

/// What the connection and the task that drives it share.
struct State {
    /// Requests in flight.
    live: Cell<u32>,
    /// Requests so far.
    count: Cell<u32>,
    /// A request was answered.
    has_answered: Cell<bool>,
    idle_since: Cell<Instant>,
    closed: Cell<bool>,
}

fn builder(options: &Http2UpstreamOptions) -> client::Builder {
    let mut builder = client::Builder::new();
    builder
        .enable_push(false)
        .max_header_list_size(HEADERS)
        .initial_window_size(WINDOW)
        // Wide enough for all: no slow client stops the others.
        .initial_connection_window_size(
            WINDOW.saturating_mul(options.max_concurrent_streams).min(i32::MAX as u32),
        )
        .initial_max_send_streams(0)
        .max_send_buffer_size(WINDOW as usize)
        .max_concurrent_reset_streams(RESET_STREAMS)
        .max_local_error_reset_streams(Some(FAULTS))
        .data_frame_budget(PIECES);
    builder
}

impl Connection {
    /// Begins to speak HTTP/2 on a byte stream, once the upstream does too and has said how many requests it takes at a
    /// time: those of a burst beyond that number it would have to refuse.
    pub(super) async fn begin(
        io: Io,
        options: &Http2UpstreamOptions,
        waiting: &Rc<Waiting>,
    ) -> Result<Rc<Self>, UpstreamError> {
        let address = io.peer();
        let transport = Transport::from(io);
        let sender = transport.sender();
        let handshake = builder(options).handshake(transport).await;
        let (requests, mut connection) = handshake.map_err(|error| UpstreamError::Connect(broken(error)))?;
        let welcome = poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
            Poll::Ready(ended) => {
                Poll::Ready(Err(UpstreamError::Connect(ended.err().map_or_else(gone, broken))))
            }
            Poll::Pending if requests.current_max_send_streams() > 0 => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        });
        sender.with(welcome).await.map_err(UpstreamError::Connect)??;
        let state = Rc::new(State {
            live: Cell::new(0),
            count: Cell::new(0),
            has_answered: Cell::new(false),
            idle_since: Cell::new(Instant::now()),
            closed: Cell::new(false),
        });
        let address_check = AddressCheck::new();
        let this = Rc::new(Self { requests, address, address_check, state: state.clone() });
        let news = News { of: Rc::downgrade(&this), waiting: waiting.clone(), last: None };
        tokio::task::spawn_local(drive(connection, sender, (state, news), options.ping_interval));
        Ok(this)
    }

    /// Whether it accepts new requests. After GOAWAY it does not.
    pub(super) fn is_open(&self) -> bool {
        let failed = |connection: &Self| {
            let mut requests = connection.requests.clone();
            matches!(requests.poll_ready(&mut Context::from_waker(Waker::noop())), Poll::Ready(Err(_)))
        };
        !self.state.closed.get() && !failed(self)
    }

    /// Records that the upstream has answered a request.
    pub(super) fn answered(&self) {
        self.state.has_answered.set(true);
    }

    /// Whether it has answered another request. Concurrent requests on a connection that never answered do not count as
    /// such, because a target that fails all of them would look healthy.
    pub(super) fn has_answered(&self) -> bool {
        self.state.has_answered.get()
    }

    /// Whether requests are on it.
    pub(super) fn is_used(&self) -> bool {
        self.state.live.get() > 0
    }

    pub(super) fn has_room(&self, options: &Http2UpstreamOptions, keep_alive: &KeepAlive) -> bool {
        let allowed = self.requests.current_max_send_streams().min(options.max_concurrent_streams as usize);
        !self.is_worn(keep_alive) && (self.state.live.get() as usize) < allowed
    }

    /// Whether it has reached the maximum number of requests.
    pub(super) fn is_worn(&self, keep_alive: &KeepAlive) -> bool {
        keep_alive.max_requests != 0 && self.state.count.get() >= keep_alive.max_requests
    }

    pub(super) fn is_over(&self, now: Instant, idle_timeout: Duration) -> bool {
        let idle = now.saturating_duration_since(self.state.idle_since.get());
        let expired = !idle_timeout.is_zero() && idle >= idle_timeout;
        !self.is_open() || (self.state.live.get() == 0 && expired)
    }
}

/// A request's slot on a connection.
pub(super) struct StreamSlot {
    pub connection: Rc<Connection>,
    shared: Rc<SharedConnections>,
}

impl StreamSlot {
    pub(super) fn take(connection: Rc<Connection>, shared: Rc<SharedConnections>) -> Self {
        let state = &connection.state;
        state.live.set(state.live.get() + 1);
        state.count.set(state.count.get().saturating_add(1));
        Self { connection, shared }
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let state = &self.connection.state;
        state.live.set(state.live.get() - 1);
        if state.live.get() == 0 {
            state.idle_since.set(Instant::now());
        }
        self.shared.waiting.changed.notify_one();
    }
}

/// Wakes requests that wait when the upstream lets more of them in: by SETTINGS, or by GOAWAY, since another connection can
/// then be opened.
struct News {
    /// Weak, because a connection ends once nothing else holds it.
    of: Weak<Connection>,
    waiting: Rc<Waiting>,
    /// How many requests it took at a time, and whether it accepted new ones, when it was last looked at.
    last: Option<(usize, bool)>,
}

impl News {
    fn look(&mut self) {
        if !self.waiting.is_any() {
            // What changes from here on is not known until there is a request that waits.
            self.last = None;
            return;
        }
        let of = self.of.upgrade();
        let now = of.map_or((0, false), |of| (of.requests.current_max_send_streams(), of.is_open()));
        if self.last.replace(now) != Some(now) {
            self.waiting.changed.notify_waiters();
        }
    }
}

/// Drives the connection until it ends.
async fn drive(
    mut connection: client::Connection<Transport, Bytes>,
    sender: Sender,
    (state, mut news): (Rc<State>, News),
    ping_interval: Duration,
) {
    let mut keep_alive = connection.ping_pong().map(|pings| KeepAlivePing::new(pings, ping_interval));
    let waiting = news.waiting.clone();
    let driven = poll_fn(|cx| {
        if Pin::new(&mut connection).poll(cx).is_ready() {
            return Poll::Ready(());
        }
        news.look();
        match &mut keep_alive {
            Some(keep_alive) => keep_alive.poll(cx, state.live.get() > 0),
            None => Poll::Pending,
        }
    });
    // A connection that cannot be written to ends as one does that cannot be read from.
    let _ = sender.with(driven).await;
    state.closed.set(true);
    waiting.changed.notify_waiters();
}
