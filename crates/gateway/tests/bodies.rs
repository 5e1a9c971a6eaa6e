//! Bodies through the gateway, both ways: every size, framing and pace arrives whole, and is held no longer than it
//! must be.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, Head, PATIENCE, Peer, Upstream, document, service, unescape};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

const SIZES: [usize; 6] = [0, 1, 16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, 1024 * 1024];
const UNBUFFERED: &str = "request_buffering: false, response_buffering: false";

fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 31 % 251) as u8).collect()
}

/// A body in chunks of uneven sizes.
fn chunked(body: &[u8]) -> Vec<u8> {
    let mut framed = Vec::new();
    let mut rest = body;
    let mut size = 1;
    while !rest.is_empty() {
        let (chunk, others) = rest.split_at(size.min(rest.len()));
        write!(framed, "{:x}\r\n", chunk.len()).unwrap();
        framed.extend_from_slice(chunk);
        framed.extend_from_slice(b"\r\n");
        rest = others;
        size = size * 3 % 40_009;
    }
    framed.extend_from_slice(b"0\r\n\r\n");
    framed
}

/// Answers with the request's body, framed as the request's `Frame` says.
fn echo(mut peer: Peer) {
    while let Some(request) = peer.request() {
        let body = request.body;
        match request.head.field("frame") {
            Some("chunked") => {
                peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").send(chunked(&body));
            }
            Some("close") => {
                peer.send("HTTP/1.1 200 OK\r\n\r\n").send(body);
                return;
            }
            _ => {
                peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len())).send(body);
            }
        }
    }
}

fn gateway(upstream: &Upstream) -> Gateway {
    let address = upstream.address;
    let services = [service("/held", address, "", ""), service("/streamed", address, "", UNBUFFERED)];
    Gateway::start(&document(&services, ""))
}

#[test]
fn bodies_of_every_size_and_framing_pass_both_ways() {
    let upstream = Upstream::start(|peer, _| echo(peer));
    let gateway = gateway(&upstream);
    thread::scope(|scope| {
        for path in ["/held", "/streamed"] {
            for request_framing in ["sized", "chunked"] {
                let gateway = &gateway;
                scope.spawn(move || {
                    let mut client = gateway.connect();
                    for frame in ["sized", "chunked", "close"] {
                        for size in SIZES {
                            let body = pattern(size);
                            client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nFrame: {frame}\r\n"));
                            if request_framing == "chunked" {
                                client.send("Transfer-Encoding: chunked\r\n\r\n").send(chunked(&body));
                            } else {
                                client.send(format!("Content-Length: {size}\r\n\r\n")).send(&body);
                            }
                            let response = client.response();
                            let case = format!("{path} {request_framing} {frame} {size}");
                            assert_eq!(response.status, 200, "{case}");
                            assert!(response.body == body, "{case}: {} bytes", response.body.len());
                        }
                    }
                });
            }
        }
    });
}

fn resident(gateway: &Gateway, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// 1 GiB each way.
#[test]
fn a_body_much_larger_than_memory_allowed_streams_both_ways() {
    const SIZE: usize = 1024 * 1024 * 1024;
    let upstream = Upstream::start(|mut peer, _| {
        let Some(head) = peer.head() else { return };
        let mut sink = vec![0; 256 * 1024];
        let mut left = if head.start.starts_with("POST") { SIZE } else { 0 };
        while left > 0 {
            left -= peer.reader().read(&mut sink).unwrap();
        }
        peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n"));
        (0..SIZE / sink.len()).for_each(|_| _ = peer.send(&sink));
    });
    let gateway = gateway(&upstream);
    gateway.get("/none");
    let before = resident(&gateway, "VmHWM");
    let mut client = gateway.connect();
    client.send(format!("POST /held HTTP/1.1\r\nHost: a\r\nContent-Length: {SIZE}\r\n\r\n"));
    let block = vec![0; 256 * 1024];
    (0..SIZE / block.len()).for_each(|_| client.try_send(&block).unwrap());
    let head = client.head().unwrap();
    assert_eq!(head.field("content-length"), Some(SIZE.to_string().as_str()));
    let received = std::io::copy(&mut client.reader().take(SIZE as u64), &mut std::io::sink()).unwrap();
    assert_eq!(received, SIZE as u64);
    let grown = resident(&gateway, "VmHWM") - before;
    assert!(grown < 8 * 1024 * 1024, "the process grew by {grown} bytes");
}

/// Whoever does not read holds back whoever sends, on both sides.
#[test]
fn a_slow_receiver_holds_back_the_sender_and_no_memory() {
    const MOST: usize = 64 * 1024 * 1024;
    let (sent, was_sent) = mpsc::channel();
    let (_over, hold) = mpsc::channel::<()>();
    let (sent, hold) = (Mutex::new(sent), Mutex::new(hold));
    let upstream = Upstream::start(move |mut peer, _| {
        let Some(head) = peer.head() else { return };
        if head.start.starts_with("GET") {
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {MOST}\r\n\r\n"));
            let _ = sent.lock().unwrap().send(send_until_blocked(&peer, MOST));
        } else {
            // Reads nothing until the test is over.
            let _ = hold.lock().unwrap().recv();
        }
    });
    let gateway = gateway(&upstream);
    let before = resident(&gateway, "VmHWM");
    let mut client = gateway.connect();
    client.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    let taken = was_sent.recv_timeout(PATIENCE).unwrap();
    assert!(taken < MOST, "an upstream was not held back");
    let mut client = gateway.connect();
    client.send(format!("POST /streamed HTTP/1.1\r\nHost: a\r\nContent-Length: {MOST}\r\n\r\n"));
    assert!(send_until_blocked(&client, MOST) < MOST, "a client was not held back");
    let grown = resident(&gateway, "VmHWM") - before;
    assert!(grown < 4 * 1024 * 1024, "the process grew by {grown} bytes");
}

/// Sends until the other side has taken nothing for a while; returns how much it took.
fn send_until_blocked(peer: &Peer, most: usize) -> usize {
    peer.socket().set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let block = vec![0; 64 * 1024];
    let mut taken = 0;
    while taken < most {
        match peer.socket().write(&block) {
            Ok(n) => taken += n,
            Err(_) => break,
        }
    }
    taken
}

#[derive(Deserialize)]
struct Table {
    case: Vec<Answered>,
}

/// What the upstream answers, and what the client then reads.
#[derive(Deserialize)]
struct Answered {
    name: String,
    method: String,
    response: String,
    #[serde(default)]
    interim: Vec<u16>,
    status: u16,
    reason: Option<String>,
    body: String,
    length: Option<String>,
    #[serde(default)]
    head: BTreeMap<String, String>,
    #[serde(default)]
    trailers: Vec<String>,
}

#[test]
fn responses_with_and_without_a_body_leave_the_connection_in_step() {
    let read = || toml::from_str::<Table>(include_str!("cases/responses.toml")).unwrap();
    let (table, cases) = (read(), read().case);
    let upstream = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            let case = &cases[request.head.field("case").unwrap().parse::<usize>().unwrap()];
            peer.send(unescape(&case.response));
            if case.name == "no framing" {
                return;
            }
        }
    });
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    for (index, case) in table.case.iter().enumerate() {
        client.send(format!("{} /held HTTP/1.1\r\nHost: a\r\nCase: {index}\r\n\r\n", case.method));
        let interim: Vec<_> = case.interim.iter().map(|_| client.response().status).collect();
        assert_eq!(interim, case.interim, "{}", case.name);
        let response = client.response_to(&case.method);
        let reason = response.head.start.splitn(3, ' ').nth(2);
        assert!(case.reason.is_none() || reason == case.reason.as_deref(), "{}: {reason:?}", case.name);
        assert!(response.header("date").is_some_and(|date| date.ends_with(" GMT")), "{}", case.name);
        for (name, value) in &case.head {
            assert_eq!(response.head.all(name).join(", "), *value, "{}: {name}", case.name);
        }
        assert_eq!((response.status, response.text()), (case.status, case.body.as_str()), "{}", case.name);
        assert_eq!(response.header("content-length"), case.length.as_deref(), "{}", case.name);
        let trailers: Vec<_> = response.trailers.iter().map(|(name, _)| name).collect();
        assert_eq!(trailers, case.trailers.iter().collect::<Vec<_>>(), "{}", case.name);
    }
}

#[test]
fn trailers_pass_both_ways() {
    let (seen, requests) = mpsc::channel();
    let upstream = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            let _ = seen.send(request);
            peer.send(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nDigest: down\r\n\r\n",
            );
        }
    });
    let gateway = gateway(&upstream);
    for path in ["/held", "/streamed"] {
        let mut client = gateway.connect();
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"));
        client.send("2\r\nyo\r\n0\r\nDigest: up\r\n\r\n");
        let response = client.response();
        assert_eq!(response.text(), "hi");
        assert_eq!(response.trailers, [("Digest".to_owned(), "down".to_owned())]);
        let request = requests.recv_timeout(PATIENCE).unwrap();
        assert_eq!(request.body, b"yo");
        assert_eq!(request.trailers, [("Digest".to_owned(), "up".to_owned())]);
    }
}

/// Who says `TE: trailers` is told which ones come, and so is the upstream.
#[test]
fn trailers_are_announced_to_those_who_take_them() {
    let (seen, requests) = mpsc::channel();
    let upstream = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            let _ = seen.send(request);
            peer.send(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Digest, Content-Length, X-Consumer-ID\r\n\r\n\
                 2\r\nhi\r\n0\r\nDigest: down\r\nConnection: close\r\n\r\n",
            );
        }
    });
    let gateway = gateway(&upstream);
    for path in ["/held", "/streamed"] {
        for (says, te, trailer) in [
            ("TE: trailers\r\nConnection: TE\r\n", Some("trailers"), Some("Digest")),
            ("TE: gzip;q=0.5, Trailers\r\n", Some("trailers"), Some("Digest")),
            ("TE: gzip\r\n", None, None),
            ("", None, None),
        ] {
            let mut client = gateway.connect();
            client.send(format!(
                "POST {path} HTTP/1.1\r\nHost: a\r\n{says}Trailer: Digest, Host\r\nTransfer-Encoding: chunked\r\n\r\n\
                 2\r\nyo\r\n0\r\nDigest: up\r\nKeep-Alive: 5\r\n\r\n"
            ));
            let response = client.response();
            assert_eq!((response.text(), response.header("trailer")), ("hi", trailer), "{path} {says}");
            assert_eq!(response.trailers, [("Digest".to_owned(), "down".to_owned())]);
            let request = requests.recv_timeout(PATIENCE).unwrap();
            assert_eq!((request.header("te"), request.header("connection")), (te, te.map(|_| "TE")));
            assert_eq!(request.header("trailer"), Some("Digest"));
            assert_eq!(request.trailers, [("Digest".to_owned(), "up".to_owned())]);
        }
    }
    // What has no chunks has no trailers.
    let mut client = gateway.connect();
    client
        .send("POST /held HTTP/1.1\r\nHost: a\r\nTrailer: Digest\r\nContent-Length: 2\r\n\r\nyo")
        .response();
    assert_eq!(requests.recv_timeout(PATIENCE).unwrap().header("trailer"), None);
}

#[test]
fn a_client_that_waits_for_100_gets_it_and_the_upstream_no_expectation() {
    let (seen, requests) = mpsc::channel();
    let upstream = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            let _ = seen.send(request);
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        }
    });
    let gateway = gateway(&upstream);
    for path in ["/held", "/streamed"] {
        for (framing, body) in
            [("Content-Length: 4", "body"), ("Transfer-Encoding: chunked", "4\r\nbody\r\n0\r\n\r\n")]
        {
            let mut client = gateway.connect();
            for _ in 0..2 {
                client.send(format!(
                    "PUT {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n{framing}\r\n\r\n"
                ));
                assert_eq!(client.response().status, 100, "{path} {framing}");
                client.send(body);
                assert_eq!(client.response().text(), "hi", "{path} {framing}");
                let request = requests.recv_timeout(PATIENCE).unwrap();
                assert_eq!(request.body, b"body");
                assert_eq!(request.head.field("expect"), None);
            }
            // Some do not wait.
            client.send(format!(
                "PUT {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n{framing}\r\n\r\n{body}"
            ));
            let mut response = client.response();
            if response.status == 100 {
                response = client.response();
            }
            assert_eq!(response.text(), "hi");
            assert_eq!(requests.recv_timeout(PATIENCE).unwrap().body, b"body");
        }
    }
}

#[test]
fn http_1_0_clients_get_what_they_understand() {
    let upstream = Upstream::start(|peer, _| echo(peer));
    let gateway = gateway(&upstream);
    let ask = |client: &mut Peer, headers: &str| {
        client.send(format!("POST /held HTTP/1.0\r\n{headers}Content-Length: 2\r\n\r\nhi"));
        client.response()
    };
    let mut client = gateway.connect();
    assert_eq!(ask(&mut client, "").text(), "hi");
    assert!(client.is_closed());
    let mut client = gateway.connect();
    for _ in 0..2 {
        let response = ask(&mut client, "Connection: keep-alive\r\n");
        assert_eq!((response.text(), response.header("connection")), ("hi", Some("keep-alive")));
    }
    for frame in ["chunked", "close"] {
        let mut client = gateway.connect();
        let response = ask(&mut client, &format!("Connection: keep-alive\r\nFrame: {frame}\r\n"));
        assert_eq!((response.text(), response.header("transfer-encoding")), ("hi", None), "{frame}");
        assert_eq!(response.header("connection"), Some("close"), "{frame}");
        assert!(client.is_closed());
    }
}

#[test]
fn requests_of_a_pipeline_are_answered_in_order() {
    let upstream = Upstream::start(|peer, _| echo(peer));
    let gateway = gateway(&upstream);
    let mut pipeline = Vec::new();
    for (index, path) in ["/held", "/streamed", "/none", "/held", "/streamed"].iter().enumerate() {
        write!(pipeline, "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nbody{index}").unwrap();
        let body = chunked(format!("chunks{index}").as_bytes());
        write!(pipeline, "POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        pipeline.extend_from_slice(&body);
        write!(pipeline, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    }
    let mut client = gateway.connect();
    client
        .send(&pipeline)
        .send("GET /held HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /held HTTP/1.1\r\n\r\n");
    for index in 0..5 {
        for expected in [format!("body{index}"), format!("chunks{index}"), String::new()] {
            let response = client.response();
            if index == 2 {
                assert_eq!(response.status, 404);
            } else {
                assert_eq!((response.status, response.text()), (200, expected.as_str()));
            }
        }
    }
    let last = client.response();
    assert_eq!((last.status, last.header("connection")), (200, Some("close")));
    assert!(client.is_closed(), "nothing is answered behind `Connection: close`");
}

#[test]
fn messages_that_come_byte_by_byte_are_whole() {
    let upstream = Upstream::start(|mut peer, _| {
        while let Some(request) = peer.request() {
            let body = chunked(&request.body);
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nA: b\r\n\r\n";
            head.as_bytes().iter().chain(&body).for_each(|byte| _ = peer.send([*byte]));
        }
    });
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    let body = pattern(100);
    for path in ["/held", "/streamed"] {
        let head = format!("PUT {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        head.as_bytes().iter().chain(&chunked(&body)).for_each(|byte| _ = client.send([*byte]));
        let response = client.response();
        assert_eq!(response.status, 200);
        assert_eq!(response.header("a"), Some("b"));
        assert!(response.body == body);
    }
}

/// An upstream that reports each head as it comes, then answers in two halves, the second when told to.
fn halves() -> (Upstream, Receiver<Head>, mpsc::Sender<()>) {
    let (seen, heads) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let upstream = Upstream::start(move |mut peer, _| {
        let Some(head) = peer.head() else { return };
        let _ = seen.send(head);
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\nhalf");
        let _ = may_go_on.lock().unwrap().recv();
        peer.send("half");
    });
    (upstream, heads, go_on)
}

#[test]
fn request_buffering_decides_when_the_upstream_is_asked() {
    for (framing, first, second) in [
        ("Content-Length: 8", "half", "half"),
        ("Transfer-Encoding: chunked", "4\r\nhalf\r\n", "4\r\nhalf\r\n0\r\n\r\n"),
    ] {
        let (upstream, heads, go_on) = halves();
        let gateway = gateway(&upstream);
        let mut client = gateway.connect();
        client.send(format!("POST /held HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n{first}"));
        assert!(heads.recv_timeout(Duration::from_millis(200)).is_err(), "asked before the body was whole");
        client.send(second);
        let head = heads.recv_timeout(PATIENCE).unwrap();
        assert_eq!(head.field("content-length"), Some("8"), "a body held whole has a length");
        go_on.send(()).unwrap();
        assert_eq!(client.response().text(), "halfhalf");

        let mut client = gateway.connect();
        client.send(format!("POST /streamed HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n{first}"));
        heads.recv_timeout(PATIENCE).expect("asked while the body is on its way");
    }
}

#[test]
fn a_response_reaches_the_client_while_it_is_on_its_way() {
    for path in ["/held", "/streamed"] {
        let (upstream, _heads, go_on) = halves();
        let gateway = gateway(&upstream);
        let mut client = gateway.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.head().unwrap().field("content-length"), Some("8"));
        let mut half = [0; 4];
        client.reader().read_exact(&mut half).unwrap();
        assert_eq!(&half, b"half");
        go_on.send(()).unwrap();
        client.reader().read_exact(&mut half).unwrap();
        assert_eq!(&half, b"half");
    }
}

/// Taken at a steady pace, over longer than `send_timeout`, which is about pauses.
#[test]
fn a_client_may_be_slow_as_long_as_it_goes_on() {
    const SIZE: usize = 48 * 1024 * 1024;
    let upstream = Upstream::start(|mut peer, _| {
        while peer.request().is_some() {
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n")).send(vec![0; SIZE]);
        }
    });
    let address = upstream.address;
    let services = [service("/held", address, "", ""), service("/streamed", address, "", UNBUFFERED)];
    let gateway = Gateway::builder(&document(&services, "")).set("send_timeout", "1s").start();
    thread::scope(|scope| {
        for path in ["/held", "/streamed"] {
            let gateway = &gateway;
            scope.spawn(move || {
                let mut client = gateway.connect();
                client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).head().unwrap();
                let mut piece = vec![0; SIZE / 24];
                for _ in 0..24 {
                    thread::park_timeout(Duration::from_millis(100));
                    client.reader().read_exact(&mut piece).expect("the response goes on");
                }
            });
        }
    });
}

/// Sent at a steady pace, over longer than `client_body_timeout`, and faster than `client_body_min_rate`.
#[test]
fn an_upload_may_be_slow_as_long_as_it_goes_on() {
    let upstream = Upstream::start(|peer, _| echo(peer));
    let address = upstream.address;
    let services = [service("/held", address, "", ""), service("/streamed", address, "", UNBUFFERED)];
    let gateway = Gateway::builder(&document(&services, "")).set("client_body_timeout", "3s").start();
    thread::scope(|scope| {
        for path in ["/held", "/streamed"] {
            let gateway = &gateway;
            scope.spawn(move || {
                let (mut client, body) = (gateway.connect(), pattern(5000));
                client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n"));
                for piece in body.chunks(100) {
                    thread::park_timeout(Duration::from_millis(100));
                    client.send(piece);
                }
                let response = client.response();
                assert_eq!(response.status, 200, "{path}");
                assert!(response.body == body, "{path}: {} bytes", response.body.len());
            });
        }
    });
}
