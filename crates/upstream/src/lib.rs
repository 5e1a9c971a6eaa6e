//! The gateway's client side: load balancing, health checks, connection pools, HTTP/1.1 and HTTP/2 clients, retries.
//!
//! A [`balance::Balancer`] picks an [`endpoint::Endpoint`] among those that [`health`] reports as available. A worker's
//! [`Pools`] hold its connections to endpoints and open new ones. A connection over either version of HTTP is an
//! [`Upstream`]: it takes an [`UpstreamRequest`], writes its head, sends its body, and fills a [`ResponseSlot`] with
//! the head of the response, whose body is then read from it. Failures are [`UpstreamError`]s; [`retry`] decides whether
//! the request may be sent again, and [`retry_budget`] how often. [`limit`] bounds the requests in flight.
//!
//! This crate knows outgoing requests only: no client of the gateway, no exchange, no plugin, no worker.

mod address_check;
pub mod balance;
pub mod connect;
pub mod endpoint;
mod error;
pub mod health;
pub mod http1;
pub mod http2;
pub mod limit;
pub mod pool;
mod pools;
mod request;
pub mod retry;
pub mod retry_budget;
mod sync;

#[cfg(test)]
mod testing;

pub use error::UpstreamError;
pub use pools::Pools;
pub use request::{ResponseSlot, UpstreamRequest};

use balance::Lease;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use weir_http1::{Headers, Limits, ParseError};

/// How far a request came that got no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Not a byte of it was sent.
    Unsent,
    /// The upstream says that it did not process it.
    Refused,
    /// The upstream may have processed it.
    Unknown,
}

/// How far the head of a response has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadProgress {
    /// More of it has to come.
    Partial,
    /// The slot holds an interim response (1xx); others or the final one follow.
    Interim,
    /// The slot holds the final response.
    Final,
}

/// How many interim responses a request may have; an upstream that sends more is broken.
const MAX_INTERIM_RESPONSES: u32 = 16;

/// The upstream's half of an exchange, whatever HTTP version it speaks: what a relay asks of it, in order.
pub trait Upstream {
    /// The other end.
    fn address(&self) -> Option<SocketAddr>;
    /// What counts the request, where the target's requests are counted.
    fn lease(&mut self) -> &mut Option<Lease>;
    /// Starts the request: its head, with a body framed as it says.
    fn begin<R: UpstreamRequest>(&mut self, request: &R);
    /// Sends some of the request's body, and returns how much.
    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>>;
    /// Ends the request.
    fn end_body(&mut self, trailers: Option<&Headers>) -> io::Result<()>;
    /// Sends all that waits.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Reads towards the response's head. After [`HeadProgress::Interim`] it is to be called again at once.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        response: &mut ResponseSlot<'_>,
        limits: &Limits,
    ) -> Poll<Result<HeadProgress, UpstreamError>>;
    /// How far a request came that got no response.
    fn progress(&self) -> Progress;
    /// Whether what ended before a byte of response is a connection that had served others, and no more than that.
    fn lost_idle_connection(&self) -> bool;
    /// Whether the failure, for which no response came, says something of the target's health.
    fn tells_of_target(&self, error: &UpstreamError) -> bool;
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
