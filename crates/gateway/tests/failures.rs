//! Upstreams that fail, each in its own way: clients get Kong's answer, or an end that cannot be taken for a whole
//! message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, PATIENCE, Upstream, closed_port, document, eventually, service, unescape};
use serde::Deserialize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

const INVALID: (u16, &str) = (502, "An invalid response was received from the upstream server");
const SLOW: (u16, &str) = (504, "The upstream server is timing out");
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

#[derive(Deserialize)]
struct Table {
    refused: Vec<Sent>,
}

/// What an upstream sends after a request, whether it closes then, and what the client gets.
#[derive(Deserialize)]
struct Sent {
    name: String,
    bytes: String,
    then: Then,
    #[serde(default = "bad_gateway")]
    status: u16,
    /// How many interim responses come before the gateway's answer.
    #[serde(default)]
    interim: usize,
}

fn bad_gateway() -> u16 {
    502
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Then {
    Stay,
    Close,
    Reset,
}

fn table() -> Table {
    toml::from_str(include_str!("cases/upstreams.toml")).unwrap()
}

/// An upstream that answers with the bytes of the case that the field `Case` names; counts requests.
fn scripted(cases: &[Sent]) -> (Upstream, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let cases: Vec<_> = cases.iter().map(|case| (unescape(&case.bytes), case.then)).collect();
    let upstream = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            count.fetch_add(1, Ordering::SeqCst);
            let case = request.head.field("case").and_then(|case| cases.get(case.parse::<usize>().unwrap()));
            let Some((bytes, then)) = case else {
                peer.send(OK);
                continue;
            };
            peer.send(bytes);
            match then {
                Then::Stay => {}
                Then::Close => return,
                Then::Reset => return peer.reset(),
            }
        }
    });
    (upstream, asked)
}

#[test]
fn what_is_no_response_is_answered_for_and_its_connection_left() {
    let cases = table().refused;
    let (upstream, asked) = scripted(&cases);
    let gateway = Gateway::start(&document(
        &[service("/", upstream.address, "read_timeout: 1000, retries: 5", "")],
        "",
    ));
    thread::scope(|scope| {
        for (index, case) in cases.iter().enumerate() {
            let gateway = &gateway;
            scope.spawn(move || {
                let mut client = gateway.connect();
                client.send(format!(
                    "POST / HTTP/1.1\r\nHost: a\r\nAccept: */*\r\nCase: {index}\r\nContent-Length: 2\r\n\r\nhi"
                ));
                (0..case.interim).for_each(|_| drop(client.response()));
                let response = client.response();
                let message = if case.status == 504 { SLOW } else { INVALID };
                assert_eq!(response.status, case.status, "{}", case.name);
                assert_eq!(response.json()["message"], message.1, "{}", case.name);
                for name in ["x-kong-upstream-latency", "x-kong-proxy-latency"] {
                    assert!(response.header(name).is_some(), "{}: {name}", case.name);
                }
                assert_eq!(response.header("x-kong-response-latency"), None, "{}", case.name);
                client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                assert_eq!(client.response().text(), "hi", "{}: the client's connection goes on", case.name);
            });
        }
    });
    // Each case once, each follow-up once; and no connection of a failed case was used again.
    assert_eq!(asked.load(Ordering::SeqCst), 2 * cases.len(), "a request was sent twice");
    assert!(upstream.connections() > cases.len(), "a connection was used after it had failed");
}

#[test]
fn a_response_ahead_of_the_request_s_end_reaches_the_client() {
    let upstream = Upstream::start(|mut peer, _| {
        if peer.head().is_some() {
            peer.send("HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\n\r\nlarge");
            // Closing at once would reset the connection, and the response with it.
            peer.finish_sending().rest();
        }
    });
    let gateway =
        Gateway::start(&document(&[service("/", upstream.address, "", "request_buffering: false")], ""));
    for length in [100, 1024 * 1024] {
        let mut client = gateway.connect();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\nhi"));
        let response = client.response();
        assert_eq!((response.status, response.text()), (413, "large"));
        assert_eq!(response.header("connection"), Some("close"), "what is left of the body is no request");
        client.send("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.is_closed());
    }
}

#[test]
fn each_pause_within_a_response_may_last_as_long_as_read_timeout() {
    let upstream = Upstream::start(|mut peer, _| {
        if peer.request().is_some() {
            for part in ["HTTP/1.1 200 OK\r\n", "Content-Length: 4\r\n\r\n", "h", "a", "l", "f"] {
                thread::park_timeout(Duration::from_millis(700));
                peer.send(part);
            }
        }
    });
    let gateway = Gateway::start(&document(&[service("/", upstream.address, "read_timeout: 1500", "")], ""));
    assert_eq!(gateway.get("/").text(), "half");
}

#[test]
fn a_client_that_leaves_ends_its_request_to_the_upstream() {
    let (left, was_left) = mpsc::channel();
    let left = Mutex::new(left);
    let upstream = Upstream::start(move |mut peer, _| {
        if peer.request().is_some() {
            let _ = left.lock().unwrap().send(peer.is_closed());
        }
    });
    let gateway = Gateway::start(&document(&[service("/", upstream.address, "", "")], ""));
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the upstream is asked", || upstream.connections() == 1);
    drop(client);
    assert!(was_left.recv_timeout(PATIENCE).unwrap());
}

/// One that is silent while the response waits for it, and the other way round.
#[test]
fn a_response_ahead_of_the_request_s_end_waits_for_neither_side_for_ever() {
    let upstream = Upstream::start(|mut peer, _| {
        let _ = peer.head();
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n");
        let _ = peer.rest();
    });
    let service = service("/", upstream.address, "read_timeout: 300", "request_buffering: false");
    let gateway = Gateway::start(&document(&[service], ""));
    let mut client = gateway.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
    let rest = String::from_utf8(client.rest()).unwrap();
    assert!(rest.starts_with("HTTP/1.1 200") && rest.ends_with("hi\r\n"), "{rest}");
    let said = "the upstream sent nothing for as long as `read_timeout` of the service allows";
    eventually("the log names the setting", || gateway.log().contains(said));
}

/// The upstream may have nothing more to say for long.
#[test]
fn a_client_that_leaves_within_a_response_ends_it_for_the_upstream() {
    let (left, was_left) = mpsc::channel();
    let left = Mutex::new(left);
    let upstream = Upstream::start(move |mut peer, _| {
        if peer.request().is_some() {
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n");
            let _ = left.lock().unwrap().send(peer.is_closed());
        }
    });
    let gateway = Gateway::start(&document(&[service("/", upstream.address, "", "")], ""));
    let mut client = gateway.connect();
    assert!(client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").head().is_some());
    drop(client);
    assert!(was_left.recv_timeout(PATIENCE).unwrap());
}

/// What stands behind a response, or comes later unasked, is nobody's response.
#[test]
fn bytes_that_nobody_asked_for_answer_no_request() {
    const EVIL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    let upstream = Upstream::start(|mut peer, _| {
        while let Some(request) = peer.request() {
            match request.head.field("how") {
                Some("at once") => peer.send(format!("{OK}{EVIL}")),
                Some("to HEAD") => peer.send(format!("{OK}{EVIL}")),
                Some("later") => {
                    peer.send(OK);
                    thread::park_timeout(Duration::from_millis(100));
                    peer.send(EVIL)
                }
                Some("with 204") => peer.send(format!("HTTP/1.1 204 No Content\r\n\r\n{EVIL}")),
                _ => peer.send(OK),
            };
        }
    });
    let gateway = Gateway::start(&document(&[service("/", upstream.address, "", "")], ""));
    for how in ["at once", "to HEAD", "later", "with 204"] {
        let method = if how == "to HEAD" { "HEAD" } else { "GET" };
        let mut client = gateway.connect();
        client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\nHow: {how}\r\n\r\n"));
        assert!(matches!(client.response_to(method).status, 200 | 204), "{how}");
        thread::park_timeout(Duration::from_millis(200));
        for _ in 0..2 {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.response().text(), "hi", "{how}");
        }
    }
}

#[test]
fn a_response_head_beyond_bounds_is_no_response() {
    let upstream = Upstream::start(|mut peer, _| {
        while let Some(request) = peer.request() {
            let field = match request.head.field("how") {
                Some("large") => format!("A: {}\r\n", "a".repeat(70_000)),
                Some("many") => "A: b\r\n".repeat(1001),
                _ => {
                    peer.send("HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1000)).send(OK);
                    continue;
                }
            };
            peer.send(format!("HTTP/1.1 200 OK\r\n{field}Content-Length: 2\r\n\r\nhi"));
        }
    });
    let gateway = Gateway::start(&document(&[service("/", upstream.address, "", "")], ""));
    for how in ["large", "many", "interim"] {
        let mut client = gateway.connect();
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nAccept: */*\r\nHow: {how}\r\n\r\n"));
        let response = client.final_response_to("GET");
        assert_eq!(
            (response.status, response.json()["message"].as_str()),
            (INVALID.0, Some(INVALID.1)),
            "{how}"
        );
    }
}

/// An upstream never takes what a client broke off for a whole request.
#[test]
fn a_request_cut_short_never_looks_whole() {
    let (seen, bodies) = mpsc::channel();
    let seen = Mutex::new(seen);
    let upstream = Upstream::start(move |mut peer, _| {
        // Without a head there is no body either.
        let body = peer.head().map(|_| peer.rest());
        let _ = seen.lock().unwrap().send(body.unwrap_or_default());
    });
    let gateway =
        Gateway::start(&document(&[service("/", upstream.address, "", "request_buffering: false")], ""));
    for (framing, part) in [
        ("Content-Length: 10", "half"),
        ("Transfer-Encoding: chunked", "4\r\nhalf\r\n"),
        ("Transfer-Encoding: chunked", "4\r\nhalf\r\n0\r\n"),
        ("Transfer-Encoding: chunked", "4\r\nhalf\r\nzz\r\n"),
    ] {
        let mut client = gateway.connect();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n{part}"));
        client.finish_sending();
        let body = String::from_utf8(bodies.recv_timeout(PATIENCE).unwrap()).unwrap();
        assert!(!body.ends_with("0\r\n\r\n") && body.len() <= part.len(), "{framing}: {body:?}");
    }
}

#[test]
fn an_upstream_that_is_not_there_is_told_by_its_host_alone() {
    let closed = closed_port();
    let gateway = Gateway::start(&document(&[service("/", closed, "retries: 0", "")], ""));
    assert_eq!(gateway.get("/").status, 502);
    eventually("it is told", || gateway.log().contains("connecting to the upstream failed"));
    let log = gateway.log();
    let line = log.lines().find(|line| line.contains("connecting to the upstream failed")).unwrap();
    assert!(line.contains(&closed.to_string()) && !line.contains("address"), "{line}");
}

#[test]
fn the_log_says_that_an_upstream_has_no_targets() {
    for (targets, what) in
        [("[]", "no targets"), ("[{target: '127.0.0.1:1', weight: 0}]", "no targets with a weight")]
    {
        let gateway = Gateway::start(&format!(
            "_format_version: '3.0'\nservices:\n- {{name: s, host: u.test, routes: [{{paths: [/]}}]}}\n\
             upstreams:\n- {{name: u.test, targets: {targets}}}\n"
        ));
        assert_eq!(gateway.get("/").status, 503);
        let expected = format!("the upstream has {what}: add one with POST /upstreams/u.test/targets");
        eventually(&expected, || gateway.log().contains(&expected));
    }
}
