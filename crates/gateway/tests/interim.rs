//! Interim responses (1xx) of upstreams, such as 103 Early Hints, reach clients at once, over every version of HTTP that
//! has them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::http2::{block_on, connect, get, read, start};
use crate::harness::http2_upstream::Http2Upstream;
use crate::harness::{Gateway, PATIENCE, Peer, Upstream, document, one_route, service};
use crate::http3::client::Client;
use bytes::Bytes;
use http::Response;
use serde_json::json;
use std::future::poll_fn;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\
     x-kong-proxy-latency: 1\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const LINK: &str = "</style.css>; rel=preload";

/// An upstream that sends hints, and the response when it is told.
fn hinting() -> (Upstream, Sender<()>) {
    let (go_on, told) = channel();
    let told = Mutex::new(told);
    let upstream = Upstream::start(move |mut peer: Peer, _| {
        while peer.request().is_some() {
            peer.send(HINTS);
            let _ = told.lock().unwrap().recv_timeout(PATIENCE);
            peer.send(OK);
        }
    });
    (upstream, go_on)
}

#[test]
fn hints_come_before_the_response_is_there() {
    let (upstream, go_on) = hinting();
    let gateway = Gateway::start(&one_route(upstream.address));
    let mut client = gateway.connect();
    for _ in 0..2 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let hints = client.response();
        assert_eq!(hints.head.start, "HTTP/1.1 103 Early Hints");
        let names = ["link", "x-hop", "connection", "x-kong-proxy-latency"];
        assert_eq!(names.map(|name| hints.header(name)), [Some(LINK), None, None, None]);
        go_on.send(()).unwrap();
        let response = client.response();
        assert_eq!((response.status, response.text(), response.header("link")), (200, "hi", None));
    }
}

#[test]
fn clients_of_http_1_0_get_none() {
    let (upstream, go_on) = hinting();
    let gateway = Gateway::start(&one_route(upstream.address));
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.0\r\n\r\n");
    go_on.send(()).unwrap();
    assert_eq!(client.response().text(), "hi");
}

/// The gateway has answered the expectation, so the upstream's answer would be a second one.
#[test]
fn an_expectation_is_answered_once() {
    let upstream = Upstream::start(|mut peer, _| {
        while peer.request().is_some() {
            peer.send("HTTP/1.1 100 Continue\r\n\r\n").send(HINTS).send(OK);
        }
    });
    let services = ["/held", "/streamed"]
        .map(|path| service(path, upstream.address, "", &format!("request_buffering: {}", path == "/held")));
    let gateway = Gateway::start(&document(&services, ""));
    for path in ["/held", "/streamed"] {
        let mut client = gateway.connect();
        client.send(format!(
            "PUT {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
        ));
        assert_eq!(client.response().status, 100, "{path}");
        client.send("body");
        assert_eq!(client.response().status, 103, "{path}");
        assert_eq!(client.response().text(), "hi", "{path}");
    }
}

#[test]
fn hints_come_over_http_2() {
    let (upstream, go_on) = hinting();
    let gateway =
        Gateway::builder(&one_route(upstream.address)).set("proxy_listen", "127.0.0.1:0 http2").start();
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        let (mut response, _) = start(&requests, get("/"), true).await.unwrap();
        let hints = poll_fn(|cx| response.poll_informational(cx)).await.unwrap().unwrap();
        assert_eq!((hints.status().as_u16(), &hints.headers()["link"]), (103, &LINK.parse().unwrap()));
        assert!(!hints.headers().contains_key("x-hop"));
        go_on.send(()).unwrap();
        assert_eq!(read(response.await.unwrap()).await.unwrap().0.body(), "hi");
    });
}

#[test]
fn hints_come_over_http_3() {
    let (upstream, _go_on) = hinting();
    let gateway = Gateway::builder(&one_route(upstream.address))
        .set("proxy_listen", "127.0.0.1:0, 127.0.0.1:0 ssl http2, 127.0.0.1:0 quic")
        .start();
    let mut client = Client::connect(gateway.proxy_quic());
    let hints = client.ask("a", ("GET", "/"), &json!({})).event("interim", |status| status == "103");
    assert!(hints["fields"].as_array().unwrap().contains(&json!(["link", LINK])), "{hints}");
}

#[test]
fn hints_of_an_upstream_over_http_2_are_passed_on() {
    let upstream =
        Http2Upstream::start(h2::server::Builder::new(), usize::MAX, async |(request, mut respond), _| {
            let count = if request.uri().path() == "/many" { 1000 } else { 2 };
            for _ in 0..count {
                let hints = Response::builder().status(103).header("link", LINK).body(()).unwrap();
                if respond.send_informational(hints).is_err() {
                    return;
                }
            }
            if let Ok(mut body) = respond.send_response(Response::new(()), false) {
                let _ = body.send_data(Bytes::from("hi"), true);
            }
        });
    let document = document(&[service("/", upstream.address, "tags: [weir-upstream-http2]", "")], "");
    let gateway = Gateway::start(&document);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    for _ in 0..2 {
        let hints = client.response();
        assert_eq!((hints.status, hints.header("link")), (103, Some(LINK)));
    }
    assert_eq!(client.response().text(), "hi");
    client.send("GET /many HTTP/1.1\r\nHost: a\r\n\r\n");
    let statuses: Vec<_> = (0..17).map(|_| client.response().status).collect();
    assert_eq!((statuses[15], statuses[16]), (103, 502), "too many are no response");
}
