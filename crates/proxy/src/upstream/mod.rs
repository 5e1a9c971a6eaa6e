//! Where requests go: endpoints, balancing among them, their health, connecting, and connections kept for reuse.

pub(crate) mod balance;
pub(crate) mod connect;
pub(crate) mod endpoint;
pub mod health;
pub(crate) mod http1;
pub mod http2;
pub mod pool;
pub mod retry_budget;

use crate::answer::Failure;
use crate::exchange::Exchange;
use crate::forward::Ask;
use balance::Lease;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use weir_http1::{Headers, Limits, ParseError};

/// How far a request came that got no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Not a byte of it was sent.
    Unsent,
    /// The upstream says that it did not process it.
    Refused,
    /// The upstream may have processed it.
    Unknown,
}

/// The upstream's half of an exchange, whatever HTTP version it speaks: what a relay asks of it, in order.
pub(crate) trait Upstream {
    /// The other end.
    fn address(&self) -> Option<SocketAddr>;
    /// What counts the request, where the target's requests are counted.
    fn lease(&mut self) -> &mut Option<Lease>;
    /// Starts the request: its head, with a body framed as the ask says.
    fn begin(&mut self, exchange: &Exchange, ask: &Ask<'_>, authority: &str);
    /// Sends some of the request's body, and returns how much.
    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>>;
    /// Ends the request.
    fn end_body(&mut self, trailers: Option<&Headers>) -> io::Result<()>;
    /// Sends all that waits.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Reads towards the response's head; false when more of it has to come.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
        limits: &Limits,
    ) -> Poll<Result<bool, Failure>>;
    /// How far a request came that got no response.
    fn progress(&self) -> Progress;
    /// Whether what ended before a byte of response is a connection that had served others, and no more than that.
    fn lost_kept_connection(&self) -> bool;
    /// Whether the failure, for which no response came, says something of the target's health.
    fn tells_of_target(&self, failure: &Failure) -> bool;
    /// Bytes of the response's body that are here, if any; never waits.
    fn body(&mut self) -> Result<&[u8], ParseError>;
    /// Marks body bytes as used.
    fn consume_body(&mut self, n: usize);
    /// Whether the whole body was received and used.
    fn body_is_done(&self) -> bool;
    /// Trailer fields behind the body.
    fn trailers(&self) -> Option<&Headers>;
    /// Waits for more of the body, or its end; an error where it breaks off.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Takes what is here already, as far as it can be held, while the client is slow; whether responses are to be
    /// buffered, the route says.
    fn read_ahead(&mut self, cx: &mut Context<'_>, buffered: bool) -> io::Result<()>;
}
