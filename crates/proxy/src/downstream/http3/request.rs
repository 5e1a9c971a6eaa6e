//! A request's head over HTTP/3, from its stream to the engine.

use super::code::Code;
use super::frames::Piece;
use super::qpack::Received;
use super::receiving::{Failure, Receiving};
use super::sending::SendStream;
use super::stream::Http3;
use crate::downstream::multiplex::InFlightGuard;
use crate::error::RequestError;
use crate::limits::NodeLimit;
use crate::worker::Worker;
use http::header::{CONNECTION, CONTENT_LENGTH, TE, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Request};
use std::future::poll_fn;
use std::task::Poll;
use weir_http1::{Limits, ParseError, RequestHead, Version};
use weir_net::multiplex::{self, Arrived, size};

/// A request whose head was read, and whether its path has a `#`.
pub(super) type Resolved = (Request<()>, bool);

/// Why there is no request.
enum Unresolved {
    Failed(Failure),
    /// The head is larger than it may be.
    TooLarge,
    /// It is larger than all that the connection may hold.
    Refused,
}

impl Unresolved {
    /// The limit that it has met, if it is one.
    fn limit(&self) -> Option<NodeLimit> {
        match self {
            Self::TooLarge | Self::Failed(Failure::Refused(Code::H3_EXCESSIVE_LOAD)) => {
                Some(NodeLimit::HeadSize)
            }
            Self::Refused => Some(NodeLimit::HeadsSize),
            Self::Failed(_) => None,
        }
    }
}

/// Waits for the head. Returns `None` if it is invalid; then the client has got the error.
pub(super) async fn resolve(
    worker: &Worker,
    in_flight: &mut InFlightGuard,
    receiving: &mut Receiving,
    send_stream: &SendStream,
) -> Option<Resolved> {
    let read = read_fields(worker, in_flight, receiving);
    let Ok(read) = tokio::time::timeout(worker.options.client_header_timeout, read).await else {
        worker.limit_acted(NodeLimit::HeadTime);
        send_stream.reset(Code::H3_REQUEST_INCOMPLETE);
        return None;
    };
    let unresolved = match read.and_then(|received| request(worker, in_flight, receiving, received)) {
        Ok(resolved) => return Some(resolved),
        Err(unresolved) => unresolved,
    };
    unresolved.limit().into_iter().for_each(|limit| worker.limit_acted(limit));
    match unresolved {
        Unresolved::Refused => send_stream.reset(Code::H3_REQUEST_REJECTED),
        Unresolved::TooLarge => too_large(worker, in_flight, send_stream).await,
        Unresolved::Failed(failure) => failed(in_flight, send_stream, failure),
    }
    None
}

async fn read_fields(
    worker: &Worker,
    in_flight: &mut InFlightGuard,
    receiving: &mut Receiving,
) -> Result<Received, Unresolved> {
    let most = worker.options.http3.connection_header_list_size;
    let piece = poll_fn(|cx| match receiving.poll_piece(cx) {
        Poll::Ready(piece) => Poll::Ready(piece.map_err(Unresolved::Failed)),
        Poll::Pending if in_flight.resize(receiving.heads(), most) => Poll::Ready(Err(Unresolved::Refused)),
        Poll::Pending => Poll::Pending,
    });
    match piece.await? {
        Some(Piece::Fields(received)) => Ok(*received),
        // A body cannot come first.
        Some(Piece::Data(_)) | None => Err(Unresolved::Failed(receiving.refuse(Code::H3_REQUEST_INCOMPLETE))),
    }
}

fn request(
    worker: &Worker,
    in_flight: &mut InFlightGuard,
    receiving: &mut Receiving,
    received: Received,
) -> Result<Resolved, Unresolved> {
    let options = &worker.options.http3;
    if received.size > options.max_header_list_size as usize {
        return Err(Unresolved::TooLarge);
    }
    let has_fragment = received.has_fragment();
    let Some(request) = received.into_request() else {
        return Err(Unresolved::Failed(receiving.refuse(Code::H3_MESSAGE_ERROR)));
    };
    match in_flight.resize(size(&request), options.connection_header_list_size) {
        true => Err(Unresolved::Refused),
        false => Ok((request, has_fragment)),
    }
}

fn failed(in_flight: &InFlightGuard, send_stream: &SendStream, failure: Failure) {
    if failure != Failure::Reset {
        let client = in_flight.stats.connection.peer;
        tracing::debug!(%client, "a request over HTTP/3 was refused: {failure}");
    }
    in_flight.stats.resets.broken(1);
    // One that is refused has its error code already.
    send_stream.reset(Code::H3_REQUEST_CANCELLED);
}

async fn too_large(worker: &Worker, in_flight: &InFlightGuard, send_stream: &SendStream) {
    let client = in_flight.stats.connection.peer;
    tracing::debug!(%client, "a request over HTTP/3 was refused: its head is too large");
    send_stream.push_head(431, &HeaderMap::new());
    send_stream.end();
    // A client that does not take it is gone.
    let _ = tokio::time::timeout(worker.options.send_timeout, poll_fn(|cx| send_stream.poll_done(cx))).await;
}

/// Fills the head with a request, and sees how its body is framed.
pub(super) async fn read(
    head: &mut RequestHead,
    (parts, has_fragment): (&Parts, bool),
    client: &mut Http3,
    limits: &Limits,
) -> Result<(), RequestError> {
    let read = read_message(head, (parts, has_fragment), client, limits).await;
    client.begin_exchange(head);
    read
}

async fn read_message(
    head: &mut RequestHead,
    (parts, has_fragment): (&Parts, bool),
    client: &mut Http3,
    limits: &Limits,
) -> Result<(), RequestError> {
    read_head(head, parts, limits).map_err(RequestError::Rejected)?;
    if has_fragment {
        return Err(RequestError::Rejected(ParseError::TargetFragment));
    }
    let is_over = !parts.headers.contains_key(CONTENT_LENGTH) && {
        let has_mostly_none = [Method::GET, Method::HEAD, Method::OPTIONS, Method::DELETE];
        client.look(has_mostly_none.contains(&parts.method)).await?;
        client.is_over()
    };
    multiplex::framing(head, &parts.headers, is_over).map_err(RequestError::Rejected)
}

/// What a head may not say is refused here (RFC 9114, 4.2 and 4.3).
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
