//! The HTTP/1.1 client: sends a request on a pooled connection and reads the response.

use super::balance::Lease;
use super::pool::UpstreamConnection;
use super::{
    HeadProgress, MAX_INTERIM_RESPONSES, Progress, ResponseSlot, Upstream, UpstreamError, UpstreamRequest,
};
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use weir_http1::{Framing, Headers, Known, Limits, ParseError, ResponseHead, encode};

impl Upstream for UpstreamConnection {
    fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    fn lease(&mut self) -> &mut Option<Lease> {
        &mut self.lease
    }

    fn begin<R: UpstreamRequest>(&mut self, request: &R) {
        self.requests += 1;
        (self.interim, self.has_more) = (0, false);
        write_head(self.wire.outbox.writable(), request);
        self.wire.begin_writing(request.framing());
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
        response: &mut ResponseSlot<'_>,
        limits: &Limits,
    ) -> Poll<Result<HeadProgress, UpstreamError>> {
        if std::mem::take(&mut self.has_more) {
            match self.parse_head(response, limits) {
                Ok(HeadProgress::Partial) => {}
                progress => return Poll::Ready(progress),
            }
        }
        if self.wire.inbox.is_full() {
            // Fails where the head is as long as it may be, and then nothing more is read.
            self.wire.inbox.grow(limits.max_head_bytes);
        }
        let read = self.wire.poll_fill(cx);
        if read.is_pending() {
            self.wire.release_empty_buffers();
        }
        read.map(|read| match read {
            Ok(0) if self.wire.inbox.is_full() => Err(UpstreamError::Closed(too_large())),
            Ok(0) => Err(UpstreamError::Closed(early())),
            Ok(_) => self.parse_head(response, limits),
            Err(error) => Err(UpstreamError::Closed(error)),
        })
    }

    fn progress(&self) -> Progress {
        if self.wire.touched { Progress::Unknown } else { Progress::Unsent }
    }

    fn lost_idle_connection(&self) -> bool {
        self.is_reused() && self.wire.inbox.is_empty() && self.interim == 0
    }

    /// The end of a reused connection says nothing about the upstream, unless a response had begun.
    fn tells_of_target(&self, error: &UpstreamError) -> bool {
        !(self.lost_idle_connection() && matches!(error, UpstreamError::Closed(_)))
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

    /// Parses the head if it is complete.
    fn parse_head(
        &mut self,
        ResponseSlot { head: response, method, upgrade }: &mut ResponseSlot<'_>,
        limits: &Limits,
    ) -> Result<HeadProgress, UpstreamError> {
        let inbox = &mut self.wire.inbox;
        match response.parse(inbox.bytes(), limits, *method).map_err(UpstreamError::InvalidResponse)? {
            None => return Ok(HeadProgress::Partial),
            Some(consumed) => inbox.consume(consumed),
        }
        if !(100..=199).contains(&response.status) {
            self.wire.begin_reading_response(response.framing);
            return Ok(HeadProgress::Final);
        }
        let changes = response.status == 101;
        if changes && self.wire.outbox.is_empty() && is_agreed(*upgrade, response) {
            return Ok(HeadProgress::Final);
        }
        // Rejects an unrequested upgrade, and an endless stream of interim responses.
        self.interim += 1;
        if changes || self.interim > MAX_INTERIM_RESPONSES {
            let what = "an interim response that was not asked for";
            return Err(UpstreamError::Closed(io::Error::new(io::ErrorKind::InvalidData, what)));
        }
        self.has_more = !self.wire.inbox.is_empty();
        Ok(HeadProgress::Interim)
    }
}

/// Appends the request's head, without the fields of this hop.
fn write_head<R: UpstreamRequest>(out: &mut Vec<u8>, request: &R) {
    out.extend_from_slice(request.method().as_bytes());
    out.push(b' ');
    request.write_target(out);
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    out.extend_from_slice(request.authority().as_bytes());
    out.extend_from_slice(b"\r\n");
    encode::headers_except(out, request.headers(), R::REWRITTEN);
    request.write_forwarded(out);
    if let Some(protocol) = request.upgrade() {
        encode::upgrade(out, protocol);
    }
    if request.takes_trailers() && request.upgrade().is_none() {
        out.extend_from_slice(b"TE: trailers\r\nConnection: TE\r\n");
    }
    match request.framing() {
        Framing::None | Framing::UntilClose => {}
        Framing::Length(n) => encode::content_length(out, n),
        Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
    }
    encode::end(out);
}

/// Whether the response changes to the protocol that was asked for. Requests that ask for one have no body.
fn is_agreed(asked: Option<&str>, response: &ResponseHead) -> bool {
    let got = response.headers.get_known(Known::Upgrade);
    asked.zip(got).is_some_and(|(asked, got)| got.eq_ignore_ascii_case(asked.as_bytes()))
}

fn early() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "closed before a response")
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the response's head is larger than proxy_buffer_size")
}
