//! Class 7, the other way: requests over HTTP/1.1 for an upstream that speaks HTTP/2. What HTTP/1.1 says of one connection
//! ends at the gateway, and nothing in a head or a body becomes a frame or a pseudo-header field.
use crate::harness::http2_upstream::Http2Upstream;
use crate::harness::{Gateway, unescape};

/// Header lines of a client, what the upstream gets, and what it does not.
const CASES: &[(&str, &str, &[&str])] = &[
    ("Connection: X-Hop, Upgrade\r\nX-Hop: 1\r\nUpgrade: h2c\r\n", "", &["x-hop", "upgrade", "connection"]),
    ("Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\n", "", &["keep-alive", "proxy-connection"]),
    ("TE: chunked, trailers;q=0.5\r\nConnection: TE\r\n", "", &["chunked"]),
    ("HTTP2-Settings: AAMAAABkAAQAAP__\r\nConnection: HTTP2-Settings\r\n", "", &["http2-settings"]),
    ("X-UPPER: Value\r\n", "x-upper: Value", &["X-UPPER"]),
    ("Expect: 100-continue\r\n", "", &["expect"]),
    ("Transfer_Encoding: chunked\r\n", "", &["transfer_encoding"]),
    ("X-Long: \\{a*8000}\r\n", "x-long: a", &[]),
];

fn configuration(upstream: &Http2Upstream) -> String {
    format!(
        "_format_version: \"3.0\"\nservices:\n- {{name: s, url: \"http://{}\", tags: [weir-upstream-http2], \
         routes: [{{name: r, paths: [/], strip_path: false}}]}}\n",
        upstream.address
    )
}

#[test]
fn heads_stay_heads() {
    let upstream = Http2Upstream::echoing();
    let gateway = Gateway::start(&configuration(&upstream));
    for (lines, has, lacks) in CASES {
        let request = unescape(&format!("GET /a HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n"));
        let response = gateway.connect().send(request).response();
        let seen = response.text();
        assert_eq!(response.status, 200, "{lines}: {seen}");
        assert!(seen.contains(has), "{lines}: {seen}");
        assert!(lacks.iter().all(|text| !seen.contains(text)), "{lines}: {seen}");
    }
    for lines in [":path: /b\r\n", ":authority: b\r\n", "X\r\n", "X: a\rb\r\n", "X: a\0b\r\n"] {
        let response = gateway.send(&format!("GET /a HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n"));
        assert_eq!(response.status, 400, "{lines}");
    }
}

#[test]
fn bodies_stay_bodies() {
    let upstream = Http2Upstream::echoing();
    let gateway = Gateway::start(&configuration(&upstream));
    let frames = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x06\x01\x05\0\0\0\x01";
    for framed in [
        format!("Content-Length: {}\r\n\r\n{frames}", frames.len()),
        format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{frames}\r\n0\r\n\r\n", frames.len()),
    ] {
        let mut client = gateway.connect();
        for _ in 0..2 {
            client.send(format!("POST /a HTTP/1.1\r\nHost: a.test\r\n{framed}"));
            let response = client.response();
            assert_eq!(response.status, 200);
            assert!(response.text().ends_with(&format!("\n{} bytes", frames.len())), "{:?}", response.text());
            assert!(!response.text().contains("transfer-encoding"), "{:?}", response.text());
        }
    }
    assert_eq!(upstream.connections(), 1, "no request has ended the connection");
}
