//! A client's HTTP/2 connection: accepts streams, and decides when it has to end.

use super::authority::is_misdirected;
use super::fields::read_request;
use super::stream::Http2;
use super::{Http2Options, Pulse, Transport};
use crate::answer::Failure;
use crate::buffer;
use crate::deadline::Deadline;
use crate::exchange::Connection;
use crate::serve;
use crate::worker::Worker;
use bytes::Bytes;
use h2::server::{self, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use std::cell::Cell;
use std::error::Error;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::task::spawn_local;

/// What is queued of one response that its client does not take.
const SEND_BUFFER: usize = 64 * 1024;

/// Serves a connection to its end.
pub(crate) async fn serve(worker: &Rc<Worker>, transport: Transport, connection: Rc<Connection>) {
    let sender = transport.sender();
    let handshake = sender.with(builder(&worker.options.http2).handshake(transport));
    let timeout = worker.options.client_header_timeout;
    let Ok(Ok(Ok(mut http2))) = tokio::time::timeout(timeout, handshake).await else { return };
    let Some(pings) = http2.ping_pong() else { return };
    let mut deadline = Deadline::default();
    deadline.set(Instant::now(), timeout);
    let streams =
        Rc::new(Streams { connection, live: Cell::new(0), heads: Cell::new(0), taken_back: Cell::new(0) });
    let worker = worker.clone();
    let pulse = Pulse::new(pings, worker.options.http2.ping_interval);
    let mut served = Served { worker, http2, pulse, streams, deadline, idle: true, closing: false };
    if let Err(error) = sender.with(poll_fn(|cx| served.poll(cx))).await {
        served.ended(&error);
    }
}

fn builder(options: &Http2Options) -> server::Builder {
    let mut builder = server::Builder::new();
    builder
        .max_concurrent_streams(options.max_concurrent_streams)
        .max_header_list_size(options.max_header_list_size)
        .initial_window_size(options.body_preread_size)
        .initial_connection_window_size(options.connection_window_size)
        .max_send_buffer_size(SEND_BUFFER)
        .enable_connect_protocol();
    builder
}

/// One connection.
struct Served {
    worker: Rc<Worker>,
    http2: server::Connection<Transport, Bytes>,
    pulse: Pulse,
    streams: Rc<Streams>,
    /// Of a client without a request under way.
    deadline: Deadline,
    idle: bool,
    /// No further request is taken.
    closing: bool,
}

/// What the streams of one connection count.
struct Streams {
    connection: Rc<Connection>,
    /// Exchanges under way.
    live: Cell<u32>,
    /// How large their heads are together: one byte of HPACK may stand for thousands.
    heads: Cell<usize>,
    /// Requests that the client took back.
    taken_back: Cell<u32>,
}

impl Served {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.worker.draining.get() {
            self.close();
        }
        if self.is_abused() && !std::mem::replace(&mut self.closing, true) {
            let client = self.streams.connection.peer;
            tracing::debug!(%client, "a client took back too many requests: its connection is closed");
            self.http2.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        }
        loop {
            match self.http2.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => self.accept(request, respond),
                Poll::Ready(Some(Err(error))) => {
                    self.ended(&error);
                    return Poll::Ready(());
                }
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        self.watch(cx)
    }

    fn ended(&self, error: &dyn Error) {
        let client = self.streams.connection.peer;
        tracing::debug!(%client, "a connection over HTTP/2 ended: {error}");
    }

    fn accept(&mut self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let options = &self.worker.options;
        let streams = &self.streams;
        // A stream that the client reset no longer counts as open, while its exchange may still be ending.
        let live = streams.live.get();
        let head = size(&request);
        let heads = streams.heads.get() + head;
        let is_too_much = live > 0 && heads > options.http2.connection_header_list_size as usize;
        if is_too_much || live >= options.http2.max_concurrent_streams {
            return respond.send_reset(Reason::REFUSED_STREAM);
        }
        let requests = streams.connection.requests.get() + 1;
        streams.connection.requests.set(requests);
        streams.live.set(live + 1);
        streams.heads.set(heads);
        let under_way = UnderWay { streams: streams.clone(), head };
        let most = options.keepalive_requests;
        // Boxed, as a task moves what it runs about.
        spawn_local(Box::pin(exchange(self.worker.clone(), under_way, request, respond)));
        if most != 0 && requests >= most {
            self.close();
        }
    }

    /// Says that no further request is taken, and lets those under way end.
    fn close(&mut self) {
        if !std::mem::replace(&mut self.closing, true) {
            self.http2.graceful_shutdown();
        }
    }

    /// Whether the client takes back most of what it asks for, which costs it nothing and the upstreams much.
    fn is_abused(&self) -> bool {
        let taken_back = self.streams.taken_back.get();
        let requests = self.streams.connection.requests.get();
        taken_back > self.worker.options.http2.max_resets && u64::from(taken_back) > requests / 2
    }

    /// Ready when the client was silent for too long.
    fn watch(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let idle = self.streams.live.get() == 0;
        if idle && !self.idle {
            self.deadline.set(Instant::now(), self.worker.options.keepalive_timeout);
        }
        self.idle = idle;
        if self.pulse.poll(cx, !idle).is_ready() {
            return Poll::Ready(());
        }
        while idle && self.deadline.poll(cx).is_ready() {
            if self.closing {
                return Poll::Ready(());
            }
            self.close();
            self.deadline.set(Instant::now(), self.worker.options.send_timeout);
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// Leaves the books when the exchange ends, however it ends.
struct UnderWay {
    streams: Rc<Streams>,
    /// How large its head is, while that is held.
    head: usize,
}

impl UnderWay {
    fn leave_head(&mut self) {
        let heads = &self.streams.heads;
        heads.set(heads.get() - std::mem::take(&mut self.head));
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.leave_head();
        self.streams.live.set(self.streams.live.get() - 1);
    }
}

/// How large a head is: its fields as RFC 9113 (6.5.2) counts them, each with 32 bytes more, and where it goes.
fn size(request: &Request<RecvStream>) -> usize {
    let uri = request.uri();
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    let target = uri.path_and_query().map_or(0, |target| target.as_str().len());
    let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 32);
    authority + target + fields.sum::<usize>()
}

/// Serves one stream.
async fn exchange(
    worker: Rc<Worker>,
    mut under_way: UnderWay,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) {
    let (parts, body) = request.into_parts();
    let (mut head, response) = worker.heads();
    let read = read_request(&mut head, &parts, body.is_end_stream(), &worker.options.limits);
    let bytes: usize = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    let bytes = bytes + head.method_str().len() + head.target().len();
    drop(parts);
    let held = (worker.options.http2.body_preread_size as usize).min(buffer::SIZE);
    let mut client = Http2::new(&head, body, respond, held);
    let connection = &under_way.streams.connection;
    let mut exchange = serve::begin(&worker, connection, (head, response));
    let read = match read {
        Err(reject) => Err(Failure::Rejected(reject)),
        Ok(()) => {
            let snapshot = exchange.snapshot.clone();
            if is_misdirected(&mut exchange, &snapshot) { Err(Failure::Misdirected) } else { Ok(bytes) }
        }
    };
    serve::one(&worker, &mut client, &mut exchange, read).await;
    worker.keep_heads(exchange.request, exchange.response);
    under_way.leave_head();
    client.linger().await;
    if client.taken_back {
        let taken_back = &under_way.streams.taken_back;
        taken_back.set(taken_back.get() + 1);
    }
}
