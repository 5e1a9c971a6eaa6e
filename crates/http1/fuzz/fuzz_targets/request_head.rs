//! A request head reads alike whole and in pieces, and again after it was sent on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_http1::{Framing, Limits, RequestHead, encode};

fuzz_target!(|input: &[u8]| {
    let limits = Limits::default();
    let mut head = RequestHead::default();
    let whole = head.parse(input, &limits);
    let mut pieces = RequestHead::default();
    let split = (1..=input.len()).map(|end| pieces.parse(&input[..end], &limits)).find(|it| *it != Ok(None));
    assert_eq!(split.unwrap_or(Ok(None)), whole);

    let Ok(Some(consumed)) = whole else { return };
    assert!(input[..consumed].ends_with(b"\r\n\r\n"));
    assert_ne!(head.framing, Framing::UntilClose);
    assert!(head.target().starts_with(head.path()) || head.target().contains("://"));

    let mut out = Vec::new();
    encode::request_line(&mut out, head.method_str(), &[head.target().as_bytes()]);
    encode::headers(&mut out, &head.headers);
    encode::end(&mut out);
    let mut again = RequestHead::default();
    // HTTP/1.0 is sent on as HTTP/1.1, which needs a Host.
    if head.host().is_some() {
        assert_eq!(again.parse(&out, &Limits { max_head_bytes: usize::MAX, ..limits }), Ok(Some(out.len())));
        assert_eq!((again.framing, again.host(), again.path()), (head.framing, head.host(), head.path()));
    }
    head.headers.remove_hop_by_hop();
    assert_eq!(head.headers.iter().count(), head.headers.len());
});
