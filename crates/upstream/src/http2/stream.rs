//! The HTTP/2 client: sends one request on a stream of a shared connection and reads the response.

use super::connection::StreamSlot;
use super::fields::{read_interim, read_response, write_fields};
use crate::balance::Lease;
use crate::{
    HeadProgress, MAX_INTERIM_RESPONSES, Progress, ResponseSlot, Upstream, UpstreamError, UpstreamRequest,
};
use bytes::Bytes;
use h2::Reason;
use h2::client::ResponseFuture;
use http::uri::{Parts, PathAndQuery, Scheme};
use http::{Method, Request, Uri};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use weir_http1::{Framing, Headers, Limits, ParseError};
use weir_net::http2::{Incoming, Outgoing, broken, gone};

/// What is sent of a body together with its head. A new stream has no room before the connection's task has opened it,
/// so that every request would be sent in two parts.
const AHEAD: usize = 16 * 1024;

/// One stream.
pub struct Http2Stream {
    slot: StreamSlot,
    request: Outgoing,
    awaited: Option<ResponseFuture>,
    response: Option<Incoming>,
    /// Interim responses so far.
    interim: u32,
    /// Why there is no stream.
    failed: Option<io::Error>,
    /// The upstream reports that it did not process the request.
    refused: bool,
    /// The connection takes no more requests, this one included.
    closing: bool,
    /// The connection broke.
    broke: bool,
    lease: Option<Lease>,
}

impl Http2Stream {
    pub(super) fn new(slot: StreamSlot) -> Self {
        let (request, awaited, response, failed) = (Outgoing::default(), None, None, None);
        let (refused, closing, broke) = (false, false, false);
        Self { slot, request, awaited, response, interim: 0, failed, refused, closing, broke, lease: None }
    }

    fn start(&mut self, request: Request<()>, framing: Framing) -> Result<(), h2::Error> {
        let is_over = matches!(framing, Framing::None | Framing::Length(0));
        let (response, stream) = self.slot.connection.requests.clone().send_request(request, is_over)?;
        let left = if let Framing::Length(length) = framing { Some(length) } else { None };
        self.request = Outgoing::new((!is_over).then_some(stream), left).ahead(AHEAD);
        self.awaited = Some(response);
        Ok(())
    }

    fn fail(&mut self, error: h2::Error) -> UpstreamError {
        // GOAWAY names the last request that the upstream accepted.
        self.closing |= error.is_go_away() && error.is_remote();
        self.broke |= error.is_io();
        match error.reason() {
            Some(reason) if error.is_reset() && error.is_remote() => {
                self.refused |= reason == Reason::REFUSED_STREAM;
                UpstreamError::Reset(reason)
            }
            // What came is malformed.
            _ if error.is_reset() && error.is_library() => {
                UpstreamError::Closed(io::Error::new(io::ErrorKind::InvalidData, error))
            }
            _ => UpstreamError::Closed(broken(error)),
        }
    }
}

/// The request's head as the upstream gets it.
fn head<R: UpstreamRequest>(from: &R) -> Option<Request<()>> {
    let mut target = Vec::new();
    from.write_target(&mut target);
    let mut parts = Parts::default();
    parts.scheme = Some(if from.is_tls() { Scheme::HTTPS } else { Scheme::HTTP });
    parts.authority = Some(from.authority().parse().ok()?);
    parts.path_and_query = Some(PathAndQuery::from_maybe_shared(Bytes::from(escaped(target))).ok()?);
    let uri = Uri::from_parts(parts).ok()?;
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(from.method().as_bytes()).ok()?;
    *request.uri_mut() = uri;
    *request.version_mut() = http::Version::HTTP_2;
    *request.headers_mut() = write_fields(from);
    Some(request)
}

/// What has no place in a URI, and yet stands in queries that HTTP/1.1 lets pass, encoded.
fn escaped(target: Vec<u8>) -> Vec<u8> {
    if memchr::memchr3(b'"', b'<', b'>', &target).is_none() {
        return target;
    }
    let mut escaped = Vec::with_capacity(target.len() + 16);
    for byte in target {
        match byte {
            b'"' => escaped.extend_from_slice(b"%22"),
            b'<' => escaped.extend_from_slice(b"%3C"),
            b'>' => escaped.extend_from_slice(b"%3E"),
            byte => escaped.push(byte),
        }
    }
    escaped
}

impl Upstream for Http2Stream {
    fn address(&self) -> Option<SocketAddr> {
        self.slot.connection.address
    }

    fn lease(&mut self) -> &mut Option<Lease> {
        &mut self.lease
    }

    fn begin<R: UpstreamRequest>(&mut self, request: &R) {
        let Some(head) = head(request) else {
            let what = "the request cannot be said in HTTP/2";
            self.failed = Some(io::Error::new(io::ErrorKind::InvalidInput, what));
            return;
        };
        if let Err(error) = self.start(head, request.framing()) {
            self.failed = Some(broken(error));
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.request.poll_send(cx, data)
    }

    fn end_body(&mut self, trailers: Option<&Headers>) -> io::Result<()> {
        self.request.end(trailers)
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.request.flush())
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        slot: &mut ResponseSlot<'_>,
        limits: &Limits,
    ) -> Poll<Result<HeadProgress, UpstreamError>> {
        let Some(awaited) = &mut self.awaited else {
            return Poll::Ready(Err(UpstreamError::Closed(self.failed.take().unwrap_or_else(gone))));
        };
        if let Some(Ok(interim)) = ready!(awaited.poll_informational(cx)) {
            self.interim += 1;
            if self.interim > MAX_INTERIM_RESPONSES {
                let what = "more interim responses than any request needs";
                return Poll::Ready(Err(UpstreamError::Closed(io::Error::new(
                    io::ErrorKind::InvalidData,
                    what,
                ))));
            }
            let read = read_interim(&interim, slot.head, limits).map_err(UpstreamError::InvalidResponse);
            return Poll::Ready(read.map(|()| HeadProgress::Interim));
        }
        let response = match ready!(Pin::new(awaited).poll(cx)) {
            Ok(response) => response,
            Err(error) => return Poll::Ready(Err(self.fail(error))),
        };
        self.awaited = None;
        self.slot.connection.answered();
        let response = read_response(response, slot.head, limits).map_err(UpstreamError::InvalidResponse);
        Poll::Ready(response.map(|body| {
            self.response = Some(body);
            HeadProgress::Final
        }))
    }

    fn progress(&self) -> Progress {
        match self.awaited {
            None => Progress::Unsent,
            Some(_) if self.refused || self.closing => Progress::Refused,
            Some(_) => Progress::Unknown,
        }
    }

    fn lost_idle_connection(&self) -> bool {
        self.awaited.is_none() || self.closing || self.broke && self.slot.connection.has_answered()
    }

    /// Nothing does that was not sent, that the upstream left to others, or that a kept connection took with it.
    fn tells_of_target(&self, error: &UpstreamError) -> bool {
        let ended = matches!(error, UpstreamError::Closed(_) | UpstreamError::Reset(_));
        !(ended && (self.refused || self.lost_idle_connection()))
    }

    fn body(&mut self) -> Result<&[u8], ParseError> {
        self.response.as_ref().map_or(Ok(&[]), Incoming::data)
    }

    fn consume_body(&mut self, n: usize) {
        if let Some(response) = &mut self.response {
            response.consume(n);
        }
    }

    fn body_is_done(&self) -> bool {
        self.response.as_ref().is_some_and(Incoming::is_done)
    }

    fn trailers(&self) -> Option<&Headers> {
        self.response.as_ref()?.trailers()
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.response {
            Some(response) => response.poll_more(cx).map_err(broken),
            None => Poll::Ready(Err(gone())),
        }
    }

    /// The window lets the upstream send on in either case.
    fn read_ahead(&mut self, cx: &mut Context<'_>, _: bool) -> io::Result<()> {
        self.response.as_mut().map_or(Ok(()), |response| response.read_ahead(cx).map_err(broken))
    }
}
