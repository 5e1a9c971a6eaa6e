//! What a client leaves unfinished must never be taken for a part of another request.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::http2_upstream::Http2Upstream;
use crate::harness::{Gateway, Peer, Upstream, document, eventually, one_route, service};
use h2::server::Builder;
use http::Response;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

/// The bytes that the upstream received behind the first head of each of its connections.
type Received = Arc<Mutex<Vec<(usize, Vec<u8>)>>>;

/// An upstream that answers the first request of a connection before it has the body, half now and half when told.
fn early(received: &Received, go_on: Receiver<()>) -> Upstream {
    let (received, go_on) = (received.clone(), Mutex::new(go_on));
    Upstream::start(move |mut peer: Peer, index| {
        if index > 0 {
            while peer.request().is_some() {
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext");
            }
            return;
        }
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab");
        go_on.lock().unwrap().recv().unwrap();
        peer.send("cd");
        received.lock().unwrap().push((index, peer.rest()));
    })
}

/// Leaves a body unfinished in some way while its response is on its way, then asks again: on another connection.
fn unfinished(settings: &[(&str, &str)], head: &str, end: impl FnOnce(&mut Peer, &Sender<()>)) {
    let received = Received::default();
    let (go_on, told) = channel();
    let upstream = early(&received, told);
    let services = [service("/", upstream.address, "", "request_buffering: false")];
    let mut builder = Gateway::builder(&document(&services, "")).set("workers", "1");
    for (key, value) in settings {
        builder = builder.set(key, value);
    }
    let gateway = builder.start();
    let mut attacker = gateway.connect();
    attacker.send(head);
    assert_eq!(attacker.head().unwrap().start, "HTTP/1.1 200 OK");
    end(&mut attacker, &go_on);
    attacker.rest();
    for _ in 0..3 {
        assert_eq!(gateway.get("/victim").text(), "next");
    }
    eventually("the first connection ends", || !received.lock().unwrap().is_empty());
    let received = received.lock().unwrap();
    let bytes = String::from_utf8_lossy(&received[0].1).into_owned();
    assert!(!bytes.contains("victim"), "the next request went into an unfinished body: {bytes}");
}

#[test]
fn a_client_that_stops_sending_its_body() {
    let head = "POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc";
    unfinished(&[], head, |attacker, go_on| {
        attacker.finish_sending();
        go_on.send(()).unwrap();
    });
}

#[test]
fn a_client_whose_chunk_is_none() {
    let head = "POST /early HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
    unfinished(&[], head, |attacker, go_on| {
        attacker.send("zz\r\n");
        go_on.send(()).unwrap();
    });
}

#[test]
fn a_client_whose_body_grows_too_large() {
    let head = "POST /early HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
    unfinished(&[("client_max_body_size", "1k")], head, |attacker, go_on| {
        attacker.send(format!("800\r\n{}\r\n", "x".repeat(0x800)));
        go_on.send(()).unwrap();
    });
}

/// A client that does not know would send its next request on the connection.
#[test]
fn a_response_of_an_upstream_that_stops_reading_says_that_the_connection_ends() {
    let upstream = Http2Upstream::start(Builder::new(), usize::MAX, |(request, mut respond), _| {
        drop(request);
        async move {
            respond.send_response(Response::new(()), true).unwrap();
        }
    });
    let gateway = Gateway::start(&format!(
        "_format_version: \"3.0\"\nservices:\n- {{name: s, url: 'http://{}', tags: [weir-upstream-http2], retries: 0, \
         routes: [{{paths: [/], request_buffering: false}}]}}\n",
        upstream.address
    ));
    for _ in 0..20 {
        let mut peer = gateway.connect();
        peer.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n").send("x".repeat(300_000));
        let response = peer.response_to("POST");
        assert_eq!((response.status, response.header("connection")), (200, Some("close")));
    }
}

#[test]
fn what_follows_connect_is_no_request() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    let gateway = Gateway::start(&one_route(upstream.address));
    let mut peer = gateway.connect();
    peer.send("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\nGET /tunnelled HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(peer.response().status, 405);
    assert!(peer.is_closed());
}

#[test]
fn underscores_do_not_smuggle_an_identity() {
    let upstream = Upstream::echoing();
    let gateway = Gateway::start(&one_route(upstream.address));
    let aliases = "X_Consumer_Username: admin\r\nx-consumer_ID: 1\r\nX_Real_IP: 9.9.9.9\r\nX_Forwarded_For: 9.9.9.9\r\nmy_own: kept\r\n";
    let seen = gateway.get_with("/", aliases);
    let seen = seen.text();
    assert!(seen.contains("my_own: kept"), "{seen}");
    for alias in ["X_Consumer", "x-consumer_ID", "X_Real", "X_Forwarded"] {
        assert!(!seen.contains(alias), "{alias} reached the upstream: {seen}");
    }
}
