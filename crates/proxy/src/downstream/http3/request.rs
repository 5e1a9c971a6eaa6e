//! A request's head over HTTP/3, from its stream to the engine.

use super::quic::{Connection, Stream, number};
use super::sending::SendStream;
use super::stream::Http3;
use crate::downstream::multiplex::InFlightGuard;
use crate::error::RequestError;
use crate::worker::Worker;
use bytes::Bytes;
use h3::error::{Code, StreamError};
use h3::server::{RequestResolver, RequestStream};
use http::header::{CONNECTION, CONTENT_LENGTH, TE, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Request};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use weir_http1::{Limits, ParseError, RequestHead, Version};
use weir_net::multiplex::{self, Arrived, size};

/// A stream whose head has not been read.
pub(super) type Resolver = RequestResolver<Connection, Bytes>;
/// A request and what follows its head.
pub(super) type Resolved = (Request<()>, RequestStream<Stream, Bytes>);

/// Waits for the head. Returns `None` if it is invalid; then the client has got the error.
pub(super) async fn resolve(
    worker: &Worker,
    in_flight: &mut InFlightGuard,
    resolver: Resolver,
    send_stream: &SendStream,
) -> Option<Resolved> {
    let most = worker.options.http3.connection_header_list_size;
    let mut resolving = pin!(resolver.resolve_request());
    let resolved = poll_fn(|cx| match resolving.as_mut().poll(cx) {
        Poll::Ready(resolved) => Poll::Ready(resolved.map_err(Some)),
        Poll::Pending if in_flight.resize(send_stream.heads.get(), most) => Poll::Ready(Err(None)),
        Poll::Pending => Poll::Pending,
    });
    let resolved = tokio::time::timeout(worker.options.client_header_timeout, resolved).await;
    let error = match resolved {
        Ok(Ok((request, stream))) if !in_flight.resize(size(&request), most) => {
            return Some((request, stream));
        }
        Ok(Ok(_) | Err(None)) => {
            send_stream.reset(number(Code::H3_REQUEST_REJECTED));
            return None;
        }
        Ok(Err(Some(error))) => error,
        Err(_) => {
            send_stream.reset(number(Code::H3_REQUEST_INCOMPLETE));
            return None;
        }
    };
    refused(worker, in_flight, send_stream, &error).await;
    None
}

/// What came was no request. The `h3` crate has broken the stream off, or answered that its head is too large.
async fn refused(worker: &Worker, in_flight: &InFlightGuard, send_stream: &SendStream, error: &StreamError) {
    match error {
        StreamError::RemoteTerminate { .. } if send_stream.refused.get().is_none() => {
            in_flight.stats.resets.broken(1);
        }
        error => {
            let client = in_flight.stats.connection.peer;
            tracing::debug!(%client, "a request over HTTP/3 was refused: {error}");
            let is_malformed = !matches!(error, StreamError::HeaderTooBig { .. });
            in_flight.stats.resets.broken(is_malformed.into());
        }
    }
    if !matches!(error, StreamError::HeaderTooBig { .. }) {
        return send_stream.reset(number(Code::H3_REQUEST_CANCELLED));
    }
    send_stream.end();
    // A client that does not take it is gone.
    let _ = tokio::time::timeout(worker.options.send_timeout, poll_fn(|cx| send_stream.poll_done(cx))).await;
}

/// Fills the head with a request, and sees how its body is framed.
pub(super) async fn read(
    head: &mut RequestHead,
    parts: &Parts,
    client: &mut Http3,
    limits: &Limits,
) -> Result<(), RequestError> {
    let read = read_message(head, parts, client, limits).await;
    client.begin_exchange(head);
    read
}

async fn read_message(
    head: &mut RequestHead,
    parts: &Parts,
    client: &mut Http3,
    limits: &Limits,
) -> Result<(), RequestError> {
    read_head(head, parts, limits).map_err(RequestError::Rejected)?;
    if client.has_fragment() {
        return Err(RequestError::Rejected(ParseError::TargetFragment));
    }
    let is_over = !parts.headers.contains_key(CONTENT_LENGTH) && {
        let has_mostly_none = [Method::GET, Method::HEAD, Method::OPTIONS, Method::DELETE];
        client.look(has_mostly_none.contains(&parts.method)).await?;
        client.is_over()
    };
    multiplex::framing(head, &parts.headers, is_over).map_err(RequestError::Rejected)
}

/// What the `h3` crate leaves unchecked is refused here (RFC 9114, 4.2 and 4.3).
fn read_head(head: &mut RequestHead, parts: &Parts, limits: &Limits) -> Result<(), ParseError> {
    multiplex::read_request(head, &Arrived { parts, version: Version::Http3, line: None }, limits)?;
    let goes_somewhere = parts.uri.scheme().is_some() && parts.uri.path_and_query().is_some();
    if parts.method != Method::CONNECT && !goes_somewhere {
        return Err(ParseError::Target);
    }
    if has_fields_of_connection(&parts.headers) {
        return Err(ParseError::ConnectionSpecificField);
    }
    if parts.headers.get_all(CONTENT_LENGTH).iter().count() > 1 {
        return Err(ParseError::ContentLengthRepeated);
    }
    Ok(())
}

fn has_fields_of_connection(fields: &HeaderMap) -> bool {
    const NAMES: [HeaderName; 5] = [
        CONNECTION,
        TRANSFER_ENCODING,
        UPGRADE,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
    ];
    NAMES.iter().any(|name| fields.contains_key(name))
        || fields.get_all(TE).iter().any(|value| value.as_bytes() != b"trailers")
}
