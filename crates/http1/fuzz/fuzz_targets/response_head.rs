//! A response head reads alike whole and in pieces, and its body is framed as its status demands.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_http1::{Framing, Limits, Method, ResponseHead};

fuzz_target!(|input: &[u8]| {
    let limits = Limits::default();
    for method in [Method::Get, Method::Head, Method::Connect] {
        let mut head = ResponseHead::default();
        let whole = head.parse(input, &limits, method);
        let mut pieces = ResponseHead::default();
        let split = (1..=input.len())
            .map(|end| pieces.parse(&input[..end], &limits, method))
            .find(|it| *it != Ok(None));
        assert_eq!(split.unwrap_or(Ok(None)), whole);

        if whole.is_ok_and(|consumed| consumed.is_some()) {
            let bodiless = method == Method::Head || head.status < 200 || matches!(head.status, 204 | 304);
            assert!(!bodiless || head.framing == Framing::None);
            assert!(!(head.framing == Framing::UntilClose && head.keep_alive));
        }
    }
});
