//! What hostile clients do over HTTP/2 costs them their connection, and nobody else anything.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::http2::{Frames, ask, block_on, connect, get, start};
use crate::harness::{Gateway, Upstream, document, eventually, one_route, service};
use http::Request;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const PROTOCOL_ERROR: Option<u32> = Some(1);
const FRAME_SIZE_ERROR: Option<u32> = Some(6);
const REFUSED_STREAM: Option<u32> = Some(7);
const COMPRESSION_ERROR: Option<u32> = Some(9);
const ENHANCE_YOUR_CALM: Option<u32> = Some(11);
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
/// What a client sends on a stream.
type OnStream = fn(u32) -> Vec<u8>;
/// How much the node may grow.
const ROOM: u64 = 32 << 20;

fn gateway(upstream: &Upstream) -> crate::harness::Builder {
    Gateway::builder(&one_route(upstream.address)).set("proxy_listen", "127.0.0.1:0 http2")
}

fn resident(gateway: &Gateway) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Does something, after which others are still served and the node is no larger than before, but for a little.
fn unharmed<T>(gateway: &Gateway, attack: impl FnOnce() -> T) -> T {
    assert_eq!(gateway.get("/").status, 200);
    let before = resident(gateway);
    let outcome = attack();
    assert_eq!(gateway.get("/").status, 200);
    let after = resident(gateway);
    assert!(after < before + ROOM, "{before} bytes before, {after} after");
    outcome
}

/// Sends the same until the other side takes no more, or so often; the client reads nothing meanwhile.
fn flood(mut client: Frames, frames: &[u8], times: usize) -> Option<u32> {
    for _ in 0..times {
        if !client.send(frames) {
            break;
        }
    }
    client.goaway()
}

#[test]
fn requests_that_are_taken_back_at_once() {
    let upstream = Upstream::answering(OK);
    let gateway = gateway(&upstream).start();
    let mut frames = Vec::new();
    for stream in (1..4001).step_by(2) {
        frames.extend(Frames::get(stream));
        frames.extend(Frames::frame(RST_STREAM, 0, stream, &8u32.to_be_bytes()));
    }
    let ended = unharmed(&gateway, || flood(Frames::connect(gateway.proxy()), &frames, 1));
    assert_eq!(ended, ENHANCE_YOUR_CALM);
    assert!(upstream.connections() < 200, "{} connections", upstream.connections());
}

/// Each is taken back once the upstream works on it.
#[test]
fn requests_that_are_taken_back_one_by_one() {
    let (arrived, asked) = mpsc::channel();
    let upstream = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            if request.head.start.starts_with("GET /calm") {
                peer.send(OK);
            } else {
                let _ = arrived.send(());
            }
        }
    });
    let gateway = gateway(&upstream).set("http2_max_resets", "5").start();
    block_on(async {
        let (patient, _) = connect(gateway.proxy()).await;
        let (requests, ended) = connect(gateway.proxy()).await;
        // Sooner or later the connection ends, and no other. A request that lived for long counts less.
        while let Ok((response, mut stream)) = start(&requests, get("/"), true).await {
            while asked.try_recv().is_err() && !ended.is_finished() {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            stream.send_reset(h2::Reason::CANCEL);
            drop(response);
        }
        drop(requests);
        let error = ended.await.unwrap().unwrap_err();
        assert_eq!(error.reason(), Some(h2::Reason::ENHANCE_YOUR_CALM));
        assert_eq!(ask(&patient, get("/calm")).await.unwrap().body(), "hi");
    });
}

/// As calls of gRPC with a deadline of 50 ms, against a server that takes longer.
#[test]
fn deadlines_that_pass_are_no_abuse() {
    let upstream = Upstream::start(|mut peer, _| {
        while let Some(request) = peer.request() {
            if request.head.start.starts_with("GET /calm") {
                peer.send(OK);
            }
        }
    });
    let gateway = gateway(&upstream).start();
    block_on(async {
        let (requests, ended) = connect(gateway.proxy()).await;
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(5));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut calls = Vec::new();
        // More than twice as many as may be given up at once.
        for _ in 0..600 {
            ticks.tick().await;
            let (response, mut stream) = start(&requests, get("/"), true).await.unwrap();
            calls.push(tokio::task::spawn_local(async move {
                let deadline = tokio::time::timeout(std::time::Duration::from_millis(50), response).await;
                stream.send_reset(h2::Reason::CANCEL);
                deadline.is_err()
            }));
        }
        for call in calls {
            assert!(call.await.unwrap(), "the connection ended before the deadline");
        }
        assert_eq!(ask(&requests, get("/calm")).await.unwrap().body(), "hi");
        assert!(!ended.is_finished());
    });
}

/// As a client of gRPC with as many calls as it may have, whose deadlines pass while others wait for their turn.
#[test]
fn requests_that_take_the_place_of_cancelled_ones_are_no_abuse() {
    let upstream = Upstream::start(|mut peer, _| {
        while let Some(request) = peer.request() {
            if request.head.start.starts_with("GET /calm") {
                peer.send(OK);
            }
        }
    });
    let settings = [("http2_max_concurrent_streams", "16"), ("http2_max_resets", "20")];
    let gateway = settings.iter().fold(gateway(&upstream), |to, (key, value)| to.set(key, value)).start();
    let mut client = Frames::connect(gateway.proxy());
    assert!(client.send(&(1..33).step_by(2).flat_map(Frames::get).collect::<Vec<_>>()));
    eventually("all are asked for", || upstream.connections() >= 16);
    let cancel = |stream| Frames::frame(RST_STREAM, 0, stream, &8u32.to_be_bytes());
    let calm = |stream| Frames::frame(1, 0x5, stream, b"\x82\x86\x01\x01a\x04\x05/calm");
    let replaced = (1..33).step_by(2).flat_map(cancel).chain((33..65).step_by(2).flat_map(calm));
    assert!(client.send(&replaced.collect::<Vec<_>>()));
    // Each is answered, or may be sent again, and the connection lives.
    let mut open: Vec<u32> = (33..65).step_by(2).collect();
    while !open.is_empty() {
        let (kind, flags, stream) = client.next_head().unwrap();
        assert_ne!(kind, GOAWAY);
        if kind == RST_STREAM || kind < 2 && flags & 1 != 0 {
            open.retain(|other| *other != stream);
        }
    }
    assert!(client.send(&calm(65)));
    assert!(client.answer(65).is_some());
}

#[test]
fn requests_under_way_end_before_the_connection_of_a_client_that_gives_up_too_many() {
    let (upstream, asked) = Upstream::holding(OK);
    let gateway = gateway(&upstream).set("http2_max_resets", "5").start();
    let mut client = Frames::connect(gateway.proxy());
    assert!(client.send(&Frames::get(1)));
    let go = asked.recv().unwrap();
    let given_up =
        |stream| [Frames::get(stream), Frames::frame(RST_STREAM, 0, stream, &8u32.to_be_bytes())].concat();
    assert!(client.send(&(3..19).step_by(2).flat_map(given_up).collect::<Vec<_>>()));
    assert_eq!(client.going_away(), ENHANCE_YOUR_CALM);
    // What comes now may be sent again elsewhere.
    assert!(client.send(&Frames::get(21)));
    assert_eq!(client.reset(21), REFUSED_STREAM);
    go.send(()).unwrap();
    assert!(client.answer(1).is_some());
    // Nothing that was given up before it was looked at was passed on.
    assert!(asked.try_recv().is_err());
    while client.next().is_some() {}
}

/// MadeYouReset: the client breaks a rule, so that the gateway resets the stream.
#[test]
fn streams_that_the_gateway_is_made_to_reset() {
    let under_way = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let counted = under_way.clone();
    let upstream = Upstream::start(move |mut peer, _| {
        if peer.request().is_some() {
            let now = counted.0.fetch_add(1, Ordering::SeqCst) + 1;
            counted.1.fetch_max(now, Ordering::SeqCst);
            let _ = peer.rest();
            counted.0.fetch_sub(1, Ordering::SeqCst);
        }
    });
    let calm = Upstream::answering(OK);
    let services = [service("/", upstream.address, "", ""), service("/calm", calm.address, "", "")];
    let gateway = Gateway::builder(&document(&services, "")).set("proxy_listen", "127.0.0.1:0 http2").start();
    let post = |stream| Frames::frame(1, 0x4, stream, b"\x83\x84\x86\x41\x01a");
    let faults: [(&str, OnStream); 4] = [
        ("a window beyond all bounds", |stream| Frames::frame(8, 0, stream, &[0x7f, 0xff, 0xff, 0xff])),
        ("malformed trailers", |stream| Frames::frame(1, 0x5, stream, b"\x00\x01X\x011")),
        ("trailers that are not the end", |stream| Frames::frame(1, 0x4, stream, b"\x00\x01x\x011")),
        ("a dependency on itself", |stream| {
            Frames::frame(2, 0, stream, &[&stream.to_be_bytes()[..], b"\x10"].concat())
        }),
    ];
    for (what, fault) in faults {
        let frames: Vec<u8> =
            (1..4001).step_by(2).flat_map(|stream| [post(stream), fault(stream)].concat()).collect();
        let before = resident(&gateway);
        assert_eq!(flood(Frames::connect(gateway.proxy()), &frames, 1), ENHANCE_YOUR_CALM, "{what}");
        assert_eq!(gateway.get("/calm").status, 200);
        let after = resident(&gateway);
        assert!(after < before + ROOM, "{what}: {before} bytes before, {after} after");
    }
    // An upstream may take a moment to see that a request was given up.
    let most = under_way.1.load(Ordering::SeqCst);
    assert!(most < 2 * 128, "{most} requests at a time");
}

/// As clients of gRPC do who have heard enough.
#[test]
fn responses_that_are_cut_short_are_no_abuse() {
    let upstream = Upstream::start(|mut peer, _| {
        while peer.request().is_some() {
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n");
        }
    });
    let gateway = gateway(&upstream).set("http2_max_resets", "5").start();
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        for _ in 0..20 {
            let (response, mut stream) = start(&requests, get("/"), true).await.unwrap();
            assert_eq!(response.await.unwrap().status(), 200);
            stream.send_reset(h2::Reason::CANCEL);
        }
    });
}

#[test]
fn requests_that_are_malformed() {
    let upstream = Upstream::answering(OK);
    let gateway = gateway(&upstream).start();
    let bad = |stream| Frames::frame(1, 0x5, stream, b"\x82\x84\x86\x41\x01a\x40\x01X\x011");
    let frames: Vec<u8> = (1..4001).step_by(2).flat_map(bad).collect();
    let ended = unharmed(&gateway, || flood(Frames::connect(gateway.proxy()), &frames, 1));
    assert_eq!(ended, ENHANCE_YOUR_CALM);
}

/// The node has to say much to a client that takes nothing, and may hold little of it.
#[test]
fn requests_that_are_malformed_of_a_client_that_takes_nothing() {
    let upstream = Upstream::start(|mut peer, _| {
        if peer.request().is_some() {
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 64 << 20));
            let _ = peer.try_send(&vec![b'x'; 64 << 20]);
        }
    });
    let gateway = gateway(&upstream).start();
    let mut client = Frames::connect(gateway.proxy());
    // Windows as large as they can be, and nothing is read.
    let window = Frames::frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    let connection = Frames::frame(8, 0, 0, &0x7fff_0000u32.to_be_bytes());
    assert!(client.send(&[window, connection, Frames::get(1)].concat()));
    eventually("it is asked for", || upstream.connections() == 1);
    client.patience(std::time::Duration::from_secs(1));
    let before = resident(&gateway);
    let bad = |stream| Frames::frame(1, 0x5, stream, b"\x82\x84\x86\x01\x01a\x00\x01X\x011");
    // The node stops reading, or ends the connection, long before the last of them.
    let mut parts = (3..2_000_000).step_by(4000);
    let part = |first: u32| (first..first + 4000).step_by(2).flat_map(bad).collect::<Vec<_>>();
    assert!(!parts.all(|first| client.send(&part(first))));
    let after = resident(&gateway);
    assert!(after < before + ROOM, "{before} bytes before, {after} after");
}

#[test]
fn pings_and_settings_whose_answers_nobody_reads() {
    let upstream = Upstream::answering(OK);
    let gateway = gateway(&upstream).set("send_timeout", "2s").start();
    for frame in [Frames::frame(PING, 0, 0, b"weirweir"), Frames::frame(SETTINGS, 0, 0, b"")] {
        unharmed(&gateway, || {
            let mut client = Frames::connect(gateway.proxy());
            client.patience(std::time::Duration::from_secs(1));
            let many = frame.repeat(1000);
            // The node stops reading long before the last of them, or reads all and holds none.
            (0..2000).take_while(|_| client.send(&many)).count()
        });
    }
}

#[test]
fn heads_without_an_end() {
    let upstream = Upstream::answering(OK);
    let gateway = gateway(&upstream).start();
    let field = [&b"\x00\x01a\x7f\x81\x01"[..], &[b'x'; 256]].concat();
    let block = field.repeat(60);
    let ended = unharmed(&gateway, || {
        let mut client = Frames::connect(gateway.proxy());
        client.send(&Frames::frame(1, 0x1, 1, b"\x82\x84\x86\x41\x01a"));
        flood(client, &Frames::frame(CONTINUATION, 0, 1, &block), 4000)
    });
    assert_eq!(ended, ENHANCE_YOUR_CALM);
    eventually("it is counted", || gateway.acted("head_size") == 1);
}

/// Alone, and beside a request that is under way; cut between its frames, and within one.
#[test]
fn heads_whose_end_is_late() {
    let (upstream, asked) = Upstream::holding(OK);
    let gateway = gateway(&upstream).set("client_header_timeout", "1s").start();
    let between = |stream| Frames::frame(1, 0x1, stream, b"\x82\x84\x86\x41\x01a");
    let within = |stream| Frames::get(stream)[..12].to_vec();
    for (number, is_beside, late) in
        [(1, false, between as OnStream), (2, false, within), (3, true, between), (4, true, within)]
    {
        let mut client = Frames::connect(gateway.proxy());
        let _under_way = is_beside.then(|| {
            assert!(client.send(&Frames::get(1)));
            asked.recv().unwrap()
        });
        assert!(client.send(&late(3)));
        // The request that had begun may be sent again.
        assert_eq!(client.goaway(), Some(0));
        eventually("it is counted", || gateway.acted("head_time") == number);
    }
    assert_eq!(gateway.acted("head_size") + gateway.acted("protocol_errors"), 0);
}

#[test]
fn more_requests_at_a_time_than_there_may_be() {
    let (upstream, asked) = Upstream::holding(OK);
    let gateway = gateway(&upstream).set("http2_max_concurrent_streams", "4").start();
    let mut client = Frames::connect(gateway.proxy());
    assert!(client.send(&(1..21).step_by(2).flat_map(Frames::get).collect::<Vec<_>>()));
    for stream in (9..21).step_by(2) {
        assert_eq!(client.reset(stream), REFUSED_STREAM);
    }
    eventually("each is counted", || gateway.acted("streams") == 6);
    for _ in 0..4 {
        asked.recv().unwrap().send(()).unwrap();
    }
    assert!(client.answer(7).is_some());
    assert_eq!(gateway.acted("streams"), 6);
}

#[test]
fn trailers_that_are_too_large() {
    let (upstream, asked) = Upstream::holding(OK);
    let gateway = gateway(&upstream).set("http2_max_header_list_size", "8k").start();
    let mut client = Frames::connect(gateway.proxy());
    // Each field alone is no larger than trailers may be.
    let field = [&b"\x00\x01a\x7f\x81\x01"[..], &[b'x'; 256]].concat();
    let large = [&b"\x00\x01b\x011"[..], &field.repeat(40)].concat();
    assert!(client.send(&Frames::frame(1, 0x4, 1, b"\x83\x84\x86\x41\x01a")));
    assert!(client.send(&Frames::frame(1, 0x5, 1, &large)));
    assert_eq!(client.reset(1), PROTOCOL_ERROR);
    assert!(client.send(&Frames::get(3)));
    asked.recv().unwrap().send(()).unwrap();
    assert!(client.answer(3).is_some());
    assert_eq!(gateway.acted("head_size"), 0);
}

#[test]
fn frames_that_break_the_rules_of_a_connection() {
    let upstream = Upstream::answering(OK);
    let gateway = gateway(&upstream).start();
    let too_long = Frames::frame(0, 0, 1, &[0; 20_000]);
    let undecodable = Frames::frame(1, 0x5, 1, b"\x80");
    let no_window = Frames::frame(8, 0, 0, &[0; 4]);
    let broken =
        [(too_long, FRAME_SIZE_ERROR), (undecodable, COMPRESSION_ERROR), (no_window, PROTOCOL_ERROR)];
    for (number, (frame, code)) in (1..).zip(&broken) {
        let mut client = Frames::connect(gateway.proxy());
        client.send(frame);
        assert_eq!(client.goaway(), *code);
        eventually("it is counted", || gateway.acted("protocol_errors") == number);
    }
}

/// One byte of HPACK stands for a field of 4000.
#[test]
fn heads_that_grow_when_they_are_unpacked() {
    let upstream = Upstream::answering(OK);
    let gateway = gateway(&upstream).start();
    let mut client = Frames::connect(gateway.proxy());
    let stored = [&b"\x82\x84\x86\x41\x01a\x40\x01b\x7f\xa1\x1e"[..], &[b'x'; 4000]].concat();
    unharmed(&gateway, || {
        assert!(client.send(&Frames::frame(1, 0x5, 1, &stored)));
        for stream in (3..2003).step_by(2) {
            let bomb = [&b"\x82\x84\x86\x41\x01a"[..], &[0xbe; 4000]].concat();
            if !client.send(&Frames::frame(1, 0x5, stream, &bomb)) {
                break;
            }
        }
    });
}

/// Each is 60 KB to the gateway and some 20 bytes to its client, which never sends the bodies it promised.
#[test]
fn large_heads_of_many_requests_at_a_time() {
    let upstream = Upstream::answering(OK);
    let gateway = gateway(&upstream).start();
    let large = || {
        let request = Request::post("http://a/").header("content-length", "2");
        let large = (0..15).fold(request, |request, _| request.header("x", "1".repeat(3900)));
        large.body(()).unwrap()
    };
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(start(&requests, large(), false).await.unwrap());
        }
        for _ in 0..30 {
            let (response, _body) = start(&requests, large(), false).await.unwrap();
            let refused = response.await.unwrap_err();
            assert_eq!(refused.reason(), Some(h2::Reason::REFUSED_STREAM));
        }
        assert_eq!((gateway.acted("heads_size"), gateway.acted("streams")), (30, 0));
        assert_eq!(ask(&requests, get("/")).await.unwrap().body(), "hi");
        for (response, mut body) in held {
            body.send_data("hi".into(), true).unwrap();
            assert_eq!(response.await.unwrap().status(), 200);
        }
        let (response, mut body) = start(&requests, large(), false).await.unwrap();
        body.send_data("hi".into(), true).unwrap();
        assert_eq!(response.await.unwrap().status(), 200);
    });
}

#[test]
fn more_fields_or_bytes_than_a_head_may_have() {
    let upstream = Upstream::answering(OK);
    let gateway = gateway(&upstream).set("http2_max_header_list_size", "48k").start();
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        let many =
            (0..1001).fold(Request::get("http://a/"), |request, n| request.header(format!("x-{n}"), "1"));
        let long = Request::get("http://a/").header("x", "1".repeat(50_000));
        for request in [many, long] {
            assert_eq!(ask(&requests, request.body(()).unwrap()).await.unwrap().status(), 431);
        }
        eventually("both are counted", || gateway.acted("head_size") == 2);
        assert_eq!(ask(&requests, get("/")).await.unwrap().status(), 200);
    });
}

#[test]
fn a_client_that_takes_nothing_of_many_responses() {
    let upstream = Upstream::start(|mut peer, _| {
        while peer.request().is_some() {
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 4 << 20));
            if peer.try_send(&vec![b'x'; 4 << 20]).is_err() {
                return;
            }
        }
    });
    let gateway = gateway(&upstream).set("send_timeout", "3s").start();
    let before = resident(&gateway);
    let mut client = Frames::connect(gateway.proxy());
    // Windows as large as they can be, and nothing is read.
    let window = Frames::frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    let connection = Frames::frame(8, 0, 0, &0x7fff_0000u32.to_be_bytes());
    assert!(client.send(&[window, connection].concat()));
    for stream in (1..201).step_by(2) {
        assert!(client.send(&Frames::get(stream)));
    }
    eventually("all are asked for", || upstream.connections() >= 100);
    let after = resident(&gateway);
    assert!(after < before + ROOM, "{before} bytes before, {after} after");
}
