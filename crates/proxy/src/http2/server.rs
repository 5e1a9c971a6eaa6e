//! A client's HTTP/2 connection: accepts streams, and decides when it has to end.

use super::fields::read_request;
use super::stream::Http2;
use super::{Http2Options, Pulse, Transport};
use crate::answer::Failure;
use crate::buffer;
use crate::deadline::Deadline;
use crate::exchange::Connection;
use crate::multiplex::{Books, UnderWay, is_misdirected, size};
use crate::serve;
use crate::worker::Worker;
use bytes::Bytes;
use h2::server::{self, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use std::error::Error;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::task::spawn_local;

/// What is queued of one response that its client does not take.
const SEND_BUFFER: usize = 64 * 1024;

/// What pieces of requests, each of which weighs more than its bytes, may weigh until they are used: as much as messages
/// of 50 bytes that fill a connection's window.
const PIECES: usize = 4 * 1024 * 1024;

/// Serves a connection to its end.
pub(crate) async fn serve(worker: &Rc<Worker>, transport: Transport, connection: Rc<Connection>) {
    let sender = transport.sender();
    let handshake = sender.with(builder(&worker.options.http2).handshake(transport));
    let timeout = worker.options.client_header_timeout;
    let Ok(Ok(Ok(mut http2))) = tokio::time::timeout(timeout, handshake).await else { return };
    let Some(pings) = http2.ping_pong() else { return };
    let mut deadline = Deadline::default();
    deadline.set(Instant::now(), timeout);
    let worker = worker.clone();
    let pulse = Pulse::new(pings, worker.options.http2.ping_interval);
    let books = Books::new(connection);
    let mut served = Served { worker, http2, pulse, books, deadline, idle: true, closing: false };
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
        .data_frame_budget(PIECES)
        .enable_connect_protocol();
    builder
}

/// One connection.
struct Served {
    worker: Rc<Worker>,
    http2: server::Connection<Transport, Bytes>,
    pulse: Pulse,
    books: Rc<Books>,
    /// Of a client without a request under way.
    deadline: Deadline,
    idle: bool,
    /// No further request is taken.
    closing: bool,
}

impl Served {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.worker.draining.get() {
            self.close();
        }
        if self.books.are_abused(self.worker.options.http2.max_resets)
            && !std::mem::replace(&mut self.closing, true)
        {
            let client = self.books.connection.peer;
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
        let client = self.books.connection.peer;
        tracing::debug!(%client, "a connection over HTTP/2 ended: {error}");
    }

    fn accept(&mut self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let options = &self.worker.options;
        let head = size(&request);
        // A stream that the client reset no longer counts as open, while its exchange may still be ending.
        let is_refused = self.books.live() >= options.http2.max_concurrent_streams
            || self.books.is_too_much(head, options.http2.connection_header_list_size);
        if is_refused {
            return respond.send_reset(Reason::REFUSED_STREAM);
        }
        let (under_way, requests) = self.books.enter(head);
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

    /// Ready when the client was silent for too long.
    fn watch(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let idle = self.books.live() == 0;
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

/// Serves one stream.
async fn exchange(
    worker: Rc<Worker>,
    mut under_way: UnderWay,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) {
    let (parts, body) = request.into_parts();
    let (mut head, response) = worker.heads();
    let read = read_request(&mut head, &parts, body.is_end_stream(), &worker.options.request_limits);
    let bytes: usize = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    let bytes = bytes + head.method_str().len() + head.target().len();
    drop(parts);
    let held = (worker.options.http2.body_preread_size as usize).min(buffer::SIZE);
    let mut client = Http2::new(&head, body, respond, held);
    let connection = &under_way.books.connection;
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
        under_way.books.take_back();
    }
}
