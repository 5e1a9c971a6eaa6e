//! The client of one HTTP/2 stream.

use super::body::{Incoming, Outgoing, gone};
use super::fields::write_fields;
use crate::answer::Failure;
use crate::client::Client;
use crate::deadline::Deadline;
use crate::exchange::Exchange;
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::header::{CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT};
use http::{HeaderMap, Response, StatusCode};
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use weir_http1::{Framing, Headers, Known, KnownSet, Method, Reject, RequestHead};

const LENGTH: KnownSet = KnownSet::of(&[Known::ContentLength]);

/// How long a client may go on sending a request that was answered.
const LINGER: Duration = Duration::from_secs(1);

/// A client that speaks HTTP/2, as one of its streams shows it.
pub(super) struct Http2 {
    request: Incoming,
    respond: SendResponse<Bytes>,
    response: Outgoing,
    framing: Framing,
    is_head: bool,
    expects_continue: bool,
    deadline: Deadline,
    /// It took its request back before it had a response.
    pub(super) taken_back: bool,
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
        Self {
            request: Incoming::new(body, ended, most),
            respond,
            response: Outgoing::default(),
            framing: head.framing,
            is_head: head.method == Method::Head,
            expects_continue: head.expect_continue,
            deadline: Deadline::default(),
            taken_back: false,
            begun: false,
            asks_for_tunnel: head.upgrade,
        }
    }

    /// Waits a little for the rest of a request that was answered before its end. Its stream is reset otherwise, and
    /// there are clients that then lose the answer.
    pub(super) async fn linger(&mut self) {
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
            None if self.begun => return Poll::Pending,
            None => self.respond.poll_reset(cx),
        };
        reset.map(|_| self.taken_back |= !self.begun)
    }
}

impl Client for Http2 {
    fn is_head(&self) -> bool {
        self.is_head
    }

    fn framing(&self) -> Framing {
        self.framing
    }

    fn body(&mut self) -> Result<&[u8], Reject> {
        self.request.data()
    }

    fn consume(&mut self, n: usize) {
        self.request.consume(n);
    }

    fn body_is_done(&self) -> bool {
        self.request.is_done()
    }

    fn body_is_buffered(&self) -> bool {
        match self.framing {
            Framing::Length(length) => self.request.is_buffered(Some(length)),
            _ => self.request.is_buffered(None),
        }
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        if std::mem::take(&mut self.expects_continue) && self.request.data().is_ok_and(<[u8]>::is_empty) {
            let mut invitation = Response::new(());
            *invitation.status_mut() = StatusCode::CONTINUE;
            // A client that is gone shows that when it is read from.
            let _ = self.respond.send_informational(invitation);
        }
        let more = ready!(self.request.poll_more(cx));
        self.taken_back |= more.is_err() && !self.begun;
        Poll::Ready(more.map_err(|_| Failure::ClientGone))
    }

    fn trailers(&self) -> Option<&Headers> {
        self.request.trailers()
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_reset(cx)
    }

    fn begin(&mut self, exchange: &Exchange, framing: Framing) -> u64 {
        self.begun = true;
        let status = match exchange.response.status {
            200..300 if self.asks_for_tunnel => 502,
            status => status,
        };
        let bodiless = self.is_head || matches!(status, 204 | 304);
        let length = match framing {
            // A bodiless response may still tell the length that its body would have.
            _ if bodiless && status != 204 => exchange.response.headers.get_known(Known::ContentLength),
            _ => None,
        };
        let (mut fields, bytes) = write_fields(&exchange.response.headers, LENGTH);
        if let Some(length) = length.and_then(|length| length.try_into().ok()) {
            fields.insert(CONTENT_LENGTH, length);
        }
        let left = match framing {
            Framing::Length(n) if !bodiless => {
                fields.insert(CONTENT_LENGTH, n.into());
                Some(n)
            }
            _ => None,
        };
        let is_whole = bodiless || matches!(framing, Framing::None | Framing::Length(0));
        self.start(status, fields, left, is_whole);
        bytes
    }

    fn begin_tunnel(&mut self, exchange: &Exchange) -> u64 {
        self.begun = true;
        self.request.reopen();
        let (mut fields, bytes) = write_fields(&exchange.response.headers, LENGTH);
        fields.remove(SEC_WEBSOCKET_ACCEPT);
        self.start(200, fields, None, false);
        bytes
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_head {
            return Poll::Ready(Ok(data.len()));
        }
        self.response.poll_send(cx, data)
    }

    fn end(&mut self, trailers: Option<&Headers>) -> io::Result<()> {
        self.response.end(trailers)
    }

    /// What was sent is on its way; here it shows whether somebody still waits for more.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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

    fn abort(&mut self) {
        if !self.begun {
            self.respond.send_reset(Reason::INTERNAL_ERROR);
        }
        self.response.reset(Reason::INTERNAL_ERROR);
        self.begun = true;
    }
}

impl Http2 {
    fn start(&mut self, status: u16, fields: HeaderMap, left: Option<u64>, is_whole: bool) {
        let mut response = Response::new(());
        *response.headers_mut() = fields;
        let Ok(status) = StatusCode::from_u16(status) else {
            return self.respond.send_reset(Reason::INTERNAL_ERROR);
        };
        *response.status_mut() = status;
        match self.respond.send_response(response, is_whole) {
            Ok(stream) if !is_whole => self.response = Outgoing::new(Some(stream), left),
            // A client that is gone shows that when it is sent more.
            Ok(_) | Err(_) => {}
        }
    }
}
