//! One HTTP/3 request stream as a client of the pipeline.

use super::body::Incoming;
use super::code::Code;
use super::receiving::Receiving;
use super::sending::SendStream;
use crate::client::{AbortCode, Client};
use crate::downstream::multiplex::{LINGER, SendTurns};
use crate::error::RequestError;
use http::HeaderMap;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;
use weir_http1::{Framing, Headers, Known, KnownSet, Method, ParseError, RequestHead, ResponseHead};
use weir_net::deadline::Deadline;
use weir_net::multiplex::{Start, write_fields};
use weir_plugin::Exchange;

const LENGTH: KnownSet = KnownSet::of(&[Known::ContentLength]);

/// The most of a body that is written at a time.
const PIECE: usize = 64 * 1024;

/// A client that speaks HTTP/3, as one of its requests shows it.
pub(super) struct Http3 {
    request: Incoming,
    send_stream: Rc<SendStream>,
    framing: Framing,
    is_head: bool,
    expects_continue: bool,
    /// The client got a 100, and goes on with its body.
    continues: bool,
    /// What is left of the response's promised length.
    left: Option<u64>,
    /// Some of the response's body was taken.
    has_data: bool,
    /// What an abort waits for.
    turns: SendTurns,
    deadline: Deadline,
    /// It took its request back before it had a response.
    pub(super) cancelled: bool,
    begun: bool,
    ended: bool,
}

impl Http3 {
    /// The client of a request, of whose body so much may be held, and which has so long to show whether it has one.
    pub(super) fn new(
        receiving: Receiving,
        send_stream: Rc<SendStream>,
        most: usize,
        timeout: Duration,
    ) -> Self {
        let mut deadline = Deadline::default();
        deadline.set(Instant::now(), timeout);
        Self {
            request: Incoming::new(receiving, most),
            send_stream,
            framing: Framing::None,
            is_head: false,
            expects_continue: false,
            continues: false,
            left: None,
            has_data: false,
            turns: SendTurns::default(),
            deadline,
            cancelled: false,
            begun: false,
            ended: false,
        }
    }

    /// Receives the part of a body that has arrived. If the method usually has none and the length is unknown, waits
    /// for the first bytes or the end, because the upstream would otherwise get a chunked body.
    pub(super) async fn look(&mut self, waits: bool) -> Result<(), RequestError> {
        poll_fn(|cx| match self.request.poll_more(cx) {
            Poll::Ready(more) => {
                self.cancelled |= more.is_err();
                Poll::Ready(more.map_err(|_| RequestError::ClientGone))
            }
            Poll::Pending if waits => self.deadline.poll(cx).map(|()| Err(RequestError::ClientTimeout)),
            Poll::Pending => Poll::Ready(Ok(())),
        })
        .await
    }

    /// Whether the whole request is here, without any body.
    pub(super) fn is_over(&self) -> bool {
        self.request.is_done() && self.request.trailers().is_none()
    }

    /// The head was read.
    pub(super) fn begin_exchange(&mut self, head: &RequestHead) {
        self.framing = head.framing;
        self.is_head = head.method == Method::Head;
        self.expects_continue = head.expect_continue;
        self.request.promise(head.framing);
    }

    /// Waits a little for the rest of a request that was answered before its end. Then waits until the client has the
    /// response, or for so long: a connection that closes takes along what is on its way.
    pub(super) async fn linger(&mut self, timeout: Duration) {
        self.deadline.set(Instant::now(), LINGER);
        poll_fn(|cx| match self.request.poll_discard(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => self.deadline.poll(cx),
        })
        .await;
        self.request.stop();
        self.deadline.set(Instant::now(), timeout);
        poll_fn(|cx| match self.send_stream.poll_done(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => self.deadline.poll(cx),
        })
        .await;
    }

    fn poll_stopped(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.send_stream.poll_stopped(cx) {
            Poll::Ready(true) => {
                self.cancelled |= !self.begun;
                Poll::Ready(())
            }
            _ => Poll::Pending,
        }
    }

    fn finish(&mut self) {
        self.ended = true;
        self.send_stream.end();
    }
}

impl Client for Http3 {
    fn is_head(&self) -> bool {
        self.is_head
    }

    fn framing(&self) -> Framing {
        self.framing
    }

    fn body(&mut self) -> Result<&[u8], ParseError> {
        self.request.data()
    }

    fn consume(&mut self, n: usize) {
        self.request.consume(n);
    }

    fn body_is_done(&self) -> bool {
        self.request.is_done()
    }

    fn body_has_ended(&self) -> bool {
        self.request.has_ended()
    }

    fn body_is_whole(&self) -> bool {
        self.request.is_whole()
    }

    fn buffered(&self) -> usize {
        self.request.buffered()
    }

    fn body_is_buffered(&self) -> bool {
        self.request.is_buffered()
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RequestError>> {
        if std::mem::take(&mut self.expects_continue) && self.request.data().is_ok_and(<[u8]>::is_empty) {
            self.continues = true;
            self.send_stream.push_head(100, &HeaderMap::new());
            // A client that is gone shows that when it is read from.
            let _ = self.send_stream.poll_sent(cx);
        }
        let more = ready!(self.request.poll_more(cx));
        self.cancelled |= more.is_err() && !self.begun;
        Poll::Ready(more.map_err(|_| RequestError::ClientGone))
    }

    fn trailers(&self) -> Option<&Headers> {
        self.request.trailers()
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_stopped(cx)
    }

    fn send_interim(&mut self, interim: &ResponseHead) {
        if interim.status == 100 && std::mem::replace(&mut self.continues, true) {
            return;
        }
        self.expects_continue &= interim.status != 100;
        self.send_stream.push_head(interim.status, &write_fields(&interim.headers, LENGTH).0);
    }

    fn begin(&mut self, exchange: &Exchange, framing: Framing) -> u64 {
        self.begun = true;
        let start = Start::of(&exchange.response.headers, framing, exchange.response.status, self.is_head);
        if !start.is_whole {
            // Until some of it has to leave, another response can take its place.
            self.send_stream.wait();
        }
        self.send_stream.push_head(exchange.response.status, &start.fields);
        if start.is_whole {
            self.finish();
        } else {
            self.left = start.left;
        }
        start.bytes
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if self.ended {
            return Poll::Ready(Err(gone()));
        }
        if self.left.is_some_and(|left| data.len() as u64 > left) {
            return Poll::Ready(Err(invalid("the body is longer than its Content-Length")));
        }
        if std::mem::replace(&mut self.has_data, true) || !self.send_stream.waits() {
            ready!(self.send_stream.poll_sent(cx)).map_err(io::Error::other)?;
        }
        let n = data.len().min(PIECE);
        self.send_stream.push_data(&data[..n]);
        self.left = self.left.map(|left| left - n as u64);
        if self.left == Some(0) {
            self.finish();
        }
        Poll::Ready(Ok(n))
    }

    fn end(&mut self, trailers: Option<&Headers>) -> io::Result<()> {
        if self.ended {
            return Ok(());
        }
        if self.left.is_some() {
            return Err(invalid("the body is shorter than its Content-Length"));
        }
        if let Some(trailers) = trailers {
            let fields = write_fields(trailers, KnownSet::of(&[])).0;
            self.send_stream.push_trailers(&fields);
        }
        self.finish();
        Ok(())
    }

    /// Here it also shows whether somebody still waits for more.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.ended && self.poll_stopped(cx).is_ready() {
            return Poll::Ready(Err(gone()));
        }
        self.send_stream.poll_sent(cx).map_err(io::Error::other)
    }

    fn deadline(&mut self) -> &mut Deadline {
        &mut self.deadline
    }

    fn has_begun(&self) -> bool {
        self.begun
    }

    /// Other requests go on; what is left of this one is thrown away.
    fn close_after(&mut self) {}

    fn retract(&mut self) -> bool {
        let retracts = self.begun && !self.ended && self.send_stream.waits();
        if retracts {
            self.send_stream.retract();
            (self.begun, self.has_data, self.left) = (false, false, None);
        }
        retracts
    }

    fn poll_hand_over(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush(cx))?;
        self.turns.poll(cx).map(Ok)
    }

    /// What is on its way may arrive.
    fn unsent(&self) -> u64 {
        if self.send_stream.waits() { u64::MAX } else { 0 }
    }

    fn abort(&mut self, code: AbortCode) {
        self.send_stream.reset(match code {
            AbortCode::Cancelled => Code::H3_REQUEST_CANCELLED,
            AbortCode::Failed => Code::H3_INTERNAL_ERROR,
        });
        self.begun = true;
        self.ended = true;
    }
}

fn gone() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
