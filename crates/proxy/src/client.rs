//! The interface between the pipeline and a client, for every version of HTTP.

use crate::error::RequestError;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use weir_http1::{Framing, Headers, ParseError, ResponseHead};
use weir_net::deadline::Deadline;
use weir_plugin::Exchange;

/// What the pipeline asks of a client, in the order in which it asks.
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
    /// Whether the whole body was received to its end, be it used or not.
    fn body_has_ended(&self) -> bool;
    /// Whether [`Client::body`] returns all that is left of the body. Its end may yet have to come, and trailers.
    fn body_is_whole(&self) -> bool;
    /// How many bytes of the body are in the buffers.
    fn buffered(&self) -> usize;
    /// Whether the whole body stands in the buffers, or fills them.
    fn body_is_buffered(&self) -> bool;
    /// Lets others of the client's requests send as much more, although so many body bytes are kept.
    fn acknowledge(&mut self, _: usize) {}
    /// Waits for more of the body. Invites the client to send it where it waits to be asked.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RequestError>>;
    /// Receives what has arrived while no task reads the body, if it would otherwise be buffered in pieces.
    fn read_ahead(&mut self, _: &mut Context<'_>) {}
    /// Trailer fields behind the request's body.
    fn trailers(&self) -> Option<&Headers>;
    /// Ready when the client left while it should be waiting for its response.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;
    /// Passes on an interim response of the upstream, unless this client gets none of its kind.
    fn send_interim(&mut self, interim: &ResponseHead);
    /// Has the rest of the request's body thrown away behind the response, so that the connection can go on; false if it
    /// has to end instead.
    fn discard_body(&mut self) -> bool {
        true
    }
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
    /// What was sent must not look complete: ends the connection, or the stream with this code, with nothing more.
    fn abort(&mut self, code: AbortCode);
}

/// What a stream that is aborted is reset with. HTTP/1.1 has no codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AbortCode {
    /// The other side gave the exchange up, or its time is over: CANCEL, H3_REQUEST_CANCELLED.
    Cancelled,
    /// INTERNAL_ERROR, H3_INTERNAL_ERROR.
    Failed,
}

/// Waits for the future; none, when the client left before.
pub(crate) async fn unless_gone<C: Client, T>(client: &mut C, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending if client.body_is_whole() => client.poll_gone(cx).map(|()| None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// Whether the client has left, as far as that can be known before its body is here.
pub(crate) async fn is_gone<C: Client>(client: &mut C) -> bool {
    poll_fn(|cx| Poll::Ready(client.body_is_whole() && client.poll_gone(cx).is_ready())).await
}

/// The longest waits between two successful operations, each for one side and direction.
#[derive(Clone, Copy)]
pub(crate) struct Timeouts {
    pub(crate) write: Duration,
    pub(crate) read: Duration,
    pub(crate) client_body: Duration,
    pub(crate) client_send: Duration,
    /// The least bytes a second of a request's body whose length is known, behind the first `client_body`; 0 is any.
    pub(crate) client_body_rate: u32,
    /// When all of it has to be over, where the client says so.
    pub(crate) ends: Option<Instant>,
}

/// How long before the end of a call its server may find that its time is over: clocks differ by less.
const CLOCKS_DIFFER: Duration = Duration::from_millis(10);

impl Timeouts {
    /// Whether the deadline has passed, allowing for the clock of an upstream that received the same deadline.
    pub(crate) fn are_over(&self) -> bool {
        self.ends.is_some_and(|ends| ends <= Instant::now() + CLOCKS_DIFFER)
    }

    /// How long a client may take for so many bytes of its body, and for the next; none if it may take its time.
    pub(crate) fn body_time(&self, bytes: u64) -> Option<Duration> {
        let rate = self.client_body_rate;
        (rate > 0).then(|| self.client_body + Duration::from_secs_f64(bytes as f64 / f64::from(rate)))
    }

    /// So long, or until all has to be over.
    pub(crate) fn at_most(&self, now: Instant, timeout: Duration) -> Duration {
        match self.ends {
            None => timeout,
            Some(ends) => timeout.min(ends.saturating_duration_since(now)),
        }
    }
}
