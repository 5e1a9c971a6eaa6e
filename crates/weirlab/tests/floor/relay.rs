//! Through the floor an exchange is what it is directly.
use super::wire::{Answer, Server, exchange};
use weir_http1::Method::{self, Get, Head, Post};

const LONG: usize = 1_500_000;

#[test]
fn answers_through_the_floor_equal_direct_answers() {
    for options in [
        &["--body", "{method} {path} {header:host} {header:x-a}"][..],
        &["--body-bytes", "0"],
        &["--body-bytes", "1048576"],
        &["--body-bytes", "1048576", "--chunked"],
        &["--status", "204"],
        &["--status", "304"],
        &["--status", "503", "--header", "X-Served-By: one"],
    ] {
        let upstream = Server::start(&[&["upstream"], options].concat());
        let floor = Server::floor(upstream.listen);
        for (name, bytes, methods) in exchanges() {
            let [direct, relayed] =
                [&upstream, &floor].map(|server| exchange(server.listen, &bytes, methods));
            assert!(direct.iter().all(|answer| answer.whole), "{name}");
            assert_eq!(essence(&direct), essence(&relayed), "{name} with {options:?}");
        }
    }
}

fn exchanges() -> Vec<(&'static str, Vec<u8>, &'static [Method])> {
    let text = |text: &str| text.replace('\n', "\r\n").into_bytes();
    let mut long = format!("POST /long HTTP/1.1\r\nHost: a\r\nContent-Length: {LONG}\r\n\r\n").into_bytes();
    long.resize(long.len() + LONG, b'z');
    let mut chunks = b"POST /chunks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..200 {
        chunks.extend_from_slice(b"1f40;note=x\r\n");
        chunks.resize(chunks.len() + 8000, b'c');
        chunks.extend_from_slice(b"\r\n");
    }
    chunks.extend_from_slice(b"0\r\nX-Trailer: t\r\n\r\n");
    let mut mixed = long.clone();
    mixed.extend_from_slice(&chunks);
    mixed.extend_from_slice(b"GET /after HTTP/1.1\r\nHost: a\r\n\r\n");
    vec![
        ("a plain request", text("GET /a?b=c HTTP/1.1\nHost: a\nX-A: 1\n\n"), &[Get]),
        ("to HEAD", text("HEAD /a HTTP/1.1\nHost: a\n\n"), &[Head]),
        (
            "pipelined",
            text("GET /1 HTTP/1.1\nHost: a\n\nHEAD /2 HTTP/1.1\nHost: a\n\nGET /3 HTTP/1.1\nHost: b\n\n"),
            &[Get, Head, Get],
        ),
        ("empty lines before", text("\n\nGET / HTTP/1.1\nHost: a\n\n"), &[Get]),
        ("an absolute target", text("GET http://b/a?q HTTP/1.1\nHost: a\n\n"), &[Get]),
        ("the last request", text("GET /a HTTP/1.1\nHost: a\nConnection: close\n\n"), &[Get]),
        ("HTTP/1.0", text("GET /old HTTP/1.0\nHost: a\n\n"), &[Get]),
        ("a short body", text("POST /p HTTP/1.1\nHost: a\nContent-Length: 3\n\nabc"), &[Post]),
        ("a long body", long, &[Post]),
        ("chunks and trailers", chunks, &[Post]),
        ("pipelined bodies", mixed, &[Post, Post, Get]),
        ("refused: no host", text("GET / HTTP/1.1\n\n"), &[Get]),
        (
            "refused: two lengths",
            text("POST / HTTP/1.1\nHost: a\nContent-Length: 1\nContent-Length: 2\n\nab"),
            &[Post],
        ),
        (
            "refused: length and chunks",
            text("POST / HTTP/1.1\nHost: a\nContent-Length: 1\nTransfer-Encoding: chunked\n\n0\n\n"),
            &[Post],
        ),
        ("refused: another coding", text("POST / HTTP/1.1\nHost: a\nTransfer-Encoding: gzip\n\n"), &[Post]),
    ]
}

type Essence<'a> = (u16, bool, &'a [(String, String)], &'a [u8]);

/// What must be the same; a refusal's body is each server's own.
fn essence(answers: &[Answer]) -> Vec<Essence<'_>> {
    answers
        .iter()
        .map(|Answer { status, whole, fields, body, .. }| match status {
            400 | 501 => (*status, *whole, &[][..], &[][..]),
            _ => (*status, *whole, &fields[..], &body[..]),
        })
        .collect()
}

#[test]
fn fields_of_one_connection_are_not_sent_on() {
    let upstream = Server::start(&["upstream", "--body", "{headers}", "--header", "Keep-Alive: timeout=5"]);
    let floor = Server::floor(upstream.listen);
    let request =
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\n\
        Upgrade: websocket\r\nKeep-Alive: timeout=1\r\nX-End: 2\r\n\r\n";
    let answer = exchange(floor.listen, request, &[Get]).remove(0);
    assert_eq!(answer.text(), "Host: a\r\nX-End: 2\r\n");
    assert!(answer.fields.iter().all(|(name, _)| name != "keep-alive"));
    assert!(!answer.closes);
}

#[test]
fn connections_to_the_upstream_are_used_again() {
    let upstream = Server::start(&["upstream"]);
    let floor = Server::floor(upstream.listen);
    let before = upstream.open_descriptors();
    for _ in 0..20 {
        exchange(floor.listen, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", &[Get]);
    }
    assert_eq!(upstream.open_descriptors(), before + 1);
}
