//! Which target is asked, and how often: connections that fail are passed over, and no request is asked twice that
//! must not be.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::http2::{block_on, connect, read, start};
use crate::harness::{Gateway, Upstream, closed_port, document, one_route, service};
use bytes::Bytes;
use http::Request;
use std::collections::HashMap;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const INVALID: (u16, &str) = (502, "An invalid response was received from the upstream server");
const SLOW: (u16, &str) = (504, "The upstream server is timing out");
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// An address whose connections are never made: its queue is full.
pub(crate) struct Blackhole {
    pub(crate) address: SocketAddr,
    _open: (TcpListener, Vec<TcpStream>),
}

pub(crate) fn blackhole() -> Blackhole {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        waiting.push(stream);
    }
    Blackhole { address, _open: (listener, waiting) }
}

/// A name server that knows no name.
fn name_server() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut packet = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut packet) {
            packet[2..4].copy_from_slice(&[0x81, 0x83]);
            let _ = socket.send_to(&packet[..length], from);
        }
    });
    address
}

#[test]
fn upstreams_that_cannot_be_reached() {
    let hole = blackhole();
    let services = [
        service("/refused", closed_port(), "retries: 2", ""),
        service("/hole", hole.address, "connect_timeout: 100, retries: 1", ""),
        service("/nameless", "nothing.test", "retries: 0", ""),
        service("/down", "down", "retries: 5", ""),
        service("/weightless", "weightless", "", ""),
        service("/empty", "empty", "", ""),
    ];
    let upstreams = format!(
        "upstreams:\n- {{name: down, targets: [{{target: \"{}\"}}, {{target: \"{}\"}}]}}\n\
         - {{name: weightless, targets: [{{target: \"{}\", weight: 0}}]}}\n- {{name: empty}}\n",
        closed_port(),
        closed_port(),
        closed_port()
    );
    let gateway = Gateway::builder(&document(&services, &upstreams))
        .set("dns_resolver", &name_server().to_string())
        .start();
    let no_peer = "failure to get a peer from the ring-balancer";
    for (path, (status, message)) in [
        ("/refused", INVALID),
        ("/hole", SLOW),
        ("/nameless", (503, "name resolution failed")),
        ("/down", INVALID),
        ("/weightless", (503, no_peer)),
        ("/empty", (503, no_peer)),
    ] {
        let response = gateway.get_with(path, "Accept: application/json\r\n");
        assert_eq!(response.status, status, "{path}");
        assert_eq!(response.json()["message"], message, "{path}");
    }
}

#[test]
fn a_target_that_cannot_be_connected_to_is_passed_over() {
    let (good, never) = (Upstream::answering(OK), Upstream::answering(OK));
    let hole = blackhole();
    let services = [
        service("/retried", "some", "retries: 3, connect_timeout: 100", ""),
        service("/once", "some", "retries: 0, connect_timeout: 100", ""),
    ];
    let upstreams = format!(
        "upstreams:\n- {{name: some, targets: [{{target: \"{}\"}}, {{target: \"{}\"}}, {{target: \"{}\", weight: 50}}, \
         {{target: \"{}\", weight: 0}}]}}\n",
        closed_port(),
        good.address,
        hole.address,
        never.address
    );
    let gateway = Gateway::start(&document(&services, &upstreams));
    let mut client = gateway.connect();
    for request in 0..20 {
        client.send("POST /retried HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(client.response().status, 200, "request {request}");
    }
    let failed = (0..20).filter(|_| gateway.get("/once").status != 200).count();
    assert!((5..=15).contains(&failed), "{failed} of 20 met a target that is down");
    assert_eq!(never.connections(), 0, "a target of weight 0 was asked");
}

/// A cheap source of chance.
fn chance(state: &AtomicUsize) -> usize {
    let next = state
        .load(Ordering::Relaxed)
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    state.store(next, Ordering::Relaxed);
    next >> 33
}

/// An upstream that now and then closes or resets a connection behind a response, or instead of one;
/// counts how often it was asked for each path.
fn fickle() -> (Upstream, Arc<Mutex<HashMap<String, usize>>>) {
    let asked = Arc::new(Mutex::new(HashMap::new()));
    let (count, state) = (asked.clone(), AtomicUsize::new(7));
    let upstream = Upstream::start(move |mut peer, _| {
        let mut served = 0;
        while let Some(request) = peer.request() {
            *count.lock().unwrap().entry(request.head.start).or_default() += 1;
            if served > 0 && chance(&state).is_multiple_of(5) {
                return;
            }
            peer.send(OK);
            served += 1;
            match chance(&state) % 6 {
                0 | 1 => return,
                2 => return peer.reset(),
                _ => {}
            }
        }
    });
    (upstream, asked)
}

#[test]
fn no_client_sees_an_upstream_close_its_idle_connections() {
    let (upstream, _) = fickle();
    let gateway = Gateway::start(&document(&[service("/", upstream.address, "", "strip_path: false")], ""));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = gateway.connect();
                for request in 0..200 {
                    client.send(format!("GET /{request} HTTP/1.1\r\nHost: a\r\n\r\n"));
                    let response = client.response();
                    assert_eq!(response.status, 200, "request {request}: {}", response.text());
                }
            });
        }
    });
    assert!(upstream.connections() > 100, "the upstream closed hardly any connection");
    assert!(upstream.connections() < 800, "no connection was kept");
}

#[test]
fn a_post_whose_bytes_were_sent_is_never_sent_twice() {
    let (upstream, asked) = fickle();
    let gateway = Gateway::start(&document(&[service("/", upstream.address, "", "strip_path: false")], ""));
    let answered = Mutex::new(HashMap::new());
    thread::scope(|scope| {
        for thread in 0..4 {
            let (gateway, answered) = (&gateway, &answered);
            scope.spawn(move || {
                let mut client = gateway.connect();
                for request in 0..150 {
                    let line = format!("POST /{thread}-{request} HTTP/1.1");
                    client.send(format!("{line}\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"));
                    answered.lock().unwrap().insert(line, client.response().status);
                }
            });
        }
    });
    let (asked, answered) = (asked.lock().unwrap(), answered.into_inner().unwrap());
    for (line, status) in &answered {
        let times = asked.get(line).copied().unwrap_or(0);
        assert!(times <= 1, "{line} was sent {times} times");
        assert!(*status == 502 || (*status, times) == (200, 1), "{line}: {status}, sent {times} times");
    }
    assert!(answered.values().any(|status| *status == 502), "the upstream swallowed no request");
}

#[test]
fn any_number_of_requests_may_share_an_upstream_connection() {
    let upstream = Upstream::answering(OK);
    let gateway = Gateway::builder(&document(&[service("/", upstream.address, "", "")], ""))
        .set("upstream_keepalive_max_requests", "0")
        .start();
    (0..5).for_each(|_| assert_eq!(gateway.get("/").status, 200));
    assert_eq!(upstream.connections(), 1);
}

/// An upstream that answers one request on each connection, and resets it when another comes.
fn once() -> Upstream {
    Upstream::start(|mut peer, _| {
        if peer.request().is_some() {
            peer.send(OK);
            if peer.reader().read_exact(&mut [0]).is_ok() {
                peer.reset();
            }
        }
    })
}

#[test]
fn a_buffered_body_that_came_in_pieces_is_sent_again() {
    let upstream = once();
    let gateway = Gateway::start(&one_route(upstream.address));
    assert_eq!(gateway.get("/").status, 200);
    for round in 0..3 {
        let mut client = gateway.connect();
        client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n").send([b'x'; 500]);
        // Otherwise both pieces may arrive as one.
        thread::park_timeout(Duration::from_millis(100));
        assert_eq!(client.send([b'x'; 1500]).response().status, 200, "round {round}");
    }
    assert_eq!(upstream.connections(), 4, "each was sent on a kept connection first");
}

#[test]
fn a_body_whose_end_comes_in_a_frame_of_its_own_is_sent_again() {
    let upstream = once();
    let gateway =
        Gateway::builder(&one_route(upstream.address)).set("proxy_listen", "127.0.0.1:0 http2").start();
    assert_eq!(gateway.get("/").status, 200);
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        for round in 0..3 {
            let put = Request::put("http://localhost/").header("content-length", 2000).body(()).unwrap();
            let (response, mut body) = start(&requests, put, false).await.unwrap();
            body.send_data(vec![b'x'; 2000].into(), false).unwrap();
            body.send_data(Bytes::new(), true).unwrap();
            let (answer, _) = read(response.await.unwrap()).await.unwrap();
            assert_eq!(answer.status(), 200, "round {round}");
        }
    });
    assert_eq!(upstream.connections(), 4, "each was sent on a kept connection first");
}
