//! The client of one HTTP/2 stream.

use super::fields::{read_trailers, write_fields};
use crate::answer::Failure;
use crate::client::Client;
use crate::deadline::Deadline;
use crate::exchange::Exchange;
use bytes::{Buf, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT};
use http::{HeaderMap, Response, StatusCode};
use std::io;
use std::task::{Context, Poll, ready};
use weir_http1::{Framing, Headers, Known, Method, Reject, RequestHead};

/// A client that speaks HTTP/2, as one of its streams shows it.
pub(super) struct Http2 {
    request: Incoming,
    respond: SendResponse<Bytes>,
    response: Outgoing,
    framing: Framing,
    is_head: bool,
    expects_continue: bool,
    deadline: Deadline,
    /// It took its request back, or the connection broke.
    pub(super) gone: bool,
    begun: bool,
    /// It asks for a tunnel: to it, every 2xx means that there is one.
    asks_for_tunnel: bool,
}

/// A body on its way here.
struct Incoming {
    stream: RecvStream,
    /// Received and not yet used.
    data: Bytes,
    /// Of that, what the sender was not yet told is used.
    unacknowledged: usize,
    ended: bool,
    trailers: Option<Headers>,
    /// The most that is held of it.
    most: usize,
}

/// The response's way out, once it has begun.
#[derive(Default)]
struct Outgoing {
    stream: Option<SendStream<Bytes>>,
    /// What is left of the promised length.
    left: Option<u64>,
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
            request: Incoming {
                stream: body,
                data: Bytes::new(),
                unacknowledged: 0,
                ended,
                trailers: None,
                most,
            },
            respond,
            response: Outgoing::default(),
            framing: head.framing,
            is_head: head.method == Method::Head,
            expects_continue: head.expect_continue,
            deadline: Deadline::default(),
            gone: false,
            begun: false,
            asks_for_tunnel: head.upgrade,
        }
    }

    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let reset = match &mut self.response.stream {
            Some(stream) => stream.poll_reset(cx),
            None if self.begun => return Poll::Pending,
            None => self.respond.poll_reset(cx),
        };
        reset.map(|_| self.gone = true)
    }
}

impl Incoming {
    /// Receives a piece behind what is here.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        if let Some(data) = ready!(self.stream.poll_data(cx)) {
            self.hold(data?);
            return Poll::Ready(Ok(()));
        }
        let trailers = ready!(self.stream.poll_trailers(cx))?;
        self.trailers = trailers.map(|fields| read_trailers(&fields)).filter(|fields| !fields.is_empty());
        self.ended = true;
        Poll::Ready(Ok(()))
    }

    fn hold(&mut self, data: Bytes) {
        let received = data.len();
        if self.data.is_empty() {
            self.data = data;
        } else {
            // Held until it is whole: the window must not stay closed to other streams meanwhile.
            self.acknowledge(usize::MAX);
            let mut joined = std::mem::take(&mut self.data)
                .try_into_mut()
                .unwrap_or_else(|held| BytesMut::from(&held[..]));
            joined.extend_from_slice(&data);
            self.data = joined.freeze();
        }
        self.unacknowledged += received;
    }

    fn consume(&mut self, n: usize) {
        self.data.advance(n);
        self.acknowledge(n);
    }

    /// Lets the sender send so much more.
    fn acknowledge(&mut self, n: usize) {
        let n = n.min(self.unacknowledged);
        self.unacknowledged -= n;
        // An error is that of a stream that has ended: there is nothing more to send.
        let _ = self.stream.flow_control().release_capacity(n);
    }
}

impl Outgoing {
    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Err(gone())) };
        if self.left.is_some_and(|left| data.len() as u64 > left) {
            return Poll::Ready(Err(invalid("the body is longer than its Content-Length")));
        }
        stream.reserve_capacity(data.len());
        if stream.capacity() == 0 {
            match ready!(stream.poll_capacity(cx)) {
                Some(room) => room.map_err(broken)?,
                None => return Poll::Ready(Err(gone())),
            };
        }
        let n = stream.capacity().min(data.len());
        let left = self.left.map(|left| left - n as u64);
        stream.send_data(Bytes::copy_from_slice(&data[..n]), left == Some(0)).map_err(broken)?;
        self.left = left;
        if left == Some(0) {
            self.stream = None;
        }
        Poll::Ready(Ok(n))
    }

    fn end(&mut self, trailers: Option<&Headers>) -> io::Result<()> {
        let Some(mut stream) = self.stream.take() else { return Ok(()) };
        if self.left.is_some() {
            self.stream = Some(stream);
            return Err(invalid("the body is shorter than its Content-Length"));
        }
        match trailers {
            None => stream.send_data(Bytes::new(), true).map_err(broken),
            Some(trailers) => stream.send_trailers(write_fields(trailers).0).map_err(broken),
        }
    }
}

impl Client for Http2 {
    fn framing(&self) -> Framing {
        self.framing
    }

    fn body(&mut self) -> Result<&[u8], Reject> {
        Ok(&self.request.data)
    }

    fn consume(&mut self, n: usize) {
        self.request.consume(n);
    }

    fn body_is_done(&self) -> bool {
        self.request.ended && self.request.data.is_empty()
    }

    fn body_is_buffered(&self) -> bool {
        let whole = matches!(self.framing, Framing::Length(n) if self.request.data.len() as u64 >= n);
        whole || self.request.ended || self.request.data.len() >= self.request.most
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        if std::mem::take(&mut self.expects_continue) && self.request.data.is_empty() {
            let mut invitation = Response::new(());
            *invitation.status_mut() = StatusCode::CONTINUE;
            // A client that is gone shows that when it is read from.
            let _ = self.respond.send_informational(invitation);
        }
        let more = ready!(self.request.poll_more(cx));
        self.gone |= more.is_err();
        Poll::Ready(more.map_err(|_| Failure::ClientGone))
    }

    fn trailers(&self) -> Option<&Headers> {
        self.request.trailers.as_ref()
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
        let (mut fields, bytes) = write_fields(&exchange.response.headers);
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
        self.start(status, fields, bodiless || matches!(framing, Framing::None | Framing::Length(0)));
        self.response.left = left;
        bytes
    }

    fn begin_tunnel(&mut self, exchange: &Exchange) -> u64 {
        self.begun = true;
        self.request.ended = false;
        let (mut fields, bytes) = write_fields(&exchange.response.headers);
        fields.remove(SEC_WEBSOCKET_ACCEPT);
        self.start(200, fields, false);
        bytes
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let sent = self.response.poll_send(cx, data);
        self.gone |= matches!(sent, Poll::Ready(Err(_)));
        sent
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
        match self.response.stream.take() {
            Some(mut stream) => stream.send_reset(Reason::INTERNAL_ERROR),
            None if self.begun => {}
            None => self.respond.send_reset(Reason::INTERNAL_ERROR),
        }
        self.begun = true;
    }
}

impl Http2 {
    fn start(&mut self, status: u16, fields: HeaderMap, is_whole: bool) {
        let mut response = Response::new(());
        *response.headers_mut() = fields;
        let Ok(status) = StatusCode::from_u16(status) else {
            return self.respond.send_reset(Reason::INTERNAL_ERROR);
        };
        *response.status_mut() = status;
        match self.respond.send_response(response, is_whole) {
            Ok(stream) if !is_whole => self.response.stream = Some(stream),
            Ok(_) => {}
            Err(_) => self.gone = true,
        }
    }
}

fn gone() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

fn broken(error: h2::Error) -> io::Error {
    if error.is_io() { error.into_io().unwrap_or_else(gone) } else { io::Error::other(error) }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
