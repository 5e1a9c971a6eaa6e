//! Converts heads between the types of the `h2` crate and the engine's.

use crate::UpstreamRequest;
use h2::RecvStream;
use http::header::{CONTENT_LENGTH, TE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use weir_http1::{Framing, Limits, ParseError, ResponseHead, Version};
use weir_net::buffer;
use weir_net::http2::Incoming;
use weir_net::multiplex::{Fields, read_fields};

/// Fields that a request gets on its way, and about how many bytes they are.
const FORWARDED: usize = 12;
const FORWARDED_BYTES: usize = 512;

/// Takes a response's head over, and returns its body.
pub(super) fn read_response(
    response: Response<RecvStream>,
    head: &mut ResponseHead,
    limits: &Limits,
) -> Result<Incoming, ParseError> {
    let (parts, body) = response.into_parts();
    if parts.headers.len() > limits.max_fields {
        return Err(ParseError::TooManyFields);
    }
    head.clear();
    head.status = parts.status.as_u16();
    (head.version, head.keep_alive, head.upgrade) = (Version::Http2, true, false);
    let is_over = body.is_end_stream();
    head.framing = read_fields(&mut head.headers, &parts.headers, is_over)?;
    Ok(Incoming::of_response(body, is_over, buffer::SIZE))
}

/// Takes an interim response over. There is no 101 in HTTP/2 (RFC 9113, 8.6): a client of HTTP/1.1 would take what follows
/// for another protocol.
pub(super) fn read_interim(
    response: &Response<()>,
    head: &mut ResponseHead,
    limits: &Limits,
) -> Result<(), ParseError> {
    if response.headers().len() > limits.max_fields {
        return Err(ParseError::TooManyFields);
    }
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err(ParseError::StatusLine);
    }
    head.clear();
    (head.status, head.version) = (response.status().as_u16(), Version::Http2);
    read_fields(&mut head.headers, response.headers(), true).map(drop)
}

/// A request's fields as an upstream gets them: those of HTTP/1.1, taken apart.
pub(super) fn write_fields<R: UpstreamRequest>(request: &R) -> HeaderMap {
    let mut lines = Vec::with_capacity(FORWARDED_BYTES);
    request.write_forwarded(&mut lines);
    let mut fields = Fields::new(request.headers(), FORWARDED, lines.len());
    fields.take(request.headers(), R::REWRITTEN);
    let mut rest = &lines[..];
    while let Some(end) = memchr::memchr(b'\n', rest) {
        if let Some(colon) = memchr::memchr(b':', &rest[..end]) {
            fields.append(&rest[..colon], rest[colon + 1..end].trim_ascii());
        }
        rest = &rest[end + 1..];
    }
    let mut fields = fields.map;
    if let Framing::Length(length) = request.framing() {
        fields.insert(CONTENT_LENGTH, length.into());
    }
    if request.is_grpc() || request.takes_trailers() {
        fields.insert(TE, HeaderValue::from_static("trailers"));
    }
    fields
}
