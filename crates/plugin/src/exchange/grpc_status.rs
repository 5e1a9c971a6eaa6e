//! gRPC's status: which requests expect one, and how the gateway's own responses say it.

use super::Exchange;
use std::fmt::Write;
use weir_http1::{Headers, Known, Version};

/// The content type of calls, or how it begins.
pub const CONTENT_TYPE: &[u8] = b"application/grpc";
/// The time for the call is over.
pub const DEADLINE_EXCEEDED: u8 = 4;
/// The upstream cannot be asked now.
pub const UNAVAILABLE: u8 = 14;

/// Whether the client expects a gRPC status. gRPC-Web, which has a content type of its own, does not.
pub fn is_call(exchange: &Exchange) -> bool {
    let content_type = exchange.header(Known::ContentType);
    has_trailers(exchange) && content_type.is_some_and(is_content_type)
}

/// Whether the client speaks a version that a gRPC call may come over.
pub fn has_trailers(exchange: &Exchange) -> bool {
    matches!(exchange.request.version, Version::Http2 | Version::Http3)
}

/// Whether a content type is gRPC's.
pub fn is_content_type(value: &[u8]) -> bool {
    matches!(value.strip_prefix(CONTENT_TYPE), Some([] | [b'+' | b';' | b' ', ..]))
}

/// Says an answer as gRPC does: its status and message among the headers, and no body.
pub fn say(headers: &mut Headers, code: u8, message: Option<&str>) {
    headers.set("Content-Type", CONTENT_TYPE);
    if headers.get("grpc-status").is_some() {
        return;
    }
    headers.append("grpc-status", itoa::Buffer::new().format(code).as_bytes());
    if let Some(message) = message {
        headers.append("grpc-message", encoded(message).as_bytes());
    }
}

/// gRPC's code for an HTTP status: Kong's table, where it has one.
pub fn code(status: u16) -> u8 {
    match status {
        200 => 0,
        499 => 1,
        400 | 414 | 415 | 417 => 3,
        408 | 504 => DEADLINE_EXCEEDED,
        404 => 5,
        409 => 6,
        403 => 7,
        413 | 429 | 431 => 8,
        405 | 501 => 12,
        500 => 13,
        502 | 503 => UNAVAILABLE,
        401 => 16,
        _ => 2,
    }
}

/// As `grpc-message` is written: printable ASCII but `%`, all else percent-encoded.
pub fn encoded(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    for byte in message.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            text.push(byte.into());
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_encoded() {
        assert_eq!(encoded("100% “fine”\n"), "100%25 %E2%80%9Cfine%E2%80%9D%0A");
    }
}
