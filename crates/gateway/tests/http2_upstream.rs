//! HTTP/2 towards upstreams, from clients of either version.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::http2::{Frames, block_on, connect, get, read, start};
use crate::harness::http2_upstream::{Http2Upstream, all};
use crate::harness::{Gateway, Identity, Peer, TlsUpstream, Upstream, document, eventually, service};
use bytes::Bytes;
use h2::Reason;
use h2::server::Builder;
use http::{HeaderMap, Request, Response};
use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn configuration(scheme: &str, upstream: SocketAddr) -> String {
    format!(
        "_format_version: \"3.0\"\nservices:\n- {{name: s, url: \"{scheme}://{upstream}\", tags: [weir-upstream-http2], \
         routes: [{{name: r, paths: [/]}}]}}\n"
    )
}

fn builder(upstream: SocketAddr) -> crate::harness::Builder {
    Gateway::builder(&configuration("http", upstream)).set("proxy_listen", "127.0.0.1:0 http2")
}

async fn answer(mut respond: h2::server::SendResponse<Bytes>) {
    let mut body = respond.send_response(Response::new(()), false).unwrap();
    body.send_data("hi".into(), true).unwrap();
}

#[test]
fn trailers_are_taken_for_those_who_take_them() {
    let upstream = Http2Upstream::echoing();
    let gateway = builder(upstream.address).start();
    let taken = gateway.get_with("/", "TE: trailers\r\nConnection: TE\r\n");
    assert!(taken.text().contains("te: trailers"), "{}", taken.text());
    assert!(!gateway.get("/").text().contains("te: "));
}

#[test]
fn heads_are_translated_for_clients_of_either_version() {
    let upstream = Http2Upstream::echoing();
    let gateway = builder(upstream.address).start();
    let over1 = gateway.send(
        "POST /a%20b?q=1 HTTP/1.1\r\nHost: shop.test\r\nConnection: x-hop\r\nX-Hop: 1\r\nX-Kept: yes\r\nTransfer-Encoding: \
         chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    );
    let over2 = block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        let request = Request::post("http://shop.test/a%20b?q=1").header("x-kept", "yes").body(()).unwrap();
        let (response, mut body) = start(&requests, request, false).await.unwrap();
        body.send_data("hello".into(), true).unwrap();
        read(response.await.unwrap()).await.unwrap().0
    });
    assert_eq!(over1.header("via"), Some("2 weir"));
    assert_eq!(over2.headers()["via"], "2 weir");
    for (said, via) in [(over1.text(), "1.1"), (over2.body(), "2")] {
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[0], format!("POST http://{}/a%20b?q=1", upstream.address), "{said}");
        let via = format!("via: {via} weir");
        for line in
            ["x-kept: yes", "x-forwarded-host: shop.test", "x-forwarded-for: 127.0.0.1", &via, "5 bytes"]
        {
            assert!(lines.contains(&line), "no {line} in {said}");
        }
        assert!(!said.contains("x-hop") && !said.contains("transfer-encoding"), "{said}");
    }
    assert!(gateway.get("/?q=<\"b\">").text().contains("/?q=%3C%22b%22%3E\n"));
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn over_tls_the_upstream_chooses_the_version() {
    let identity = Identity::new("up.test");
    let old = TlsUpstream::start(&identity, &[]);
    let gateway = Gateway::builder(&configuration("https", old.address)).start();
    for _ in 0..2 {
        assert!(gateway.get("/").text().contains("Cipher"));
    }
}

#[test]
fn responses_keep_their_framing_and_trailers() {
    let upstream = Http2Upstream::start(Builder::new(), usize::MAX, async |(request, mut respond), _| {
        let sized = request.uri().path() == "/sized";
        let mut response = Response::builder();
        if sized {
            response = response.header("content-length", 2);
        }
        if request.uri().path() == "/empty" {
            respond.send_response(response.status(204).body(()).unwrap(), true).unwrap();
            return;
        }
        let mut body = respond.send_response(response.body(()).unwrap(), false).unwrap();
        body.send_data("hi".into(), sized).unwrap();
        if !sized {
            let mut trailers = HeaderMap::new();
            trailers.insert("x-sum", "7".parse().unwrap());
            if request.uri().path() == "/forbidden" {
                trailers.insert("host", "a".parse().unwrap());
                trailers.insert("content-length", "2".parse().unwrap());
            }
            if request.uri().path() == "/many" {
                trailers.extend((0..200).map(|n| {
                    let name: http::HeaderName = format!("x-{n}").parse().unwrap();
                    (name, "1".parse().unwrap())
                }));
            }
            body.send_trailers(trailers).unwrap();
        }
    });
    let gateway = builder(upstream.address).start();
    let sized = gateway.get("/sized");
    assert_eq!((sized.text(), sized.header("content-length")), ("hi", Some("2")));
    let chunked = gateway.get("/chunked");
    assert_eq!((chunked.text(), chunked.header("transfer-encoding")), ("hi", Some("chunked")));
    assert_eq!(chunked.trailers, [("x-sum".to_owned(), "7".to_owned())]);
    let forbidden = gateway.get("/forbidden");
    assert_eq!((forbidden.text(), &forbidden.trailers), ("hi", &chunked.trailers));
    let many = gateway.get("/many");
    assert_eq!((many.text(), many.trailers.len()), ("hi", 100));
    let empty = gateway.get("/empty");
    assert_eq!((empty.status, empty.header("content-length")), (204, None));
}

/// A frame that says nothing but the end costs both sides as much as one with a body.
#[test]
fn the_last_piece_of_a_body_ends_it() {
    let upstream = Http2Upstream::start(Builder::new(), usize::MAX, async |(request, mut respond), _| {
        let mut body = request.into_body();
        let piece = body.data().await.unwrap().unwrap();
        let said = format!("{} bytes, the end: {}", piece.len(), body.is_end_stream());
        let mut body = respond.send_response(Response::new(()), false).unwrap();
        body.send_data(said.into(), true).unwrap();
    });
    let gateway = builder(upstream.address).start();
    let said = block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        let request = Request::post("http://localhost/").body(()).unwrap();
        let (response, mut body) = start(&requests, request, false).await.unwrap();
        body.send_data("hello".into(), true).unwrap();
        read(response.await.unwrap()).await.unwrap().0
    });
    assert_eq!(said.body(), "5 bytes, the end: true");
}

#[test]
fn a_burst_of_requests_shares_connections_as_far_as_the_limits_allow() {
    let (counted, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let peak = most.clone();
    let upstream = Http2Upstream::start(Builder::new(), usize::MAX, move |(_, respond), _| {
        let (counted, peak) = (counted.clone(), peak.clone());
        async move {
            peak.fetch_max(counted.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            counted.fetch_sub(1, Ordering::SeqCst);
            answer(respond).await;
        }
    });
    let burst = |gateway: &Gateway| {
        block_on(async {
            let (requests, _) = connect(gateway.proxy()).await;
            let mut responses = Vec::new();
            for _ in 0..60 {
                responses.push(start(&requests, get("/"), true).await.unwrap().0);
            }
            for response in responses {
                assert_eq!(read(response.await.unwrap()).await.unwrap().0.body(), "hi");
            }
        });
    };
    burst(&builder(upstream.address).start());
    assert_eq!(upstream.connections(), 1);
    let limited = builder(upstream.address)
        .set("upstream_http2_max_concurrent_streams", "5")
        .set("upstream_http2_max_connections", "2")
        .start();
    most.store(0, Ordering::SeqCst);
    burst(&limited);
    assert_eq!(upstream.connections(), 3);
    assert!(most.load(Ordering::SeqCst) <= 10, "{most:?} at a time");
}

/// Requests with bodies, which nothing but the upstream's word makes safe to send again.
#[test]
fn no_request_fails_when_upstreams_say_goaway() {
    let upstream = Http2Upstream::start(Builder::new(), 7, async |(request, respond), _| {
        assert_eq!(all(request.into_body()).await, 4);
        answer(respond).await;
    });
    let gateway = builder(upstream.address).start();
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        for _ in 0..20 {
            let mut responses = Vec::new();
            for _ in 0..10 {
                let post = Request::post("http://a/").body(()).unwrap();
                let (response, mut body) = start(&requests, post, false).await.unwrap();
                body.send_data("body".into(), true).unwrap();
                responses.push(response);
            }
            for response in responses {
                assert_eq!(read(response.await.unwrap()).await.unwrap().0.body(), "hi");
            }
        }
    });
    assert!(upstream.connections() >= 20, "{} connections", upstream.connections());
}

/// The first connection lets one of three requests in, and closes.
#[test]
fn requests_that_a_goaway_leaves_out_are_sent_again() {
    let upstream = Upstream::start(|mut peer, number| {
        let mut preface = [0; 24];
        peer.reader().read_exact(&mut preface).unwrap();
        peer.send(Frames::frame(4, 0, 0, b""));
        // 204, from the static table.
        let answer = |stream| Frames::frame(1, 0x5, stream, b"\x89");
        let mut open = Vec::new();
        while let Some((kind, flags, stream)) = Frames::skip(peer.reader()) {
            // Its request is whole once a frame says so.
            if matches!(kind, 0 | 1) && flags & 1 == 1 {
                open.push(stream);
            }
            if number > 0 {
                peer.send(open.drain(..).flat_map(answer).collect::<Vec<u8>>());
            } else if open.len() == 3 {
                let first = *open.iter().min().unwrap();
                peer.send(Frames::frame(7, 0, 0, &[first.to_be_bytes(), [0; 4]].concat()));
                peer.send(answer(first));
                return;
            }
        }
    });
    let gateway = builder(upstream.address).start();
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        let mut responses = Vec::new();
        for _ in 0..3 {
            let post = Request::post("http://a/").body(()).unwrap();
            let (response, mut body) = start(&requests, post, false).await.unwrap();
            body.send_data("body".into(), true).unwrap();
            responses.push(response);
        }
        for response in responses {
            assert_eq!(response.await.unwrap().status(), 204);
        }
    });
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn a_refused_request_is_sent_again_and_one_that_broke_off_is_not() {
    let upstream =
        Http2Upstream::start(Builder::new(), usize::MAX, async |(request, mut respond), number| {
            let refuses = request.uri().path() == "/refused" && number == 0;
            assert_eq!(all(request.into_body()).await, 4);
            match refuses {
                true => respond.send_reset(Reason::REFUSED_STREAM),
                false if number == 1 => answer(respond).await,
                false => respond.send_reset(Reason::INTERNAL_ERROR),
            }
        });
    let gateway = builder(upstream.address).start();
    let post = |path: &str| {
        gateway.send(&format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"))
    };
    assert_eq!(post("/refused").text(), "hi");
    assert_eq!(post("/broken").status, 502);
    assert_eq!(post("/broken").status, 502);
}

#[test]
fn a_response_that_breaks_off_never_looks_whole() {
    let upstream = Http2Upstream::start(Builder::new(), usize::MAX, async |(_, mut respond), _| {
        let mut body = respond.send_response(Response::new(()), false).unwrap();
        body.send_data("hi".into(), false).unwrap();
        tokio::task::yield_now().await;
        body.send_reset(Reason::CANCEL);
    });
    let gateway = builder(upstream.address).start();
    for _ in 0..20 {
        let rest = gateway.connect().send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").rest();
        let rest = String::from_utf8(rest).unwrap();
        let passed_on = rest.starts_with("HTTP/1.1 200") && rest.ends_with("\r\n\r\n2\r\nhi\r\n");
        assert!(passed_on || rest.starts_with("HTTP/1.1 502"), "{rest}");
    }
}

#[test]
fn a_response_with_too_many_fields_is_a_bad_gateway() {
    let upstream = Http2Upstream::start(Builder::new(), usize::MAX, async |(_, mut respond), number| {
        let fields = if number == 0 { 1001 } else { 1000 };
        let response = (0..fields).fold(Response::builder(), |it, n| it.header(format!("x-{n}"), "1"));
        respond.send_response(response.body(()).unwrap(), true).unwrap();
    });
    let gateway = builder(upstream.address).start();
    assert_eq!((gateway.get("/").status, gateway.get("/").status), (502, 200));
}

#[test]
fn a_slow_client_stops_its_own_upstream_alone() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let upstream = Http2Upstream::start(Builder::new(), usize::MAX, move |(request, mut respond), _| {
        let counted = counted.clone();
        async move {
            if request.uri().path() == "/hi" {
                return answer(respond).await;
            }
            let mut body = respond.send_response(Response::new(()), false).unwrap();
            loop {
                body.reserve_capacity(16384);
                let Some(Ok(room)) = std::future::poll_fn(|cx| body.poll_capacity(cx)).await else { return };
                body.send_data(vec![b'x'; room].into(), false).unwrap();
                counted.fetch_add(room, Ordering::SeqCst);
            }
        }
    });
    let gateway = builder(upstream.address).start();
    let mut slow: Vec<Peer> = (0..20).map(|_| gateway.connect()).collect();
    slow.iter_mut().for_each(|client| {
        client.send("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n");
    });
    let (mut before, mut since) = (0, Instant::now());
    eventually("the upstream is stopped", || {
        let now = sent.load(Ordering::SeqCst);
        if std::mem::replace(&mut before, now) != now {
            since = Instant::now();
        }
        now > 20 * 64 * 1024 && since.elapsed() > Duration::from_millis(300)
    });
    assert_eq!(gateway.get("/hi").text(), "hi");
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn a_client_that_leaves_takes_its_stream_with_it() {
    let (reset, learnt) = std::sync::mpsc::channel();
    let upstream = Http2Upstream::start(Builder::new(), usize::MAX, move |(_, mut respond), _| {
        let reset = reset.clone();
        async move {
            let mut body = respond.send_response(Response::new(()), false).unwrap();
            body.send_data("hi".into(), false).unwrap();
            let reason = std::future::poll_fn(|cx| body.poll_reset(cx)).await;
            reset.send(reason.unwrap()).unwrap();
        }
    });
    let gateway = builder(upstream.address).start();
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        let (response, mut stream) = start(&requests, get("/"), true).await.unwrap();
        let mut body = response.await.unwrap().into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), "hi");
        stream.send_reset(Reason::CANCEL);
        drop(body);
        while learnt.try_recv().is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // The connection goes on.
        let (response, _) = start(&requests, get("/"), true).await.unwrap();
        assert_eq!(response.await.unwrap().status(), 200);
    });
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn an_upstream_that_does_not_speak_it_is_a_bad_gateway() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    let gateway = builder(upstream.address).start();
    assert_eq!(gateway.get("/").status, 502);
}

/// Two targets, asked over HTTP/2.
fn balanced(targets: [SocketAddr; 2], fields: &str) -> String {
    let targets = targets.map(|target| format!("{{target: \"{target}\"}}")).join(", ");
    let upstreams = format!("upstreams:\n- {{name: some, targets: [{targets}], {fields}}}\n");
    document(&[service("/", "some", "tags: [weir-upstream-http2]", "")], &upstreams)
}

#[test]
fn a_target_whose_answers_are_failures_is_not_asked() {
    let answering = |status: u16| {
        Http2Upstream::start(Builder::new(), usize::MAX, move |(_, mut respond), _| async move {
            let response = Response::builder().status(status).body(()).unwrap();
            respond.send_response(response, true).unwrap();
        })
    };
    let (bad, good) = (answering(500), answering(200));
    let checks = "healthchecks: {passive: {unhealthy: {http_failures: 3}}}";
    let gateway = Gateway::start(&balanced([bad.address, good.address], checks));
    assert_eq!((0..20).filter(|_| gateway.get("/").status == 500).count(), 3);
}

#[test]
fn a_target_that_breaks_streams_off_is_not_asked() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let bad = Http2Upstream::start(Builder::new(), usize::MAX, move |(_, mut respond), _| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move { respond.send_reset(Reason::INTERNAL_ERROR) }
    });
    let good = Http2Upstream::echoing();
    let checks = "healthchecks: {passive: {unhealthy: {tcp_failures: 2}}}";
    let gateway = Gateway::start(&balanced([bad.address, good.address], checks));
    let post = || gateway.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").status;
    assert_eq!((0..20).filter(|_| post() == 502).count(), 2);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[test]
fn requests_under_way_count_for_the_balancer() {
    let held = Arc::new(AtomicUsize::new(0));
    let named = |name: &'static str| {
        let held = held.clone();
        Http2Upstream::start(Builder::new(), usize::MAX, move |(request, mut respond), _| {
            let held = held.clone();
            async move {
                if request.uri().path() == "/hold" {
                    held.fetch_add(1, Ordering::SeqCst);
                    std::future::pending::<()>().await;
                }
                let mut body = respond.send_response(Response::new(()), false).unwrap();
                body.send_data(name.into(), true).unwrap();
            }
        })
    };
    let (one, two) = (named("one"), named("two"));
    let gateway = Gateway::start(&balanced([one.address, two.address], "algorithm: least-connections"));
    let mut waiting = gateway.connect();
    waiting.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it is held", || held.load(Ordering::SeqCst) == 1);
    let first = gateway.get("/").text().to_owned();
    assert!((0..6).all(|_| gateway.get("/").text() == first));
}

#[test]
fn a_tunnel_is_not_asked_of_what_speaks_http2_alone() {
    let upstream = Http2Upstream::echoing();
    let gateway = builder(upstream.address).start();
    let refused =
        gateway.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(refused.status, 502);
    assert!(refused.text().contains("not asked to change the protocol"), "{}", refused.text());
    assert!(gateway.log().contains("weir-upstream-http2"));
    assert_eq!((gateway.get("/").status, upstream.connections()), (200, 1));
}
