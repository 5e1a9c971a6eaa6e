//! Nanoseconds per message for parsing and encoding: `cargo bench -p weir-http1`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use weir_http1::{BodyDecoder, Framing, Known, Limits, Method, RequestHead, ResponseHead, encode};

const REQUEST: &[u8] = b"GET /api/v1/orders/4711?expand=items&page=2 HTTP/1.1\r\n\
    Host: shop.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: application/json, text/plain, */*\r\n\
    Accept-Encoding: gzip, deflate, br\r\n\
    Connection: keep-alive\r\n\
    Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n\
    Cookie: session=0123456789abcdef; theme=dark\r\n\
    X-Request-Id: 7d444840-9dc0-11d1-b245-5ffdce74fad2\r\n\r\n";

const SMALL_REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n\r\n";

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Server: nginx\r\n\
    Date: Mon, 01 Jan 2026 00:00:00 GMT\r\n\
    Content-Type: application/octet-stream\r\n\
    Content-Length: 1024\r\n\
    Connection: keep-alive\r\n\
    ETag: \"65f0a8b0-400\"\r\n\r\n";

fn main() {
    // `cargo test --benches` passes no `--bench`: run each once, to see that it still works.
    let full = std::env::args().any(|argument| argument == "--bench");
    let budget = if full { Duration::from_millis(500) } else { Duration::ZERO };
    let limits = Limits::default();
    let mut out = Vec::with_capacity(4096);

    for (name, input) in [("request, 8 fields", REQUEST), ("request, 1 field", SMALL_REQUEST)] {
        let mut head = RequestHead::default();
        time(budget, &format!("parse {name}"), || head.parse(black_box(input), &limits).is_ok());
        time(budget, &format!("forward {name}"), || {
            let parsed = head.parse(black_box(input), &limits).is_ok();
            forward(&mut head, &mut out);
            parsed
        });
    }
    let mut head = ResponseHead::default();
    time(budget, "parse response, 6 fields", || {
        head.parse(black_box(RESPONSE), &limits, Method::Get).is_ok()
    });
    time(budget, "encode response, 6 fields", || encode_response(&head, &mut out));
    time(budget, "recognise a name", || Known::of(black_box(b"X-Forwarded-For")) == Known::XForwardedFor);

    let mut body = Vec::new();
    encode::chunk_header(&mut body, 1024);
    body.extend_from_slice(&[b'x'; 1024]);
    body.extend_from_slice(encode::CRLF);
    body.extend_from_slice(encode::LAST_CHUNK);
    time(budget, "decode one chunk of 1 KiB", || {
        BodyDecoder::new(Framing::Chunked).decode(black_box(&body)).is_ok_and(|decoded| decoded.done)
    });
}

/// What a gateway does to a head between reading it and sending it on.
fn forward(head: &mut RequestHead, out: &mut Vec<u8>) {
    head.headers.remove_hop_by_hop();
    head.headers.set("X-Forwarded-For", b"127.0.0.1");
    head.headers.set("X-Forwarded-Proto", b"http");
    head.headers.set("Host", b"upstream.internal:9000");
    out.clear();
    encode::request_line(out, head.method_str(), &[head.target().as_bytes()]);
    encode::headers(out, &head.headers);
    encode::end(out);
    black_box(&out);
}

fn encode_response(head: &ResponseHead, out: &mut Vec<u8>) -> bool {
    out.clear();
    encode::status_line(out, head.status);
    encode::headers(out, &head.headers);
    encode::header(out, "Via", "1.1 weir");
    encode::end(out);
    !black_box(out).is_empty()
}

fn time(budget: Duration, name: &str, mut run: impl FnMut() -> bool) {
    const BATCH: u32 = 1000;
    assert!(run(), "{name} works");
    let mut best = f64::INFINITY;
    let start = Instant::now();
    while start.elapsed() < budget {
        let batch = Instant::now();
        for _ in 0..BATCH {
            black_box(run());
        }
        best = best.min(batch.elapsed().as_nanos() as f64 / f64::from(BATCH));
    }
    if best.is_finite() {
        report(name, best);
    }
}

#[allow(clippy::print_stdout, reason = "the table is what the benchmark is for")]
fn report(name: &str, nanoseconds: f64) {
    println!("{name:<28} {nanoseconds:8.1} ns");
}
