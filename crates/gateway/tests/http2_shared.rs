//! Connections to upstreams over HTTP/2 are shared: what one client does with its requests is nobody else's loss.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::http2::{Frames, ask, block_on, connect, get, start};
use crate::harness::http2_upstream::Http2Upstream;
use crate::harness::{Gateway, Identity, Peer, Upstream, document, service};
use bytes::Bytes;
use h2::Reason;
use h2::server::Builder;
use http::{Request, Response, StatusCode};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;

fn gateway(upstream: SocketAddr) -> Gateway {
    let configuration = document(&[service("/", upstream, "tags: [weir-upstream-http2]", "")], "");
    Gateway::builder(&configuration).set("proxy_listen", "127.0.0.1:0 http2").start()
}

fn post(path: &str) -> Request<()> {
    Request::post(format!("http://localhost{path}")).body(()).unwrap()
}

/// An answer that ends with its head: 204, from the static table.
fn no_content(stream: u32) -> Vec<u8> {
    Frames::frame(HEADERS, 0x5, stream, b"\x89")
}

/// The head of a response that goes on: 200, from the static table.
fn begun(stream: u32) -> Vec<u8> {
    Frames::frame(HEADERS, 0x4, stream, b"\x88")
}

/// Takes the preface, and answers it with these settings.
fn greet(peer: &mut Peer, settings: &[u8]) {
    let mut preface = [0; 24];
    peer.reader().read_exact(&mut preface).unwrap();
    peer.send(Frames::frame(SETTINGS, 0, 0, settings));
}

/// The streams of the next frames of a kind.
fn streams(peer: &mut Peer, of: u8, count: usize) -> Vec<u32> {
    let mut found = Vec::new();
    while found.len() < count {
        let (kind, _, stream) = Frames::skip(peer.reader()).expect("the connection goes on");
        if kind == of {
            found.push(stream);
        }
    }
    found
}

/// Waits until the gateway has taken up all that was sent before: it answers this one itself.
async fn taken_up(requests: &h2::client::SendRequest<Bytes>) {
    let trace = Request::builder().method("TRACE").uri("http://localhost/").body(()).unwrap();
    assert_eq!(ask(requests, trace).await.unwrap().status(), 405);
}

#[test]
fn what_was_on_its_way_to_those_who_left_is_no_fault_of_the_upstream() {
    const LEAVING: usize = 99;
    let upstream = Upstream::start(|mut peer, _| {
        greet(&mut peer, b"");
        let asked = streams(&mut peer, HEADERS, LEAVING + 1);
        peer.send(asked[1..].iter().flat_map(|stream| begun(*stream)).collect::<Vec<u8>>());
        let left = streams(&mut peer, RST_STREAM, LEAVING);
        for _ in 0..60 {
            let late = left.iter().flat_map(|stream| Frames::frame(DATA, 0, *stream, b"late"));
            peer.send(late.collect::<Vec<u8>>());
            // One by one, as they would come from afar.
            peer.send(Frames::frame(PING, 0, 0, &[0; 8]));
            streams(&mut peer, PING, 1);
        }
        peer.send(no_content(asked[0]));
        let _ = peer.rest();
    });
    let gateway = gateway(upstream.address);
    block_on(async {
        let (staying, _) = connect(gateway.proxy()).await;
        let (response, _) = start(&staying, post("/"), true).await.unwrap();
        taken_up(&staying).await;
        let (leaving, _) = connect(gateway.proxy()).await;
        let mut left = Vec::new();
        for _ in 0..LEAVING {
            left.push(start(&leaving, get("/"), true).await.unwrap());
        }
        for (response, stream) in &mut left {
            response.await.unwrap();
            stream.send_reset(Reason::CANCEL);
        }
        assert_eq!(response.await.unwrap().status(), StatusCode::NO_CONTENT);
    });
    assert_eq!(upstream.connections(), 1);
}

/// Each message is a frame of its own, and what the `h2` crate keeps of it takes forty times the room.
#[test]
fn clients_that_take_nothing_of_many_small_messages_stop_nobody_else() {
    const SLOW: usize = 20;
    let upstream = Upstream::start(|mut peer, _| {
        greet(&mut peer, b"");
        let asked = streams(&mut peer, HEADERS, SLOW + 1);
        for stream in &asked[1..] {
            peer.send(begun(*stream));
            peer.send(Frames::frame(DATA, 0, *stream, b"little").repeat(10_000));
        }
        peer.send(no_content(asked[0]));
        let _ = peer.rest();
    });
    let gateway = gateway(upstream.address);
    block_on(async {
        let (waiting, _) = connect(gateway.proxy()).await;
        let (response, _) = start(&waiting, post("/"), true).await.unwrap();
        taken_up(&waiting).await;
        let mut builder = h2::client::Builder::new();
        let (slow, _) =
            crate::harness::http2::connect_with(gateway.proxy(), builder.initial_window_size(0)).await;
        let mut held = Vec::new();
        for _ in 0..SLOW {
            held.push(start(&slow, get("/"), true).await.unwrap());
        }
        assert_eq!(response.await.unwrap().status(), StatusCode::NO_CONTENT);
    });
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn small_messages_that_an_upstream_does_not_take_stop_no_other_call_of_the_client() {
    // A window of nothing for each stream.
    let upstream = Upstream::start(|mut peer, _| {
        greet(&mut peer, &[0, 4, 0, 0, 0, 0]);
        let _ = peer.rest();
    });
    let gateway = gateway(upstream.address);
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        let mut held = Vec::new();
        for _ in 0..10 {
            let (response, mut body) = start(&requests, post("/"), false).await.unwrap();
            for _ in 0..2500 {
                body.send_data(Bytes::from_static(&[b'm'; 20]), false).unwrap();
            }
            held.push((response, body));
            taken_up(&requests).await;
        }
    });
}

/// A target with room for one request at a time.
#[test]
fn those_who_wait_for_a_target_that_turns_out_unhealthy_do_not_all_connect_to_it() {
    let (release, released) = mpsc::channel::<()>();
    let released = Arc::new(std::sync::Mutex::new(released));
    let mut builder = Builder::new();
    let upstream = Http2Upstream::start(
        builder.max_concurrent_streams(1).clone(),
        usize::MAX,
        move |(_, mut respond), n| {
            let released = released.clone();
            async move {
                while n > 0 && released.lock().unwrap().try_recv().is_err() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                let status = if n == 0 { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
                respond.send_response(Response::builder().status(status).body(()).unwrap(), true).unwrap();
            }
        },
    );
    let upstreams = format!(
        "upstreams:\n- {{name: some, targets: [{{target: \"{}\"}}], healthchecks: {{passive: {{unhealthy: \
         {{http_failures: 1}}}}}}}}\n",
        upstream.address
    );
    let services = [service("/", "some", "tags: [weir-upstream-http2], retries: 0", "")];
    let gateway = Gateway::builder(&document(&services, &upstreams))
        .set("proxy_listen", "127.0.0.1:0 http2")
        .set("upstream_http2_max_connections", "1")
        .start();
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        // From here on it is known how many requests the target takes.
        assert_eq!(ask(&requests, get("/")).await.unwrap().status(), 200);
        let mut responses = Vec::new();
        for _ in 0..10 {
            responses.push(start(&requests, post("/"), true).await.unwrap().0);
        }
        taken_up(&requests).await;
        release.send(()).unwrap();
        assert_eq!(responses.remove(0).await.unwrap().status(), 500);
        for response in responses {
            assert_eq!(response.await.unwrap().status(), 503);
        }
    });
    assert_eq!(upstream.connections(), 1);
}

/// An upstream that takes one request at a time, and is slow to say so.
#[test]
fn of_a_burst_no_more_is_asked_than_the_upstream_takes() {
    let upstream = Upstream::start(|mut peer, _| {
        std::thread::park_timeout(Duration::from_millis(200));
        greet(&mut peer, &[0, 3, 0, 0, 0, 1]);
        let mut busy = None;
        while let Some((kind, _, stream)) = Frames::skip(peer.reader()) {
            if kind == HEADERS && busy.is_some() {
                peer.send(Frames::frame(RST_STREAM, 0, stream, &7u32.to_be_bytes()));
            } else if kind == HEADERS {
                // Whatever else was asked at the same time is here before the answer to this.
                busy = Some(stream);
                peer.send(Frames::frame(PING, 0, 0, &[0; 8]));
            } else if let (PING, Some(stream)) = (kind, busy) {
                busy = None;
                peer.send(no_content(stream));
            }
        }
    });
    let gateway = gateway(upstream.address);
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        let mut responses = Vec::new();
        for _ in 0..100 {
            responses.push(start(&requests, post("/"), true).await.unwrap().0);
        }
        for response in responses {
            assert_eq!(response.await.unwrap().status(), StatusCode::NO_CONTENT);
        }
    });
}

/// Answers each request over TLS with 204.
fn over_tls(identity: &Identity) -> Upstream {
    let certificate = CertificateDer::from_pem_file(identity.cert()).unwrap();
    let key = PrivateKeyDer::from_pem_file(identity.key()).unwrap();
    let config = rustls::ServerConfig::builder().with_no_client_auth();
    let mut config = config.with_single_cert(vec![certificate], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let config = Arc::new(config);
    Upstream::start(move |peer, _| {
        let session = rustls::ServerConnection::new(config.clone()).unwrap();
        let mut tls = rustls::StreamOwned::new(session, peer.into_socket());
        let mut preface = [0; 24];
        if tls.read_exact(&mut preface).is_err()
            || tls.write_all(&Frames::frame(SETTINGS, 0, 0, b"")).is_err()
        {
            return;
        }
        while let Some((kind, _, stream)) = Frames::skip(&mut tls) {
            if kind == HEADERS && tls.write_all(&no_content(stream)).is_err() {
                return;
            }
        }
    })
}

#[test]
fn names_that_one_client_makes_up_take_no_connection_from_another() {
    let identity = Identity::new("up.test");
    let upstream = over_tls(&identity);
    let service =
        service("/", upstream.address, "tags: [weir-upstream-http2], retries: 0", "preserve_host: true");
    let configuration = document(&[service.replace("http://", "https://")], "");
    let gateway = Gateway::builder(&configuration).set("upstream_http2_max_connections", "2").start();
    for name in ["a.test", "b.test", "c.test", "a.test"] {
        let answered = gateway.send(&format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n"));
        assert_eq!(answered.status, 204, "{name}");
    }
    assert_eq!(upstream.connections(), 3);
}

/// A gateway with one connection to the upstream, on which requests wait for room.
fn with_one_connection(upstream: &Upstream) -> Gateway {
    let fields = "tags: [weir-upstream-http2], retries: 0, connect_timeout: 60000, read_timeout: 600000";
    Gateway::builder(&document(&[service("/", upstream.address, fields, "")], ""))
        .set("proxy_listen", "127.0.0.1:0 http2")
        .set("upstream_http2_max_connections", "1")
        // The upstream answers none.
        .set("http2_ping_interval", "0")
        .start()
}

/// Checks that a request that waits for the only connection is served while the response before it goes on without end,
/// once the upstream may go on.
fn the_one_that_waits_is_served(upstream: &Upstream, go_on: &mpsc::Sender<()>) {
    let gateway = with_one_connection(upstream);
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        let (response, _stream) = start(&requests, get("/"), true).await.unwrap();
        let endless = response.await.unwrap();
        let (response, _) = start(&requests, get("/"), true).await.unwrap();
        taken_up(&requests).await;
        go_on.send(()).unwrap();
        assert_eq!(response.await.unwrap().status(), StatusCode::NO_CONTENT);
        drop(endless);
    });
}

#[test]
fn a_request_that_waits_is_sent_when_the_upstream_takes_more_at_a_time() {
    let (go_on, may_go_on) = mpsc::channel();
    let may_go_on = std::sync::Mutex::new(may_go_on);
    let upstream = Upstream::start(move |mut peer, _| {
        greet(&mut peer, &[0, 3, 0, 0, 0, 1]);
        let first = streams(&mut peer, HEADERS, 1)[0];
        peer.send(begun(first));
        let _ = may_go_on.lock().unwrap().recv();
        peer.send(Frames::frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]));
        let second = streams(&mut peer, HEADERS, 1)[0];
        peer.send(no_content(second));
        let _ = peer.rest();
    });
    the_one_that_waits_is_served(&upstream, &go_on);
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn a_request_that_waits_is_sent_elsewhere_when_the_upstream_says_goaway() {
    let (go_on, may_go_on) = mpsc::channel();
    let may_go_on = std::sync::Mutex::new(may_go_on);
    let upstream = Upstream::start(move |mut peer, number| {
        greet(&mut peer, &[0, 3, 0, 0, 0, 1]);
        let asked = streams(&mut peer, HEADERS, 1)[0];
        if number == 0 {
            peer.send(begun(asked));
            let _ = may_go_on.lock().unwrap().recv();
            peer.send(Frames::frame(GOAWAY, 0, 0, &[asked.to_be_bytes(), [0; 4]].concat()));
        } else {
            peer.send(no_content(asked));
        }
        let _ = peer.rest();
    });
    the_one_that_waits_is_served(&upstream, &go_on);
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn a_request_that_waits_is_sent_when_as_many_as_before_are_allowed_again() {
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = std::sync::Mutex::new(may_go_on);
    let (refuse, refuses) = mpsc::channel::<()>();
    let upstream = Upstream::start(move |mut peer, _| {
        greet(&mut peer, &[0, 3, 0, 0, 0, 1]);
        let first = streams(&mut peer, HEADERS, 1)[0];
        let _ = may_go_on.lock().unwrap().recv();
        peer.send(no_content(first));
        let second = streams(&mut peer, HEADERS, 1)[0];
        peer.send(no_content(second));
        peer.send(Frames::frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 0]));
        streams(&mut peer, SETTINGS, 1);
        let _ = refuse.send(());
        let _ = may_go_on.lock().unwrap().recv();
        peer.send(Frames::frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 1]));
        let third = streams(&mut peer, HEADERS, 1)[0];
        peer.send(no_content(third));
        let _ = peer.rest();
    });
    let gateway = with_one_connection(&upstream);
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        let (first, _) = start(&requests, get("/"), true).await.unwrap();
        let (second, _) = start(&requests, get("/"), true).await.unwrap();
        taken_up(&requests).await;
        go_on.send(()).unwrap();
        for response in [first, second] {
            assert_eq!(response.await.unwrap().status(), StatusCode::NO_CONTENT);
        }
        refuses.recv().unwrap();
        let (third, _) = start(&requests, get("/"), true).await.unwrap();
        taken_up(&requests).await;
        go_on.send(()).unwrap();
        assert_eq!(third.await.unwrap().status(), StatusCode::NO_CONTENT);
    });
}
