//! One request to an upstream over HTTP/2.

use super::connection::Place;
use crate::answer::Failure;
use crate::exchange::Exchange;
use crate::forward::Ask;
use crate::head;
use crate::http2::{read_response, write_request_fields};
use crate::plugin::engine;
use crate::upstream::balance::Lease;
use crate::upstream::{Progress, Upstream};
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
pub(crate) struct Http2Stream {
    place: Place,
    request: Outgoing,
    awaited: Option<ResponseFuture>,
    response: Option<Incoming>,
    /// Why there is no stream.
    failed: Option<io::Error>,
    /// The upstream says that it did nothing with the request.
    refused: bool,
    /// The connection takes no more requests, this one included.
    closing: bool,
    /// The connection broke.
    broke: bool,
    lease: Option<Lease>,
}

impl Http2Stream {
    pub(super) fn new(place: Place) -> Self {
        let (request, awaited, response, failed) = (Outgoing::default(), None, None, None);
        let (refused, closing, broke) = (false, false, false);
        Self { place, request, awaited, response, failed, refused, closing, broke, lease: None }
    }

    fn start(&mut self, request: Request<()>, framing: Framing) -> Result<(), h2::Error> {
        let is_over = matches!(framing, Framing::None | Framing::Length(0));
        let (response, stream) = self.place.connection.requests.clone().send_request(request, is_over)?;
        let left = if let Framing::Length(length) = framing { Some(length) } else { None };
        self.request = Outgoing::new((!is_over).then_some(stream), left).ahead(AHEAD);
        self.awaited = Some(response);
        Ok(())
    }

    fn fail(&mut self, error: h2::Error) -> Failure {
        // GOAWAY names the last request that it let in.
        self.closing |= error.is_go_away() && error.is_remote();
        self.broke |= error.is_io();
        match error.reason() {
            Some(reason) if error.is_reset() && error.is_remote() => {
                self.refused |= reason == Reason::REFUSED_STREAM;
                Failure::UpstreamReset(reason)
            }
            // What came is malformed.
            _ if error.is_reset() && error.is_library() => {
                Failure::UpstreamClosed(io::Error::new(io::ErrorKind::InvalidData, error))
            }
            _ => Failure::UpstreamClosed(broken(error)),
        }
    }
}

/// The request's head as the upstream gets it.
fn request(exchange: &Exchange, ask: &Ask<'_>, authority: &str) -> Option<Request<()>> {
    let mut target = Vec::new();
    engine::write_target(&mut target, exchange, &ask.route.entity, &ask.service.entity);
    let mut parts = Parts::default();
    parts.scheme = Some(if ask.service.is_tls() { Scheme::HTTPS } else { Scheme::HTTP });
    parts.authority = Some(head::authority(exchange, ask, authority).parse().ok()?);
    parts.path_and_query = Some(PathAndQuery::from_maybe_shared(Bytes::from(escaped(target))).ok()?);
    let uri = Uri::from_parts(parts).ok()?;
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(exchange.request.method_str().as_bytes()).ok()?;
    *request.uri_mut() = uri;
    *request.version_mut() = http::Version::HTTP_2;
    *request.headers_mut() = write_request_fields(exchange, ask);
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
        self.place.connection.address
    }

    fn lease(&mut self) -> &mut Option<Lease> {
        &mut self.lease
    }

    fn begin(&mut self, exchange: &Exchange, ask: &Ask<'_>, authority: &str) {
        let Some(request) = request(exchange, ask, authority) else {
            let what = "the request cannot be said in HTTP/2";
            self.failed = Some(io::Error::new(io::ErrorKind::InvalidInput, what));
            return;
        };
        if let Err(error) = self.start(request, ask.framing) {
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
        exchange: &mut Exchange,
        limits: &Limits,
    ) -> Poll<Result<bool, Failure>> {
        let Some(awaited) = &mut self.awaited else {
            return Poll::Ready(Err(Failure::UpstreamClosed(self.failed.take().unwrap_or_else(gone))));
        };
        let response = match ready!(Pin::new(awaited).poll(cx)) {
            Ok(response) => response,
            Err(error) => return Poll::Ready(Err(self.fail(error))),
        };
        self.awaited = None;
        self.place.connection.answered();
        let response = read_response(response, exchange, limits).map_err(Failure::UpstreamGarbage);
        Poll::Ready(response.map(|body| {
            self.response = Some(body);
            true
        }))
    }

    fn progress(&self) -> Progress {
        match self.awaited {
            None => Progress::Unsent,
            Some(_) if self.refused || self.closing => Progress::Refused,
            Some(_) => Progress::Unknown,
        }
    }

    fn lost_kept_connection(&self) -> bool {
        self.awaited.is_none() || self.closing || self.broke && self.place.connection.has_answered()
    }

    /// Nothing does that was not sent, that the upstream left to others, or that a kept connection took with it.
    fn tells_of_target(&self, failure: &Failure) -> bool {
        let ended = matches!(failure, Failure::UpstreamClosed(_) | Failure::UpstreamReset(_));
        !(ended && (self.refused || self.lost_kept_connection()))
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
