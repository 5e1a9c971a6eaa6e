//! Bodies and trailers, and who waits for whom.
use super::client::Client;
use super::{OK, gateway};
use crate::harness::{Gateway, Upstream, document, eventually, one_route, service};
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

const LARGE: usize = 20 << 20;

fn resident(gateway: &Gateway) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn large_bodies_pass_both_ways_without_being_held() {
    let upstream = Upstream::start(|mut peer, _| {
        while let Some(request) = peer.request() {
            let size = if request.body.is_empty() { LARGE } else { 0 };
            assert!(request.body.iter().all(|byte| *byte == b'x'));
            let told = request.body.len();
            peer.send(format!("HTTP/1.1 200 OK\r\nX-Size: {told}\r\nContent-Length: {size}\r\n\r\n"));
            for _ in 0..size / 65536 {
                peer.send([b'y'; 65536]);
            }
        }
    });
    let gateway = gateway(&one_route(upstream.address)).start();
    let mut client = Client::connect(gateway.proxy_quic());
    assert_eq!(client.get("/").bytes(), LARGE as u64);
    let before = resident(&gateway);
    let length = json!({"body": LARGE, "add": [["content-length", LARGE.to_string()]]});
    let crumbs = client.ask("crumbs", ("POST", "/"), &json!({"body": 10_000, "piece": 1})).response("crumbs");
    assert_eq!(crumbs.field("x-size"), Some("10000"));
    for more in [json!({"body": LARGE}), length] {
        let said = client.ask("up", ("POST", "/"), &more).response("up");
        assert_eq!(said.field("x-size"), Some(&*LARGE.to_string()), "{said:?}");
    }
    client.ask("one", ("GET", "/"), &json!({})).ask("two", ("GET", "/"), &json!({}));
    assert_eq!(
        (client.response("one").bytes(), client.response("two").bytes()),
        (LARGE as u64, LARGE as u64)
    );
    let grown = resident(&gateway).saturating_sub(before);
    assert!(grown < 12 << 20, "{grown} bytes more were in use at a time");
}

#[test]
fn trailers_pass_both_ways_and_say_nothing_that_a_head_decides() {
    let upstream = Upstream::start(|mut peer, _| {
        while let Some(request) = peer.request() {
            let names: Vec<_> = request.trailers.into_iter().map(|(name, _)| name).collect();
            let names = names.join(" ");
            peer.send(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", names.len()));
            peer.send(format!("{names}\r\n0\r\nX-Done: yes\r\n\r\n"));
        }
    });
    let gateway = gateway(&one_route(upstream.address)).start();
    let mut client = Client::connect(gateway.proxy_quic());
    let trailers = json!([["x-sum", "7"], ["x-consumer-id", "forged"], ["authorization", "no"]]);
    let said = client.ask("a", ("POST", "/"), &json!({"body": 10, "trailers": trailers})).response("a");
    assert_eq!((said.text(), said.trailer("x-done")), ("x-sum", Some("yes")), "{said:?}");
    for (trailers, status) in [(json!([["host", "a"]]), 400), (json!([["x", "7".repeat(17_000)]]), 431)] {
        let said = client.ask("b", ("POST", "/"), &json!({"body": 10, "trailers": trailers})).response("b");
        assert_eq!(said.status(), status, "{said:?}");
    }
}

#[test]
fn a_body_is_as_long_as_its_head_says() {
    let upstream = Upstream::answering(OK);
    let gateway = gateway(&one_route(upstream.address)).start();
    let mut client = Client::connect(gateway.proxy_quic());
    for (length, body, status) in
        [("10", 10, 200), ("10", 9, 400), ("10", 11, 400), ("10", 0, 400), ("+1", 1, 400)]
    {
        let more = json!({"body": body, "add": [["content-length", length]]});
        let said = client.ask("a", ("POST", "/"), &more).response("a");
        assert_eq!(said.status(), status, "{length} {body} {said:?}");
    }
    let twice = json!({"body": 1, "add": [["content-length", "1"], ["content-length", "1"]]});
    assert_eq!(client.ask("a", ("POST", "/"), &twice).response("a").status(), 400);
}

#[test]
fn a_client_that_waits_is_invited() {
    let upstream = Upstream::echoing();
    let gateway = gateway(&one_route(upstream.address)).start();
    let mut client = Client::connect(gateway.proxy_quic());
    let more = json!({"open": true, "add": [["expect", "100-continue"], ["content-length", "5"]]});
    client.ask("a", ("POST", "/"), &more).event("invited", |name| name == "a");
    let refused = json!({"body": 5, "add": [["expect", "something"]]});
    assert_eq!(client.ask("b", ("POST", "/"), &refused).response("b").status(), 417);
}

#[test]
fn a_hundred_requests_share_a_connection() {
    let (upstream, all) = Upstream::holding(OK);
    let gateway = gateway(&one_route(upstream.address)).start();
    // Answered once all have come: none waits for another.
    let answering = std::thread::spawn(move || {
        let all: Vec<_> = all.iter().take(100).collect();
        all.iter().for_each(|go| go.send(()).unwrap());
    });
    let mut client = Client::connect(gateway.proxy_quic());
    let names: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    for name in &names {
        client.ask(name, ("GET", "/"), &json!({}));
    }
    for name in &names {
        assert_eq!(client.response(name).text(), "hi");
    }
    answering.join().unwrap();
}

#[test]
fn a_truncated_response_is_passed_on_and_never_looks_whole() {
    const HEADS: [(&str, &str); 4] = [
        ("Transfer-Encoding: chunked", "2\r\nhi\r\n"),
        ("Transfer-Encoding: chunked", "2\r\nhi\r\nzz\r\n"),
        ("Content-Length: 10", "hi"),
        ("Content-Length: 10", ""),
    ];
    let upstream = Upstream::start(|mut peer, number| {
        peer.request();
        let (framing, body) = HEADS[number % HEADS.len()];
        peer.send(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{body}"));
    });
    let gateway = gateway(&one_route(upstream.address)).start();
    let mut client = Client::connect(gateway.proxy_quic());
    for number in 0..20 * HEADS.len() {
        let said = client.get("/");
        let expected = if number % HEADS.len() == 3 { "" } else { "hi" };
        match said.status() {
            // The end came before anything had left.
            502 => assert_eq!(said.reset(), None, "{said:?}"),
            status => {
                assert_eq!((status, said.text(), said.reset()), (200, expected, Some(0x102)), "{number}")
            }
        }
    }
    // The connection goes on.
    assert_eq!(client.ask("b", ("TRACE", "/"), &json!({})).response("b").status(), 405);
}

#[test]
fn a_client_that_stops_reading_stops_the_upstream_and_is_cut_off() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let upstream = Upstream::start(move |mut peer, _| {
        peer.request();
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let chunk = [b"10000\r\n".to_vec(), vec![b'x'; 65536], b"\r\n".to_vec()].concat();
        while peer.try_send(&chunk).is_ok() {
            counted.fetch_add(chunk.len(), Ordering::SeqCst);
        }
    });
    let gateway = gateway(&one_route(upstream.address)).set("send_timeout", "2s").start();
    let (mut client, _) = Client::with(gateway.proxy_quic(), &json!({"window": 100_000}));
    client.send(&json!({"do": "hold", "holds": true}));
    let said = client.get("/");
    assert_eq!((said.reset(), said.status()), (Some(0x102), 200), "{said:?}");
    assert!(said.bytes() <= 100_000, "{said:?}");
    // What the sockets' buffers hold, and no more.
    assert!(sent.load(Ordering::SeqCst) < 32 << 20, "{} bytes were sent", sent.load(Ordering::SeqCst));
}

#[test]
fn an_upstream_that_stops_reading_stops_the_client() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let upstream = Upstream::start(move |mut peer, _| {
        peer.head().unwrap();
        let () = wait.lock().unwrap().recv().unwrap();
        // The rest is read, and answered.
        peer.send(OK);
        peer.rest();
    });
    let gateway = gateway(&one_route(upstream.address)).start();
    let mut client = Client::connect(gateway.proxy_quic());
    let before = resident(&gateway);
    client.ask("a", ("POST", "/"), &json!({"body": 2 * LARGE}));
    eventually("the upstream is asked", || upstream.connections() == 1);
    // Others are served meanwhile.
    assert_eq!(client.ask("b", ("TRACE", "/"), &json!({})).response("b").status(), 405);
    let grown = resident(&gateway).saturating_sub(before);
    assert!(grown < 12 << 20, "{grown} bytes more are in use");
    go.send(()).unwrap();
    assert_eq!(client.response("a").text(), "hi");
}

#[test]
fn a_client_that_takes_its_request_back_frees_the_upstream() {
    let (closed, ended) = mpsc::channel();
    let upstream = Upstream::start(move |mut peer, _| {
        peer.request();
        assert!(peer.is_closed());
        closed.send(()).unwrap();
    });
    let gateway = gateway(&one_route(upstream.address)).start();
    let mut client = Client::connect(gateway.proxy_quic());
    client.ask("a", ("GET", "/"), &json!({}));
    eventually("the upstream is asked", || upstream.connections() == 1);
    client.send(&json!({"do": "cancel", "name": "a"}));
    ended.recv_timeout(crate::harness::PATIENCE).unwrap();
    assert_eq!(client.ask("b", ("TRACE", "/"), &json!({})).response("b").status(), 405);
}

#[test]
fn who_is_answered_early_has_the_answer_and_is_stopped() {
    let upstream = Upstream::answering(OK);
    let locked = service("/locked", upstream.address, "plugins: [{name: key-auth}]", "");
    let gateway = gateway(&document(&[locked], "")).start();
    let mut client = Client::connect(gateway.proxy_quic());
    let said = client.ask("a", ("POST", "/locked"), &json!({"body": 1000, "open": true})).response("a");
    assert_eq!(said.status(), 401, "{said:?}");
    let stopped = client.event("stopped", |name| name == "a");
    assert_eq!(stopped["code"], 0x100);
}
