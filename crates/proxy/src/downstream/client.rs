//! The client's half of an exchange, whatever HTTP version it speaks: what `serve` asks of it, and HTTP/1.1's answer.

use crate::downstream::http2::PREFACE;
use crate::exchange::Exchange;
use crate::pipeline::answer::Failure;
use std::io;
use std::task::{Context, Poll};
use weir_http1::{Framing, Headers, Known, KnownSet, ParseError, Version, encode};
use weir_net::deadline::Deadline;
use weir_net::wire::Wire;

/// What `serve` asks of a client, in the order in which it asks.
pub(crate) trait Client {
    /// Whether the client's request is one for a head alone, whatever a plugin has made of it.
    fn is_head(&self) -> bool;
    /// How the request's body is framed.
    fn framing(&self) -> Framing;
    /// Body bytes that are here, if any; never waits.
    fn body(&mut self) -> Result<&[u8], ParseError>;
    /// Marks body bytes as used.
    fn consume(&mut self, n: usize);
    /// Whether the whole body was received and used.
    fn body_is_done(&self) -> bool;
    /// Whether nothing follows what [`Client::body`] has returned, which may be used or not.
    fn body_is_whole(&self) -> bool;
    /// Whether the whole body stands in the buffers, or fills them.
    fn body_is_buffered(&self) -> bool;
    /// Lets others of the client's requests send as much more, although so many body bytes are kept.
    fn acknowledge(&mut self, _: usize) {}
    /// Waits for more of the body. Invites the client to send it where it waits to be asked.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>>;
    /// Takes what is here already while nobody takes the body, where it would otherwise be held in pieces.
    fn read_ahead(&mut self, _: &mut Context<'_>) {}
    /// Trailer fields behind the request's body.
    fn trailers(&self) -> Option<&Headers>;
    /// Ready when the client left while it should be waiting for its response.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;
    /// Starts the response: the head that stands in the exchange, with a body framed as the upstream framed it.
    /// Returns the bytes of the head.
    fn begin(&mut self, exchange: &Exchange, framing: Framing) -> u64;
    /// Starts a tunnel: the head that stands in the exchange, which agrees to a change of protocol. What follows are the
    /// bodies of request and response. Returns the bytes of the head.
    fn begin_tunnel(&mut self, exchange: &Exchange) -> u64 {
        self.begin(exchange, Framing::UntilClose)
    }
    /// Sends some of the response's body, and returns how much.
    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>>;
    /// Ends the response.
    fn end(&mut self, trailers: Option<&Headers>) -> io::Result<()>;
    /// Sends all that waits.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Ends a tunnel's way to the client, and sends all that waits.
    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end(None)?;
        self.poll_flush(cx)
    }
    /// The timer of this exchange.
    fn deadline(&mut self) -> &mut Deadline;
    /// Whether the response's head is on its way.
    fn has_begun(&self) -> bool;
    /// The connection must end with this exchange.
    fn close_after(&mut self);
    /// Takes the response back, so that another can be sent in its place; false when some of it may have left.
    fn retract(&mut self) -> bool;
    /// Sends what waits of a response that is about to be aborted. Ready when it has left, as far as that is known.
    fn poll_hand_over(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
    /// How many bytes of the response were taken and have not left, as far as that is known.
    fn unsent(&self) -> u64;
    /// What was sent must not look complete: ends the connection with nothing more.
    fn abort(&mut self);
}

/// What frames the message: the gateway alone says it.
const FRAMING: KnownSet = KnownSet::of(&[Known::ContentLength, Known::TransferEncoding]);
const CODING: KnownSet = KnownSet::of(&[Known::TransferEncoding]);

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
        }
    }

    /// Starts an exchange whose request head was just consumed from the inbox.
    pub(crate) fn begin_exchange(&mut self, head: &weir_http1::RequestHead) {
        self.framing = head.framing;
        self.version = head.version;
        self.keep_alive = head.keep_alive;
        self.head_request = head.method == weir_http1::Method::Head;
        self.expects_continue = head.expect_continue;
        self.begun = false;
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

    fn body_is_whole(&self) -> bool {
        self.wire.body_is_whole()
    }

    fn body_is_buffered(&self) -> bool {
        match self.framing {
            Framing::None => true,
            Framing::Length(n) => self.wire.inbox.len() as u64 >= n || self.wire.inbox.is_full(),
            _ => self.wire.inbox.is_full() || self.wire.body_is_done(),
        }
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        if std::mem::take(&mut self.expects_continue) && self.wire.inbox.is_empty() {
            self.wire.outbox.writable().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        if let Poll::Ready(Err(_)) = self.wire.poll_flush(cx) {
            return Poll::Ready(Err(Failure::ClientGone));
        }
        self.wire.poll_fill(cx).map(|read| match read {
            Ok(1..) => Ok(()),
            // A tunnel may end so; a body may not.
            Ok(0) if self.wire.end_of_stream() => Ok(()),
            Ok(0) | Err(_) => Err(Failure::ClientGone),
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
        encode::status_line(out, exchange.response.status);
        // A bodiless response may still tell the length that its body would have.
        let told = bodiless && exchange.response.status != 204;
        encode::headers_except(out, &exchange.response.headers, if told { CODING } else { FRAMING });
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
        encode::status_line(out, exchange.response.status);
        encode::headers_except(out, &exchange.response.headers, FRAMING);
        encode::upgrade(out, exchange.engine.upgrade.as_deref().unwrap_or_default());
        encode::end(out);
        let head = out.len() - before;
        self.wire.begin_tunnel();
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

    fn abort(&mut self) {
        self.keep_alive = false;
        self.aborted = true;
        self.wire.abort();
    }
}
