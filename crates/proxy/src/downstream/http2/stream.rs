//! One HTTP/2 stream as a client of the pipeline.

use crate::client::{AbortCode, Client};
use crate::downstream::multiplex::{LINGER, SendTurns};
use crate::error::RequestError;
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::header::SEC_WEBSOCKET_ACCEPT;
use http::{HeaderMap, Response, StatusCode};
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use tokio::time::Instant;
use weir_http1::{Framing, Headers, Known, KnownSet, Method, ParseError, RequestHead, ResponseHead};
use weir_net::deadline::Deadline;
use weir_net::http2::{Incoming, Outgoing, gone};
use weir_net::multiplex::{Start, write_fields};
use weir_plugin::Exchange;

const LENGTH: KnownSet = KnownSet::of(&[Known::ContentLength]);

/// A client that speaks HTTP/2, as one of its streams shows it.
pub(super) struct Http2 {
    request: Incoming,
    respond: SendResponse<Bytes>,
    /// The head of a response whose body follows, until some of it has to leave: so far, another can take its place.
    unsent: Option<Response<()>>,
    response: Outgoing,
    /// What an abort waits for.
    turns: SendTurns,
    framing: Framing,
    is_head: bool,
    expects_continue: bool,
    /// The client got a 100, and goes on with its body.
    continues: bool,
    deadline: Deadline,
    /// It took its request back before it had a response.
    pub(super) cancelled: bool,
    begun: bool,
    /// It asks for a tunnel: to it, every 2xx means that there is one.
    asks_for_tunnel: bool,
}

impl Http2 {
    pub(super) fn new(
        head: &RequestHead,
        body: RecvStream,
        respond: SendResponse<Bytes>,
        most: usize,
    ) -> Self {
        let ended = head.framing == Framing::None;
        let request = Incoming::new(body, ended, most);
        let request = match head.framing {
            Framing::Length(length) => request.of_length(length),
            _ => request,
        };
        Self {
            request,
            respond,
            unsent: None,
            response: Outgoing::default(),
            turns: SendTurns::default(),
            framing: head.framing,
            is_head: head.method == Method::Head,
            expects_continue: head.expect_continue,
            continues: false,
            deadline: Deadline::default(),
            cancelled: false,
            begun: false,
            asks_for_tunnel: head.upgrade,
        }
    }

    /// Waits a little for the rest of a request that was answered before its end. Its stream is reset otherwise, and
    /// there are clients that then lose the answer.
    pub(super) async fn linger(&mut self) {
        if self.request.has_ended() {
            return;
        }
        self.deadline.set(Instant::now(), LINGER);
        poll_fn(|cx| match self.request.poll_discard(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => self.deadline.poll(cx),
        })
        .await;
    }

    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let reset = match self.response.poll_reset(cx) {
            Some(reset) => reset,
            None if self.begun && self.unsent.is_none() => return Poll::Pending,
            None => self.respond.poll_reset(cx),
        };
        reset.map(|_| self.cancelled |= !self.begun)
    }
}

impl Client for Http2 {
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

    fn acknowledge(&mut self, n: usize) {
        self.request.acknowledge(n);
    }

    fn body_is_buffered(&self) -> bool {
        self.request.is_buffered()
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RequestError>> {
        if std::mem::take(&mut self.expects_continue) && self.request.data().is_ok_and(<[u8]>::is_empty) {
            self.continues = true;
            let mut invitation = Response::new(());
            *invitation.status_mut() = StatusCode::CONTINUE;
            // A client that is gone shows that when it is read from.
            let _ = self.respond.send_informational(invitation);
        }
        let more = ready!(self.request.poll_more(cx));
        self.cancelled |= more.is_err() && !self.begun;
        Poll::Ready(more.map_err(|_| RequestError::ClientGone))
    }

    fn read_ahead(&mut self, cx: &mut Context<'_>) {
        // Ignores the error, because the next read returns it again.
        let _ = self.request.read_ahead(cx);
    }

    fn trailers(&self) -> Option<&Headers> {
        self.request.trailers()
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_reset(cx)
    }

    fn send_interim(&mut self, interim: &ResponseHead) {
        if interim.status == 100 && std::mem::replace(&mut self.continues, true) {
            return;
        }
        self.expects_continue &= interim.status != 100;
        if let Some(interim) = response(interim.status, write_fields(&interim.headers, LENGTH).0) {
            // A client that is gone shows that when it is sent more.
            let _ = self.respond.send_informational(interim);
        }
    }

    fn begin(&mut self, exchange: &Exchange, framing: Framing) -> u64 {
        self.begun = true;
        let status = match exchange.response.status {
            200..300 if self.asks_for_tunnel => 502,
            status => status,
        };
        let start = Start::of(&exchange.response.headers, framing, status, self.is_head);
        let Some(response) = response(status, start.fields) else {
            self.respond.send_reset(Reason::INTERNAL_ERROR);
            return start.bytes;
        };
        self.response = Outgoing::new(None, start.left);
        if start.is_whole {
            self.start(response, true);
        } else {
            self.unsent = Some(response);
        }
        start.bytes
    }

    fn begin_tunnel(&mut self, exchange: &Exchange) -> u64 {
        self.begun = true;
        self.request.reopen();
        let (mut fields, bytes) = write_fields(&exchange.response.headers, LENGTH);
        fields.remove(SEC_WEBSOCKET_ACCEPT);
        if let Some(response) = response(200, fields) {
            self.start(response, false);
        }
        bytes
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_head {
            return Poll::Ready(Ok(data.len()));
        }
        if self.unsent.is_some() {
            if let Some(held) = self.response.hold_first(data) {
                return Poll::Ready(Ok(held));
            }
            self.open();
        }
        self.response.poll_send(cx, data)
    }

    fn end(&mut self, trailers: Option<&Headers>) -> io::Result<()> {
        self.open();
        self.response.end(trailers)
    }

    /// Here it also shows whether somebody still waits for more.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.open();
        self.response.flush()?;
        match self.poll_reset(cx) {
            Poll::Ready(()) => Poll::Ready(Err(gone())),
            Poll::Pending => Poll::Ready(Ok(())),
        }
    }

    fn deadline(&mut self) -> &mut Deadline {
        &mut self.deadline
    }

    fn has_begun(&self) -> bool {
        self.begun
    }

    /// Other streams go on; one whose request was not read to its end is reset by the `h2` crate.
    fn close_after(&mut self) {}

    fn retract(&mut self) -> bool {
        let retracts = self.unsent.take().is_some();
        if retracts {
            self.begun = false;
            self.response = Outgoing::default();
        }
        retracts
    }

    fn poll_hand_over(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush(cx))?;
        self.turns.poll(cx).map(Ok)
    }

    /// What the crate was given is its own.
    fn unsent(&self) -> u64 {
        if self.unsent.is_some() { u64::MAX } else { 0 }
    }

    fn abort(&mut self, code: AbortCode) {
        let reason = match code {
            AbortCode::Cancelled => Reason::CANCEL,
            AbortCode::Failed => Reason::INTERNAL_ERROR,
        };
        if !self.begun || self.unsent.take().is_some() {
            self.respond.send_reset(reason);
        }
        self.response.reset(reason);
        self.begun = true;
    }
}

impl Http2 {
    /// Sends the head that waits, if one does.
    fn open(&mut self) {
        if let Some(response) = self.unsent.take() {
            self.start(response, false);
        }
    }

    fn start(&mut self, response: Response<()>, is_whole: bool) {
        match self.respond.send_response(response, is_whole) {
            Ok(stream) if !is_whole => self.response.open(stream),
            // A client that is gone shows that when it is sent more.
            Ok(_) | Err(_) => {}
        }
    }
}

/// A response's head, if it can be said.
fn response(status: u16, fields: HeaderMap) -> Option<Response<()>> {
    let mut response = Response::new(());
    *response.headers_mut() = fields;
    *response.status_mut() = StatusCode::from_u16(status).ok()?;
    Some(response)
}
