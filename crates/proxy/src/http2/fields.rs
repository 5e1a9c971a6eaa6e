//! Heads as the `h2` crate has them alone: tunnels, and both messages of an upstream.

use crate::exchange::Exchange;
use crate::forward::Ask;
use crate::head::{REWRITTEN, write_forwarded};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use h2::RecvStream;
use h2::ext::Protocol;
use http::header::{CONTENT_LENGTH, TE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response};
use weir_http1::{Framing, Known, Limits, ParseError, RequestHead, Version};
use weir_model::Uuid;
use weir_net::buffer;
use weir_net::http2::Incoming;
use weir_net::multiplex::{self, Arrived, Fields, read_fields};

/// Fields that a request gets on its way, and about how many bytes they are.
const FORWARDED: usize = 12;
const FORWARDED_BYTES: usize = 512;

/// Fills the head with a request, whose body is over already or follows.
pub(super) fn read_request(
    head: &mut RequestHead,
    parts: &Parts,
    is_over: bool,
    limits: &Limits,
) -> Result<(), ParseError> {
    let protocol = parts.extensions.get::<Protocol>();
    let path = || parts.uri.path_and_query().map(|path| ("GET", path.as_str()));
    let line = protocol.and_then(|_| path());
    multiplex::read_request(head, &Arrived { parts, version: Version::Http2, line }, limits)?;
    match protocol {
        Some(protocol) => ask_for(head, protocol.as_str()),
        None => multiplex::framing(head, &parts.headers, is_over)?,
    }
    Ok(())
}

/// A CONNECT that names a protocol (RFC 8441) asks for what a GET with Upgrade asks for in HTTP/1.1, where a key has to
/// be answered: here the answer is looked at by nobody.
fn ask_for(head: &mut RequestHead, protocol: &str) {
    head.upgrade = true;
    head.headers.append_known(Known::Upgrade, "Upgrade", protocol.as_bytes());
    if protocol.eq_ignore_ascii_case("websocket") {
        let key = STANDARD.encode(Uuid::new_v4().as_bytes());
        head.headers.append("Sec-WebSocket-Key", key.as_bytes());
    }
}

/// Takes a response's head over into the exchange, and returns its body.
pub(crate) fn read_response(
    response: Response<RecvStream>,
    exchange: &mut Exchange,
    limits: &Limits,
) -> Result<Incoming, ParseError> {
    let (parts, body) = response.into_parts();
    if parts.headers.len() > limits.max_fields {
        return Err(ParseError::TooManyFields);
    }
    let head = &mut exchange.response;
    head.clear();
    head.status = parts.status.as_u16();
    (head.version, head.keep_alive, head.upgrade) = (Version::Http2, true, false);
    let is_over = body.is_end_stream();
    head.framing = read_fields(&mut head.headers, &parts.headers, is_over)?;
    Ok(Incoming::of_response(body, is_over, buffer::SIZE))
}

/// A request's fields as an upstream gets them: those of HTTP/1.1, taken apart.
pub(crate) fn write_request_fields(exchange: &Exchange, ask: &Ask<'_>) -> HeaderMap {
    let mut lines = Vec::with_capacity(FORWARDED_BYTES);
    write_forwarded(&mut lines, exchange, ask);
    let mut fields = Fields::new(&exchange.request.headers, FORWARDED, lines.len());
    fields.take(&exchange.request.headers, REWRITTEN);
    let mut rest = &lines[..];
    while let Some(end) = memchr::memchr(b'\n', rest) {
        if let Some(colon) = memchr::memchr(b':', &rest[..end]) {
            fields.append(&rest[..colon], rest[colon + 1..end].trim_ascii());
        }
        rest = &rest[end + 1..];
    }
    let mut fields = fields.map;
    if let Framing::Length(length) = ask.framing {
        fields.insert(CONTENT_LENGTH, length.into());
    }
    if ask.service.is_grpc() {
        fields.insert(TE, HeaderValue::from_static("trailers"));
    }
    fields
}
