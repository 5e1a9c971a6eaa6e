//! Sends a request over HTTP/2 or HTTP/3 on over HTTP/1.1, as the gateway does.

use http::request::Parts;
use weir_http1::{Framing, KnownSet, Limits, RequestHead, Version, encode};
use weir_net::multiplex::{Arrived, framing, read_request};

/// Reads a request as the engine does. If it is accepted, its head over HTTP/1.1 is one head, of the same request.
pub fn check(parts: &Parts, version: Version, is_over: bool) {
    let mut head = RequestHead::default();
    // Over HTTP/1.1, the host and the framing are fields, too.
    let limits = Limits { max_fields: Limits::MAX_FIELDS - 2, ..Limits::default() };
    let read = read_request(&mut head, &Arrived { parts, version, line: None }, &limits);
    if read.is_err() || framing(&mut head, &parts.headers, is_over).is_err() {
        return;
    }
    let mut out = Vec::new();
    encode::request_line(&mut out, head.method_str(), &[head.target().as_bytes()]);
    head.headers.remove_hop_by_hop();
    encode::headers_except(&mut out, &head.headers, KnownSet::of(&[weir_http1::Known::ContentLength]));
    match head.framing {
        Framing::Length(length) => encode::content_length(&mut out, length),
        Framing::Chunked => encode::header(&mut out, b"Transfer-Encoding", b"chunked"),
        _ => {}
    }
    encode::end(&mut out);
    assert_lines(&out);
    let mut again = RequestHead::default();
    let limits = Limits { max_head_bytes: usize::MAX, ..Limits::default() };
    assert_eq!(again.parse(&out, &limits), Ok(Some(out.len())), "{}", String::from_utf8_lossy(&out));
    assert_eq!((again.framing, again.host(), again.path()), (head.framing, head.host(), head.path()));
    assert_eq!((again.method_str(), again.target()), (head.method_str(), head.target()));
}

/// Each line ends with CRLF and holds no other control character; the only empty one is the last.
fn assert_lines(out: &[u8]) {
    let text = out.strip_suffix(b"\r\n\r\n").expect("a head has an end");
    let mut rest = text;
    while let Some(at) = rest.windows(2).position(|pair| pair == b"\r\n") {
        assert!(at > 0, "an empty line within a head");
        assert!(rest[..at].iter().all(|byte| *byte == b'\t' || !byte.is_ascii_control()));
        rest = &rest[at + 2..];
    }
    assert!(!rest.is_empty() && rest.iter().all(|byte| *byte == b'\t' || !byte.is_ascii_control()));
}
