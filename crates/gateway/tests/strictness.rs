//! What clients may send, and what becomes of what they may not: refused, closed, and never seen by an upstream.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, Message, PATIENCE, Peer, Upstream, document, service, unescape};
use serde::Deserialize;
use std::sync::{Arc, Mutex};
use std::thread;

const KEYED: &str = "plugins: [{name: key-auth}]";
const LIMITED: &str = "plugins: [{name: rate-limiting, config: {hour: 1, limit_by: service}}]";

#[derive(Deserialize)]
struct Table {
    case: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    status: u16,
    name: String,
    request: String,
}

/// An upstream that keeps all it is sent, and answers whole requests.
fn recorder() -> (Upstream, Arc<Mutex<Vec<Message>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let requests = seen.clone();
    let upstream = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            requests.lock().unwrap().push(request);
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        }
    });
    (upstream, seen)
}

#[test]
fn malformed_requests_are_refused_and_none_of_their_bytes_forwarded() {
    let table: Table = toml::from_str(include_str!("cases/requests.toml")).unwrap();
    let (upstream, seen) = recorder();
    let gateway = Gateway::builder(&document(&[service("/", upstream.address, "", "")], ""))
        .set("client_max_body_size", "100000")
        .start();
    for case in &table.case {
        // In between, so that no state of an earlier request can show in the answer.
        gateway
            .connect()
            .send("HEAD /a HTTP/1.0\r\nHost: a\r\nAccept: text/html\r\n\r\n")
            .response_to("HEAD");
        let mut client = gateway.connect();
        client.send(unescape(&case.request)).send("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
        let response = client.response();
        assert_eq!(response.status, case.status, "{}", case.name);
        assert_eq!(response.header("connection"), Some("close"), "{}", case.name);
        assert!(client.is_closed(), "{}", case.name);
        if case.status != 200 {
            assert_eq!(response.header("x-kong-request-id").map(str::len), Some(32), "{}", case.name);
            let has_id = response.text().contains("request_id");
            assert!(has_id, "{}: {}", case.name, response.text());
        }
    }
    let seen = seen.lock().unwrap();
    let forwarded = seen.iter().filter(|request| !request.head.start.starts_with("HEAD")).count();
    let good = table.case.iter().filter(|case| case.status == 200).count();
    assert_eq!(forwarded, good, "{seen:?}");
}

#[test]
fn client_max_body_size_holds_for_every_framing() {
    let (upstream, seen) = recorder();
    let address = upstream.address;
    let services =
        [service("/held", address, "", ""), service("/streamed", address, "", "request_buffering: false")];
    let gateway = Gateway::builder(&document(&services, "")).set("client_max_body_size", "200000").start();
    for path in ["/held", "/streamed"] {
        for (size, status) in [(200_000, 200), (200_001, 413), (1_000_000, 413)] {
            let body = "a".repeat(size);
            for framed in [
                format!("Content-Length: {size}\r\n\r\n{body}"),
                format!("Transfer-Encoding: chunked\r\n\r\n{size:x}\r\n{body}\r\n0\r\n\r\n"),
            ] {
                let case = format!("{path} {size} {}", framed.lines().next().unwrap());
                let response = gateway.send(&format!("POST {path} HTTP/1.1\r\nHost: a\r\n{framed}"));
                assert_eq!(response.status, status, "{case}");
            }
        }
    }
    assert!(seen.lock().unwrap().iter().all(|request| request.body.len() <= 200_000));
}

/// A body is never taken for a request, however early the answer to its head.
#[test]
fn the_unread_body_of_a_refused_request_is_no_request() {
    let (upstream, seen) = recorder();
    let address = upstream.address;
    let services = [
        service("/keyed", address, "", KEYED),
        service("/limited", address, "", LIMITED),
        service("/open", address, "", ""),
    ];
    let gateway = Gateway::start(&document(&services, ""));
    assert_eq!(gateway.get("/limited").status, 200);
    let smuggled = "GET /open HTTP/1.1\r\nHost: a\r\n\r\n";
    let padding = "a".repeat(200_000);
    let bodies = [
        format!("Content-Length: {}\r\n\r\n{smuggled}", smuggled.len()),
        format!("Content-Length: {}\r\n\r\n{smuggled}", 2 * smuggled.len()),
        format!("Content-Length: {}\r\n\r\n{padding}{smuggled}", padding.len() + smuggled.len()),
        format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{smuggled}\r\n0\r\n\r\n", smuggled.len()),
        format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{smuggled}", smuggled.len()),
        format!("Transfer-Encoding: chunked\r\n\r\nzz\r\n{smuggled}"),
        format!(
            "Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{padding}{smuggled}\r\n0\r\n\r\n",
            padding.len() + smuggled.len()
        ),
        format!("Expect: 100-continue\r\nContent-Length: {}\r\n\r\n{smuggled}", smuggled.len()),
    ];
    for (path, status) in [("/keyed", 401), ("/limited", 429), ("/nowhere", 404)] {
        for body in &bodies {
            for whole in [true, false] {
                let mut client = gateway.connect();
                let request = format!("POST {path} HTTP/1.1\r\nHost: a\r\n{body}");
                let (head, behind) = request.split_at(request.find("\r\n\r\n").unwrap() + 4);
                client.send(head);
                if whole {
                    client.send(behind);
                }
                assert_eq!(client.response().status, status, "{path}: {head}");
                if !whole {
                    client.send(behind);
                }
                client.finish_sending();
                assert!(client.is_closed(), "{path}: a second answer to {head}");
            }
        }
    }
    assert_eq!(seen.lock().unwrap().len(), 1, "only the request that used up the limit");
}

#[test]
fn a_client_that_sends_on_regardless_can_still_read_the_early_answer() {
    let (upstream, seen) = recorder();
    let gateway = Gateway::start(&document(&[service("/", upstream.address, "", KEYED)], ""));
    for size in [10_000, 1_000_000, 8_000_000] {
        let mut client = gateway.connect();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n"));
        client.send(vec![b'a'; size]);
        assert_eq!(client.response().status, 401, "{size}");
    }
    assert!(seen.lock().unwrap().is_empty());
}

/// Behind a plugin's answer the rest of a body is thrown away, and the connection goes on.
#[test]
fn the_body_of_a_request_that_a_plugin_refuses_is_discarded() {
    const SIZED: &str =
        "plugins: [{name: request-size-limiting, config: {allowed_payload_size: 1, size_unit: kilobytes}}]";
    let (upstream, seen) = recorder();
    let address = upstream.address;
    let services = [service("/sized", address, "", SIZED), service("/open", address, "", "")];
    let gateway = Gateway::start(&document(&services, ""));
    let mut client = gateway.connect();
    let body = "a".repeat(3 * 1024 * 1024);
    for framed in [
        format!("Content-Length: {}\r\n\r\n{body}", body.len()),
        format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len()),
    ] {
        client.send(format!("POST /sized HTTP/1.1\r\nHost: a\r\n{framed}"));
        let response = client.response();
        assert_eq!((response.status, response.header("connection")), (413, None));
        client.send("GET /open HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().text(), "hi");
    }
    client.send(format!("POST /sized HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 9 * 1024 * 1024));
    let response = client.response();
    assert_eq!((response.status, response.header("connection")), (413, Some("close")), "within bounds");
    let seen = seen.lock().unwrap();
    let starts: Vec<_> = seen.iter().map(|request| &*request.head.start).collect();
    assert_eq!(starts, ["GET / HTTP/1.1"; 2]);
}

#[test]
fn an_early_refusal_stands_in_place_of_100() {
    let (upstream, seen) = recorder();
    let gateway = Gateway::start(&document(&[service("/", upstream.address, "", KEYED)], ""));
    let mut client = gateway.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    let response = client.response();
    assert_eq!((response.status, response.header("connection")), (401, Some("close")));
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.is_closed());
    assert!(seen.lock().unwrap().is_empty());
}

#[test]
fn clients_that_stall_are_answered_or_left() {
    let (upstream, seen) = recorder();
    let address = upstream.address;
    let services =
        [service("/held", address, "", ""), service("/streamed", address, "", "request_buffering: false")];
    let gateway = Gateway::builder(&document(&services, ""))
        .set("client_header_timeout", "500ms")
        .set("client_body_timeout", "500ms")
        .set("keepalive_timeout", "500ms")
        .start();
    let whole = "GET /held HTTP/1.1\r\nHost: a\r\n\r\n";
    let stalls = [
        ("", 0),
        ("GET", 408),
        ("GET /held HTTP/1.1\r\nHost: a\r\n", 408),
        ("POST /held HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab", 408),
        ("POST /held HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", 408),
        ("POST /streamed HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab", 408),
        ("POST /streamed HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", 408),
    ];
    thread::scope(|scope| {
        for (sent, status) in stalls {
            for before in ["", whole] {
                let gateway = &gateway;
                scope.spawn(move || stall(&mut gateway.connect(), before, sent, status));
            }
        }
    });
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), stalls.len(), "no unfinished request was taken for a whole one: {seen:?}");
}

/// Sends part of a request, behind a whole one perhaps, and expects a status or no answer (0), then the end.
fn stall(client: &mut Peer, before: &str, sent: &str, status: u16) {
    client.socket().set_read_timeout(Some(PATIENCE)).unwrap();
    if !before.is_empty() {
        assert_eq!(client.send(before).response().status, 200);
    }
    client.send(sent);
    if status != 0 {
        assert_eq!(client.response().status, status, "{sent}");
    }
    assert!(client.is_closed(), "{sent}");
}

#[test]
fn keepalive_requests_bounds_what_a_connection_carries() {
    let (upstream, _) = recorder();
    let gateway = Gateway::builder(&document(&[service("/", upstream.address, "", "")], ""))
        .set("keepalive_requests", "3")
        .start();
    let mut client = gateway.connect();
    for (path, connection) in [("/", None), ("/", None), ("/", Some("close"))] {
        let response = client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).response();
        assert_eq!(response.header("connection"), connection);
    }
    assert!(client.is_closed());
}

#[test]
fn large_client_header_buffers_bound_heads_targets_and_fields() {
    let upstream = Upstream::echoing();
    let document = document(&[service("/", upstream.address, "", "")], "");
    let target = |size: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(size - 1));
    let field = |size: usize| format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(size - 1));
    let fields = |count: usize, size: usize| {
        let field = format!("X: {}\r\n", "a".repeat(size - 5));
        format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", field.repeat(count))
    };
    for (setting, cases) in [
        ("4 8k", [(target(8192), 200), (target(8193), 414), (field(8192), 200), (field(8193), 400)]),
        ("4 1k", [(target(1024), 200), (target(1025), 414), (field(1025), 400), (fields(5, 1000), 400)]),
        ("4 16k", [(target(16_384), 200), (target(16_385), 414), (field(16_384), 200), (field(16_385), 400)]),
        (
            "16 16k",
            [
                (fields(250, 1000), 200),
                (fields(25, 10_000), 200),
                (field(16_385), 400),
                (fields(40, 10_000), 400),
            ],
        ),
    ] {
        // The first is the default, too.
        let builder = Gateway::builder(&document);
        let gateway = match setting {
            "4 8k" => builder.start(),
            other => builder.set("nginx_http_large_client_header_buffers", other).start(),
        };
        for (at, (request, status)) in cases.into_iter().enumerate() {
            let mut client = gateway.connect();
            // In two parts, the second of which comes when the first may have filled a buffer.
            let (first, second) = request.split_at(request.len() - 3);
            let response = client.send(first).send(second).response();
            assert_eq!(response.status, status, "{setting}: case {at}");
            let too_large = response.text().contains("Request header or cookie too large");
            assert_eq!(too_large, status == 400, "{setting}: case {at}");
            if status == 200 {
                let least = request.len() * 9 / 10;
                assert!(response.body.len() > least, "{setting}: case {at}: {} bytes", response.body.len());
            }
        }
    }
}

#[test]
fn a_file_with_an_expired_authority_is_refused_at_its_place() {
    let cert = include_str!("cases/expired_authority.pem").replace('\n', "\\n");
    let file = format!("_format_version: '3.0'\nca_certificates:\n- cert: \"{cert}\"\n");
    let (status, log) = Gateway::builder(&file).fail();
    assert_eq!(status.code(), Some(1));
    assert!(log.contains(":3:3: ca_certificates[0]: certificate expired"), "{log}");
}
