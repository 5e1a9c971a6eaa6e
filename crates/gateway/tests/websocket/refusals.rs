//! What is no change of protocol, whatever it looks like.
use crate::harness::{Gateway, Upstream, document, service, unescape};
use serde::Deserialize;

#[derive(Deserialize)]
struct Table {
    requests: Vec<Case>,
}

/// A request, and the protocol that the upstream is asked for, if any.
#[derive(Deserialize)]
struct Case {
    name: String,
    bytes: String,
    asks: Option<String>,
}

#[test]
fn only_a_request_without_a_body_asks_and_only_for_what_its_route_allows() {
    let upstream = Upstream::echoing();
    let other = "headers: {upgrade: [\"spdy/3.1\", h2c, \"TLS/1.3\"]}";
    let services = [service("/a", upstream.address, "", ""), service("/other", upstream.address, "", other)];
    let gateway = Gateway::start(&document(&services, ""));
    let table: Table = toml::from_str(include_str!("../cases/upgrades.toml")).unwrap();
    for case in &table.requests {
        let response = gateway.send(std::str::from_utf8(&unescape(&case.bytes)).unwrap());
        let of = |name: &str| {
            let field = format!("{name}: ");
            response.text().lines().find_map(|line| line.strip_prefix(&field).map(str::to_owned))
        };
        if response.status == 404 {
            assert!(case.asks.is_none() && case.bytes.contains("/other"), "{}", case.name);
            continue;
        }
        assert_eq!(response.status, 200, "{}: {}", case.name, response.text());
        assert_eq!(of("Upgrade"), case.asks, "{}", case.name);
        assert_eq!(of("Connection"), case.asks.as_ref().map(|_| "Upgrade".to_owned()), "{}", case.name);
    }
}

#[test]
fn a_refusal_is_an_ordinary_response_and_what_was_sent_early_an_ordinary_request() {
    let upstream = Upstream::start(|mut peer, _| {
        while let Some(request) = peer.request() {
            let body = request.head.start;
            let upgrade = request.head.fields.iter().any(|(name, _)| name == "Upgrade");
            let status = if upgrade { "426 Upgrade Required" } else { "200 OK" };
            peer.send(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        }
    });
    let gateway = Gateway::start(&document(&[service("/a", upstream.address, "", "strip_path: false")], ""));
    let mut peer = gateway.connect();
    peer.send(
        "GET /a/chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\
         GET /a/early HTTP/1.1\r\nHost: a\r\n\r\nGET /hidden HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    let refused = peer.response();
    assert_eq!((refused.status, refused.text()), (426, "GET /a/chat HTTP/1.1"));
    let early = peer.response();
    assert_eq!((early.status, early.text()), (200, "GET /a/early HTTP/1.1"));
    assert_eq!(peer.response().status, 404, "it passes the routes as any request");
    assert_eq!(upstream.connections(), 1, "the connection serves on");
}

#[test]
fn another_protocol_than_the_one_asked_for_is_no_answer() {
    for answer in ["Upgrade: h2c\r\n", "", "Upgrade: websocket, h2c\r\n"] {
        let answer = format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n{answer}\r\n");
        let upstream = Upstream::answering(&answer);
        let gateway = Gateway::start(&document(&[service("/a", upstream.address, "", "")], ""));
        let (_, head) = super::ask(&gateway, "/a", "websocket");
        assert_eq!(head.start, "HTTP/1.1 502 Bad Gateway", "{answer}");
    }
}

#[test]
fn a_change_of_protocol_that_a_plugin_refuses_is_none() {
    let upstream = Upstream::answering(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Kong-Limit: chat=1\r\n\r\nhi",
    );
    let limit = "plugins: [{name: response-ratelimiting, config: {limits: {chat: {year: 1}}}}]";
    let gateway = Gateway::start(&document(&[service("/a", upstream.address, "", limit)], ""));
    let upgrade = "GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let first = gateway.connect().send(upgrade).head().unwrap();
    assert_eq!(first.start, "HTTP/1.1 101 Switching Protocols");
    let mut peer = gateway.connect();
    peer.send(format!("{upgrade}GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"));
    let refused = peer.response();
    assert_eq!((refused.status, refused.text()), (429, ""));
    assert_eq!((refused.header("Upgrade"), refused.header("Content-Length")), (None, Some("0")));
    assert_eq!(peer.response().status, 404, "what follows is an ordinary request");
}
