//! An upstream that speaks HTTP/1.1.

use super::balance::Lease;
use super::pool::UpstreamConnection;
use super::{Progress, Upstream};
use crate::answer::Failure;
use crate::exchange::Exchange;
use crate::forward::Ask;
use crate::head;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use weir_http1::{Headers, Known, Limits, ParseError, ResponseHead};

/// Interim responses (1xx) passed over before a final one; more is abuse.
const INTERIM_RESPONSES: u32 = 16;

impl Upstream for UpstreamConnection {
    fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    fn lease(&mut self) -> &mut Option<Lease> {
        &mut self.lease
    }

    fn begin(&mut self, exchange: &Exchange, ask: &Ask<'_>, authority: &str) {
        self.requests += 1;
        self.interim = 0;
        head::write_request(self.wire.outbox.writable(), exchange, ask, authority);
        self.wire.begin_writing(ask.framing);
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.wire.poll_send(cx, data)
    }

    fn end_body(&mut self, trailers: Option<&Headers>) -> io::Result<()> {
        self.wire.end_body(trailers)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_flush(cx)
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
        limits: &Limits,
    ) -> Poll<Result<bool, Failure>> {
        self.wire.poll_fill(cx).map(|read| match read {
            Ok(0) if self.wire.inbox.is_full() => Err(Failure::UpstreamClosed(too_large())),
            Ok(0) => Err(Failure::UpstreamClosed(early())),
            Ok(_) => self.parse_head(exchange, limits),
            Err(error) => Err(Failure::UpstreamClosed(error)),
        })
    }

    fn progress(&self) -> Progress {
        if self.wire.touched { Progress::Unknown } else { Progress::Unsent }
    }

    fn lost_kept_connection(&self) -> bool {
        self.is_reused() && self.wire.inbox.is_empty() && self.interim == 0
    }

    /// That a kept connection has ended says nothing, unless a response had begun.
    fn tells_of_target(&self, failure: &Failure) -> bool {
        !(self.lost_kept_connection() && matches!(failure, Failure::UpstreamClosed(_)))
    }

    fn body(&mut self) -> Result<&[u8], ParseError> {
        self.wire.body()
    }

    fn consume_body(&mut self, n: usize) {
        self.wire.consume_body(n);
    }

    fn body_is_done(&self) -> bool {
        self.wire.body_is_done()
    }

    fn trailers(&self) -> Option<&Headers> {
        self.wire.trailers()
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_fill(cx).map(|read| match read {
            Ok(0) if !self.wire.end_of_stream() => Err(io::ErrorKind::UnexpectedEof.into()),
            read => read.map(drop),
        })
    }

    fn read_ahead(&mut self, cx: &mut Context<'_>, buffered: bool) -> io::Result<()> {
        while buffered && !self.wire.inbox.is_full() {
            match self.wire.poll_fill(cx) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Err(error)) => return Err(error),
                // An end is found again once what is here was used.
                _ => break,
            }
        }
        Ok(())
    }
}

impl UpstreamConnection {
    fn is_reused(&self) -> bool {
        self.requests > 1
    }

    /// Parses the head if it is complete, passing over interim responses.
    fn parse_head(&mut self, exchange: &mut Exchange, limits: &Limits) -> Result<bool, Failure> {
        let exchange = &mut exchange.public;
        let method = exchange.request.method;
        let response = &mut exchange.response;
        loop {
            let inbox = &mut self.wire.inbox;
            match response.parse(inbox.bytes(), limits, method).map_err(Failure::UpstreamGarbage)? {
                None => return Ok(false),
                Some(consumed) => inbox.consume(consumed),
            }
            if !(100..=199).contains(&response.status) {
                self.wire.begin_reading_response(response.framing);
                return Ok(true);
            }
            let changes = response.status == 101;
            if changes && self.wire.outbox.is_empty() && is_agreed(&exchange.engine.upgrade, response) {
                return Ok(true);
            }
            // A change of protocol that nobody asked for is none, and a stream of interim responses has no end of its own.
            self.interim += 1;
            if changes || self.interim > INTERIM_RESPONSES {
                let what = "an interim response that was not asked for";
                return Err(Failure::UpstreamClosed(io::Error::new(io::ErrorKind::InvalidData, what)));
            }
        }
    }
}

/// Whether the response changes to the protocol that was asked for. Requests that ask for one have no body.
fn is_agreed(asked: &Option<Box<str>>, response: &ResponseHead) -> bool {
    let got = response.headers.get_known(Known::Upgrade);
    asked.as_ref().zip(got).is_some_and(|(asked, got)| got.eq_ignore_ascii_case(asked.as_bytes()))
}

fn early() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "closed before a response")
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the response's head is larger than 64 KiB")
}
