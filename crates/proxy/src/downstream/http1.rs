//! HTTP/1.1 clients: reads requests and writes responses.

use super::http2::PREFACE;
use crate::client::{AbortCode, Client};
use crate::error::RequestError;
use crate::exchange::Connection;
use crate::limits::NodeLimit;
use crate::pipeline::serve::{begin, one};
use crate::tunnel;
use crate::worker::{Closing, Worker};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use weir_http1::{Framing, Headers, Known, KnownSet, ParseError, RequestHead, ResponseHead, Version, encode};
use weir_net::deadline::Deadline;
use weir_net::wire::Wire;
use weir_plugin::Exchange;

/// What frames the message: the gateway alone says it.
const FRAMING: KnownSet = KnownSet::of(&[Known::ContentLength, Known::TransferEncoding]);
const CODING: KnownSet = KnownSet::of(&[Known::TransferEncoding]);
const TRAILER: KnownSet = KnownSet::of(&[Known::Trailer]);

/// Interim responses are left out while a client has not taken so much of those before.
const MAX_INTERIM_WAITING: usize = 16 * 1024;

/// The longest body that is read and thrown away behind a response, so that the connection can go on, and the longest
/// that this takes.
const MAX_DISCARDED: u64 = 8 * 1024 * 1024;
const DISCARD_TIME: Duration = Duration::from_secs(5);

/// Whether a client that was taken to speak HTTP/1.1 may turn out to speak HTTP/2.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preface {
    Refused,
    Allowed,
    Found,
}

/// A client that speaks HTTP/1.1 or 1.0.
pub(crate) struct Http1 {
    pub(crate) wire: Wire,
    pub(crate) deadline: Deadline,
    pub(crate) keep_alive: bool,
    pub(crate) aborted: bool,
    /// Whether the client begins with HTTP/2, where it may.
    pub(crate) preface: Preface,
    begun: bool,
    /// Where in the outbox the response begins.
    start: usize,
    framing: Framing,
    version: Version,
    head_request: bool,
    expects_continue: bool,
    /// The client got a 100, and goes on with its body.
    continues: bool,
    /// What is left of the request's body is discarded behind the response.
    discards: bool,
}

impl Http1 {
    pub(crate) fn new(wire: Wire) -> Self {
        Self {
            wire,
            deadline: Deadline::default(),
            keep_alive: false,
            aborted: false,
            preface: Preface::Refused,
            begun: false,
            start: 0,
            framing: Framing::None,
            version: Version::Http11,
            head_request: false,
            expects_continue: false,
            continues: false,
            discards: false,
        }
    }

    /// Starts an exchange whose request head was just consumed from the inbox.
    pub(crate) fn begin_exchange(&mut self, head: &weir_http1::RequestHead) {
        self.framing = head.framing;
        self.version = head.version;
        self.keep_alive = head.keep_alive;
        self.head_request = head.method == weir_http1::Method::Head;
        self.expects_continue = head.expect_continue;
        (self.begun, self.continues, self.discards) = (false, false, false);
        self.preface = Preface::Refused;
        self.wire.begin_reading(head.framing);
    }

    /// Whether what cannot be a request begins HTTP/2.
    pub(crate) fn finds_preface(&mut self) -> bool {
        if self.preface == Preface::Allowed && self.wire.inbox.bytes().starts_with(PREFACE) {
            self.preface = Preface::Found;
        }
        self.preface == Preface::Found
    }
}

impl Client for Http1 {
    fn is_head(&self) -> bool {
        self.head_request
    }

    fn framing(&self) -> Framing {
        self.framing
    }

    fn body(&mut self) -> Result<&[u8], ParseError> {
        self.wire.body()
    }

    fn consume(&mut self, n: usize) {
        self.wire.consume_body(n);
    }

    fn body_is_done(&self) -> bool {
        self.wire.body_is_done()
    }

    fn body_has_ended(&self) -> bool {
        self.wire.body_has_ended()
    }

    fn body_is_whole(&self) -> bool {
        self.wire.body_is_whole()
    }

    fn buffered(&self) -> usize {
        self.wire.inbox.len()
    }

    fn body_is_buffered(&self) -> bool {
        match self.framing {
            Framing::None => true,
            Framing::Length(n) => self.wire.inbox.len() as u64 >= n || self.wire.inbox.is_full(),
            _ => self.wire.inbox.is_full() || self.wire.body_is_done(),
        }
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RequestError>> {
        if std::mem::take(&mut self.expects_continue) && self.wire.inbox.is_empty() {
            self.continues = true;
            self.wire.outbox.writable().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        if let Poll::Ready(Err(_)) = self.wire.poll_flush(cx) {
            return Poll::Ready(Err(RequestError::ClientGone));
        }
        self.wire.poll_fill(cx).map(|read| match read {
            Ok(1..) => Ok(()),
            // A tunnel may end so; a body may not.
            Ok(0) if self.wire.end_of_stream() => Ok(()),
            Ok(0) | Err(_) => Err(RequestError::ClientGone),
        })
    }

    fn trailers(&self) -> Option<&Headers> {
        self.wire.trailers()
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Whatever comes early is the next request of a pipeline: kept, as far as it fits.
        while !self.wire.inbox.is_full() {
            match self.wire.io.poll_readable(cx) {
                Poll::Pending => {
                    self.wire.release_empty_buffers();
                    return Poll::Pending;
                }
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(())) => {}
            }
            match self.wire.poll_fill(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }

    fn send_interim(&mut self, interim: &ResponseHead) {
        let is_repeated = interim.status == 100 && std::mem::replace(&mut self.continues, true);
        if self.version == Version::Http10
            || is_repeated
            || self.wire.outbox.pending().len() > MAX_INTERIM_WAITING
        {
            return;
        }
        self.expects_continue &= interim.status != 100;
        let out = self.wire.outbox.writable();
        write_status_line(out, interim);
        encode::headers_except(out, &interim.headers, FRAMING);
        encode::end(out);
    }

    fn discard_body(&mut self) -> bool {
        let is_short = !matches!(self.framing, Framing::Length(length) if length > MAX_DISCARDED);
        // A client that waits to be asked for its body may go on with its next request instead.
        self.discards = is_short && !self.expects_continue;
        self.discards
    }

    fn begin(&mut self, exchange: &Exchange, framing: Framing) -> u64 {
        self.begun = true;
        let bodiless = self.head_request || matches!(exchange.response.status, 100..=199 | 204 | 304);
        let framing = match framing {
            _ if bodiless => Framing::None,
            Framing::Chunked | Framing::UntilClose if self.version == Version::Http10 => Framing::UntilClose,
            Framing::UntilClose => Framing::Chunked,
            framing => framing,
        };
        self.keep_alive &= framing != Framing::UntilClose;
        let out = self.wire.outbox.writable();
        let before = out.len();
        write_status_line(out, &exchange.response);
        // A bodiless response may still announce the length that its body would have.
        let announces = bodiless && exchange.response.status != 204;
        let but = if announces { CODING } else { FRAMING };
        let but = if framing == Framing::Chunked || bodiless { but } else { but.with(TRAILER) };
        encode::headers_except(out, &exchange.response.headers, but);
        match framing {
            Framing::Length(n) => encode::content_length(out, n),
            Framing::Chunked => encode::header(out, b"Transfer-Encoding", b"chunked"),
            Framing::None if !bodiless => encode::content_length(out, 0),
            _ => {}
        }
        match (self.keep_alive, self.version) {
            (false, _) => encode::header(out, b"Connection", b"close"),
            (true, Version::Http10) => encode::header(out, b"Connection", b"keep-alive"),
            (true, Version::Http11 | Version::Http2 | Version::Http3) => {}
        }
        encode::end(out);
        let head = out.len() - before;
        self.start = before;
        self.wire.begin_writing(framing);
        head as u64
    }

    fn begin_tunnel(&mut self, exchange: &Exchange) -> u64 {
        self.begun = true;
        self.keep_alive = false;
        let out = self.wire.outbox.writable();
        let before = out.len();
        write_status_line(out, &exchange.response);
        encode::headers_except(out, &exchange.response.headers, FRAMING);
        encode::upgrade(out, exchange.engine.upgrade.as_deref().unwrap_or_default());
        encode::end(out);
        let head = out.len() - before;
        self.wire.begin_tunnel(tunnel::ends(exchange.engine.upgrade.as_deref()));
        head as u64
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if self.head_request {
            // The upstream was asked with another method.
            return Poll::Ready(Ok(data.len()));
        }
        self.wire.poll_send(cx, data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_finish(cx)
    }

    fn end(&mut self, trailers: Option<&Headers>) -> io::Result<()> {
        self.wire.end_body(trailers)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_flush(cx)
    }

    fn deadline(&mut self) -> &mut Deadline {
        &mut self.deadline
    }

    fn has_begun(&self) -> bool {
        self.begun
    }

    fn close_after(&mut self) {
        self.keep_alive = false;
    }

    fn retract(&mut self) -> bool {
        let retracts = self.begun && !self.wire.touched;
        if retracts {
            self.begun = false;
            self.wire.outbox.truncate(self.start);
        }
        retracts
    }

    fn unsent(&self) -> u64 {
        self.wire.outbox.pending().len() as u64
    }

    fn abort(&mut self, _: AbortCode) {
        self.keep_alive = false;
        self.aborted = true;
        self.wire.abort();
    }
}

/// Writes a status line, with the reason phrase that the upstream sent.
#[inline]
fn write_status_line(out: &mut Vec<u8>, response: &ResponseHead) {
    match response.other_reason() {
        None => encode::status_line(out, response.status),
        Some(reason) => encode::status_line_with(out, response.status, reason),
    }
}

/// Reads the next request of an HTTP/1.1 connection and serves it. Returns when it ended; none, when the connection is to
/// end too.
pub(crate) async fn next(
    worker: &Rc<Worker>,
    client: &mut Http1,
    connection: &Rc<Connection>,
) -> Option<Instant> {
    let (mut request, response) = worker.heads();
    let read = read_head(worker, client, &mut request).await;
    let Some(read) = read else {
        worker.keep_heads((request, response));
        return None;
    };
    if read.is_err() {
        // What it holds was said by an earlier request.
        *request = RequestHead::default();
    }
    client.begin_exchange(&request);
    let most = worker.options.keepalive_requests;
    if most != 0 && connection.requests.get() >= most {
        worker.limit_acted(NodeLimit::RequestsPerConnection);
        client.close_after();
    }
    let mut exchange = begin(worker, connection, (request, response));
    one(worker, client, &mut exchange, read).await;
    let end = exchange.timing.end;
    worker.keep_heads((exchange.public.request, exchange.public.response));
    if client.keep_alive && client.discards && !client.body_is_done() {
        // Boxed, so that a connection has no room for what few requests need.
        Box::pin(discard(worker, client)).await;
        return (client.keep_alive && client.body_is_done()).then(Instant::now);
    }
    end.filter(|_| client.keep_alive && client.body_is_done())
}

/// Reads what is left of a request's body and throws it away, within bounds, and unless the connection is to end.
async fn discard(worker: &Worker, client: &mut Http1) {
    client.deadline.set(Instant::now(), DISCARD_TIME);
    let mut left = MAX_DISCARDED;
    poll_fn(|cx| {
        loop {
            match client.wire.body().map(|data| data.len() as u64) {
                Ok(n) if n <= left => {
                    left -= n;
                    client.wire.consume_body(n as usize);
                }
                _ => return Poll::Ready(()),
            }
            if client.wire.body_is_done() {
                return Poll::Ready(());
            }
            match client.wire.poll_fill(cx) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending if worker.draining.get() => return Poll::Ready(()),
                Poll::Pending => return client.deadline.poll(cx),
            }
        }
    })
    .await;
}

/// Reads one head. `None`: the client left, or never began. `Some(Err)`: it is owed an answer.
async fn read_head(
    worker: &Worker,
    client: &mut Http1,
    head: &mut RequestHead,
) -> Option<Result<usize, RequestError>> {
    let mut begun = false;
    loop {
        if !client.wire.inbox.is_empty() {
            match head.parse(client.wire.inbox.bytes(), &worker.options.request_limits) {
                Ok(Some(n)) => {
                    client.wire.inbox.consume(n);
                    return Some(Ok(n));
                }
                Ok(None) if client.wire.inbox.is_full() => {
                    let most = worker.options.request_limits.max_head_bytes;
                    if !client.wire.inbox.grow(most) {
                        return Some(Err(RequestError::Rejected(ParseError::HeadTooLarge)));
                    }
                }
                Ok(None) => {}
                Err(_) if client.finds_preface() => return None,
                Err(reject) => return Some(Err(RequestError::Rejected(reject))),
            }
            if !std::mem::replace(&mut begun, true) {
                client.deadline.set(Instant::now(), worker.options.client_header_timeout);
            }
        }
        let filled = poll_fn(|cx| match client.wire.poll_fill(cx) {
            Poll::Ready(filled) => Poll::Ready(Some(filled)),
            Poll::Pending if worker.closing.get() >= Closing::Idle && !begun => Poll::Ready(Some(Ok(0))),
            Poll::Pending => client.deadline.poll(cx).map(|()| None),
        });
        match filled.await {
            Some(Ok(1..)) => {}
            Some(_) => return None,
            None => return begun.then_some(Err(RequestError::ClientTimeout)),
        }
    }
}
