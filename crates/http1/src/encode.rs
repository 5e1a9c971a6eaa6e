//! Messages to bytes: each function appends to a buffer that the caller keeps.
//!
//! A head is a start line, fields and [`end`]. A chunk is [`chunk_header`], its data and [`CRLF`]; a chunked body ends
//! with [`LAST_CHUNK`] or [`trailers`].

use crate::fields::Headers;
use crate::known::KnownSet;
use crate::syntax::write_line;

/// What ends every line, and the data of every chunk.
pub const CRLF: &[u8] = b"\r\n";

/// The end of a chunked body without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// `METHOD target HTTP/1.1`, the target given in pieces. Method and target must hold no space and no control
/// character, as those of a parsed head do.
pub fn request_line(out: &mut Vec<u8>, method: &str, target: &[&[u8]]) {
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    for piece in target {
        out.extend_from_slice(piece);
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

/// `HTTP/1.1 status reason`; a status without a registered reason gets none.
pub fn status_line(out: &mut Vec<u8>, status: u16) {
    let line = registered_line(status);
    if line.is_empty() {
        status_line_with(out, status, b"");
    } else {
        out.extend_from_slice(line);
    }
}

/// `HTTP/1.1 status reason`, with a reason phrase that was parsed.
pub fn status_line_with(out: &mut Vec<u8>, status: u16, reason: &[u8]) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
    out.push(b' ');
    out.extend_from_slice(reason);
    out.extend_from_slice(CRLF);
}

/// Whether a status line, of whichever version and without its end, has the registered reason phrase.
#[inline]
pub(crate) fn is_registered(status: u16, line: &[u8]) -> bool {
    let behind_version = |line| <[u8]>::get(line, "HTTP/1.1".len()..);
    registered_line(status).strip_suffix(CRLF).is_some_and(|own| behind_version(own) == behind_version(line))
}

/// One field. Name and value are those of a parsed message or the gateway's own: the name a token, the value without CR,
/// LF and NUL. What comes from elsewhere goes through [`Headers`], which sees to that.
#[inline(always)]
pub fn header(out: &mut Vec<u8>, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
    write_line(out, name.as_ref(), value.as_ref());
}

/// All fields, in order.
pub fn headers(out: &mut Vec<u8>, headers: &Headers) {
    headers.write_to(out, KnownSet::of(&[]));
}

/// All fields but those of these names, in order.
pub fn headers_except(out: &mut Vec<u8>, headers: &Headers, but: KnownSet) {
    headers.write_to(out, but);
}

/// A Content-Length field.
pub fn content_length(out: &mut Vec<u8>, length: u64) {
    out.extend_from_slice(b"Content-Length: ");
    out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    out.extend_from_slice(CRLF);
}

/// The lines that ask for, or agree to, a change of protocol.
pub fn upgrade(out: &mut Vec<u8>, protocol: &str) {
    header(out, b"Connection", b"Upgrade");
    header(out, b"Upgrade", protocol);
}

/// The empty line that ends a head.
pub fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(CRLF);
}

/// The size line of a chunk of `length` bytes. A chunk of none would end the body: send no empty chunks.
pub fn chunk_header(out: &mut Vec<u8>, length: usize) {
    let digits = (usize::BITS - length.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        out.push(b"0123456789abcdef"[length >> (4 * digit) & 0xf]);
    }
    out.extend_from_slice(CRLF);
}

/// The end of a chunked body with these trailers.
pub fn trailers(out: &mut Vec<u8>, trailers: &Headers) {
    out.extend_from_slice(b"0\r\n");
    headers(out, trailers);
    out.extend_from_slice(CRLF);
}

macro_rules! status_lines {
    ($($status:literal $reason:literal)*) => {
        fn registered_line(status: u16) -> &'static [u8] {
            match status {
                $($status => concat!("HTTP/1.1 ", $status, " ", $reason, "\r\n").as_bytes(),)*
                _ => b"",
            }
        }
    };
}

// IANA's registry.
status_lines! {
    100 "Continue"
    101 "Switching Protocols"
    102 "Processing"
    103 "Early Hints"
    200 "OK"
    201 "Created"
    202 "Accepted"
    203 "Non-Authoritative Information"
    204 "No Content"
    205 "Reset Content"
    206 "Partial Content"
    207 "Multi-Status"
    208 "Already Reported"
    226 "IM Used"
    300 "Multiple Choices"
    301 "Moved Permanently"
    302 "Found"
    303 "See Other"
    304 "Not Modified"
    305 "Use Proxy"
    307 "Temporary Redirect"
    308 "Permanent Redirect"
    400 "Bad Request"
    401 "Unauthorized"
    402 "Payment Required"
    403 "Forbidden"
    404 "Not Found"
    405 "Method Not Allowed"
    406 "Not Acceptable"
    407 "Proxy Authentication Required"
    408 "Request Timeout"
    409 "Conflict"
    410 "Gone"
    411 "Length Required"
    412 "Precondition Failed"
    413 "Content Too Large"
    414 "URI Too Long"
    415 "Unsupported Media Type"
    416 "Range Not Satisfiable"
    417 "Expectation Failed"
    421 "Misdirected Request"
    422 "Unprocessable Content"
    423 "Locked"
    424 "Failed Dependency"
    425 "Too Early"
    426 "Upgrade Required"
    428 "Precondition Required"
    429 "Too Many Requests"
    431 "Request Header Fields Too Large"
    451 "Unavailable For Legal Reasons"
    500 "Internal Server Error"
    501 "Not Implemented"
    502 "Bad Gateway"
    503 "Service Unavailable"
    504 "Gateway Timeout"
    505 "HTTP Version Not Supported"
    506 "Variant Also Negotiates"
    507 "Insufficient Storage"
    508 "Loop Detected"
    511 "Network Authentication Required"
}
