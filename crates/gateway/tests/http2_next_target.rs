//! Requests that an upstream over HTTP/2 does not answer, and that are sent to the next target.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::http2::Frames;
use crate::harness::http2_upstream::Http2Upstream;
use crate::harness::{Gateway, Upstream, eventually};
use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A document with one upstream of two targets, over HTTP/2.
fn over_two(targets: [SocketAddr; 2], fields: &str) -> Gateway {
    let [a, b] = targets;
    let upstream =
        format!("upstreams:\n- {{name: some, targets: [{{target: \"{a}\"}}, {{target: \"{b}\"}}]}}\n");
    let service = format!("name: s, url: \"http://some\", tags: [weir-upstream-http2], {fields}");
    let services = format!("services:\n- {{{service} routes: [{{name: r, paths: [/]}}]}}\n");
    Gateway::start(&format!("_format_version: \"3.0\"\n{services}{upstream}"))
}

/// An upstream that takes a request, and does with it, or its connection, as it is told.
fn failing(how: &'static str) -> (Upstream, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let upstream = Upstream::start(move |mut peer, _| {
        let mut preface = [0; 24];
        if peer.reader().read_exact(&mut preface).is_err() {
            return;
        }
        peer.send(Frames::frame(4, 0, 0, b""));
        while let Some((kind, flags, stream)) = Frames::skip(peer.reader()) {
            if !matches!(kind, 0 | 1) || flags & 1 == 0 {
                continue;
            }
            count.fetch_add(1, Ordering::SeqCst);
            match how {
                "close" => return,
                "goaway" => {
                    peer.send(Frames::frame(7, 0, 0, &[0; 8]));
                    return;
                }
                "silence" => {}
                code => {
                    peer.send(Frames::frame(3, 0, stream, &code.parse::<u32>().unwrap().to_be_bytes()));
                }
            }
        }
    });
    (upstream, asked)
}

/// REFUSED_STREAM is 7, INTERNAL_ERROR 2.
#[test]
fn requests_are_sent_to_the_next_target_by_the_rules_of_http1() {
    let good = Http2Upstream::echoing();
    for (how, is_unprocessed) in
        [("close", false), ("goaway", true), ("7", true), ("2", false), ("silence", false)]
    {
        let (bad, asked) = failing(how);
        let gateway = over_two([bad.address, good.address], "read_timeout: 300,");
        let send = |method: &str| {
            let mut client = gateway.connect();
            client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"));
            let response = client.response();
            (response.status, response.text().contains("4 bytes"))
        };
        for method in ["GET", "PUT"] {
            assert_eq!([send(method), send(method)], [(200, true); 2], "{how}: {method}");
        }
        let before = asked.load(Ordering::SeqCst);
        assert!(before >= 2, "{how}: the target was asked {before} times");
        let answered = (0..2).filter(|_| send("POST") == (200, true)).count();
        let attempts = asked.load(Ordering::SeqCst) - before;
        if is_unprocessed {
            assert_eq!(answered, 2, "{how}");
        } else {
            assert_eq!((answered, attempts), (1, 1), "{how}: a POST was sent twice, or never");
        }
    }
}

#[test]
fn a_refused_request_is_a_retry() {
    let ((bad, asked), good) = (failing("7"), Http2Upstream::echoing());
    let gateway = over_two([bad.address, good.address], "retries: 0,");
    assert_eq!((0..4).filter(|_| gateway.get("/").status == 502).count(), 2);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

/// That other requests are under way on a connection does not make it a kept one, the end of which would say nothing.
#[test]
fn a_target_that_ends_connections_without_any_response_is_not_asked_again() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let bad = Upstream::start(move |mut peer, _| {
        let mut preface = [0; 24];
        if peer.reader().read_exact(&mut preface).is_err() {
            return;
        }
        peer.send(Frames::frame(4, 0, 0, b""));
        let mut requests = 0;
        while requests < 2 {
            match Frames::skip(peer.reader()) {
                None => return,
                Some((1, ..)) => {
                    requests += 1;
                    count.fetch_add(1, Ordering::SeqCst);
                }
                Some(_) => {}
            }
        }
    });
    let service =
        "name: s, url: \"http://some\", tags: [weir-upstream-http2], routes: [{name: r, paths: [/]}]";
    let target = bad.address;
    let checks = "healthchecks: {passive: {unhealthy: {tcp_failures: 2}}}";
    let upstream = format!("{{name: some, targets: [{{target: \"{target}\"}}], {checks}}}");
    let gateway = Gateway::start(&format!(
        "_format_version: \"3.0\"\nservices:\n- {{{service}}}\nupstreams:\n- {upstream}\n"
    ));
    let mut clients = [gateway.connect(), gateway.connect()];
    for (before, client) in clients.iter_mut().enumerate() {
        eventually("the request before is under way", || asked.load(Ordering::SeqCst) == before);
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    }
    assert_eq!(clients.map(|mut client| client.response().status), [502; 2]);
    assert_eq!(gateway.get("/").status, 503, "no target is healthy");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}
