//! Requests that get no response from one target and are sent to the next: which of them, how often, and what is told of
//! it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod budget;
mod load;

use crate::harness::http2::{block_on, connect, read, start};
use crate::harness::{Gateway, Message, Peer, Upstream, document, eventually, service, unescape};
use serde::Deserialize;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

#[derive(Deserialize)]
struct Table {
    refused: Vec<Sent>,
}

/// What an upstream sends in the place of a response, and whether it closes then.
#[derive(Deserialize)]
struct Sent {
    name: String,
    bytes: String,
    then: String,
    #[serde(default = "bad_gateway")]
    status: u16,
}

fn bad_gateway() -> u16 {
    502
}

impl Sent {
    fn all() -> Vec<Sent> {
        let table: Table = toml::from_str(include_str!("../cases/upstreams.toml")).unwrap();
        table.refused
    }

    /// Whether it is the beginning of a response at most; the others are none.
    fn is_retried(&self) -> bool {
        self.then != "stay" || self.status == 504
    }
}

/// An upstream that fails as a case says; counts requests.
fn failing(case: &Sent) -> (Upstream, Arc<AtomicUsize>) {
    let (asked, bytes, then) = (Arc::new(AtomicUsize::new(0)), unescape(&case.bytes), case.then.clone());
    let count = asked.clone();
    let upstream = Upstream::start(move |mut peer, _| {
        while peer.request().is_some() {
            count.fetch_add(1, Ordering::SeqCst);
            peer.send(&bytes);
            match then.as_str() {
                "close" => return,
                "reset" => return peer.reset(),
                _ => {}
            }
        }
    });
    (upstream, asked)
}

/// An upstream that says which body it got.
fn answering() -> (Upstream, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let upstream = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            count.fetch_add(1, Ordering::SeqCst);
            let body = String::from_utf8_lossy(&request.body);
            peer.send(format!("HTTP/1.1 200 OK\r\nGot: [{body:.9}]\r\nContent-Length: 0\r\n\r\n"));
        }
    });
    (upstream, asked)
}

fn targets(addresses: &[SocketAddr]) -> String {
    addresses.iter().fold(String::new(), |mut text, address| {
        let _ = write!(text, "{{target: \"{address}\"}},");
        text
    })
}

/// A document with one upstream of these targets.
fn over(addresses: &[SocketAddr], fields: &str) -> String {
    let upstream = format!("upstreams:\n- {{name: some, targets: [{}]}}\n", targets(addresses));
    document(&[service("/", "some", fields, "strip_path: false")], &upstream)
}

fn send(client: &mut Peer, method: &str, body: Option<&str>) -> Message {
    let length = body.map(|body| format!("Content-Length: {}\r\n", body.len())).unwrap_or_default();
    client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\n{length}\r\n{}", body.unwrap_or_default()));
    client.final_response_to(method)
}

/// Runs cases beside each other, each with a target that fails so and one that answers.
fn beside(cases: &[Sent], run: impl Fn(&Sent, &Gateway, [&AtomicUsize; 2]) + Sync) {
    thread::scope(|scope| {
        for case in cases {
            let run = &run;
            scope.spawn(move || {
                let ((failing, failed), (good, answered)) = (failing(case), answering());
                let addresses = [failing.address, good.address];
                let gateway = Gateway::start(&over(&addresses, "read_timeout: 300, retries: 5"));
                run(case, &gateway, [&failed, &answered]);
            });
        }
    });
}

#[test]
fn idempotent_requests_are_sent_to_the_next_target() {
    let cases: Vec<_> = Sent::all().into_iter().filter(Sent::is_retried).collect();
    assert!(cases.len() >= 8, "{} cases", cases.len());
    beside(&cases, |case, gateway, [failed, _]| {
        let mut client = gateway.connect();
        for method in ["GET", "HEAD", "PUT", "DELETE"] {
            for body in [None, Some("abc")] {
                // Both targets have a turn.
                for _ in 0..2 {
                    let response = send(&mut client, method, body);
                    let got = format!("[{}]", body.unwrap_or_default());
                    let said = (response.status, response.header("got"));
                    assert_eq!(said, (200, Some(&*got)), "{}: {method} {body:?}", case.name);
                }
            }
        }
        assert_eq!(failed.load(Ordering::SeqCst), 8, "{}: each target has every other turn", case.name);
    });
}

/// The body of the second response has an empty line where the first one's head was broken off.
#[test]
fn the_head_of_a_broken_response_is_no_part_of_the_next() {
    let half = format!("HTTP/1.1 200 OK\r\nX-Half: {}", "a".repeat(100));
    let body = format!("{}\r\nX-Of-Body: 1\r\n\r\n{}", "b".repeat(100), "c".repeat(100));
    let whole = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let asked = Arc::new(AtomicUsize::new(0));
    let upstream = Upstream::start(move |mut peer, _| {
        peer.request();
        let is_first = asked.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        peer.send(if is_first { &half } else { &whole });
    });
    let gateway = Gateway::start(&over(&[upstream.address], "retries: 1"));
    let response = send(&mut gateway.connect(), "GET", None);
    let body = body.as_bytes();
    assert_eq!((response.status, response.header("x-of-body"), &*response.body), (200, None, body));
}

#[test]
fn others_are_not_sent_to_a_second_target_once_a_byte_was_sent() {
    let cases: Vec<_> = Sent::all().into_iter().filter(Sent::is_retried).collect();
    beside(&cases, |case, gateway, asked| {
        for method in ["POST", "PATCH"] {
            let mut statuses = [0; 2].map(|_| send(&mut gateway.connect(), method, Some("abc")).status);
            statuses.sort_unstable();
            assert_eq!(statuses, [200, case.status], "{}: {method}", case.name);
        }
        assert_eq!(asked.map(|asked| asked.load(Ordering::SeqCst)), [2, 2], "{}", case.name);
    });
}

#[test]
fn what_is_no_response_is_not_asked_for_again() {
    let cases: Vec<_> = Sent::all().into_iter().filter(|case| !case.is_retried()).collect();
    assert!(cases.len() >= 10, "{} cases", cases.len());
    beside(&cases, |case, gateway, asked| {
        let mut client = gateway.connect();
        let mut statuses = [0; 2].map(|_| send(&mut client, "GET", None).status);
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 502], "{}", case.name);
        assert_eq!(asked.map(|asked| asked.load(Ordering::SeqCst)), [1, 1], "{}", case.name);
    });
}

#[test]
fn no_retries_are_none() {
    let case = &Sent::all()[0];
    let ((failing, failed), (good, _)) = (failing(case), answering());
    let gateway = Gateway::start(&over(&[failing.address, good.address], "retries: 0"));
    let bad = (0..10).filter(|_| gateway.get("/").status == 502).count();
    assert_eq!((bad, failed.load(Ordering::SeqCst)), (5, 5));
}

/// What a target that is asked with a long body has taken of it cannot be sent again.
#[test]
fn a_body_that_is_not_here_whole_is_sent_once() {
    let ((failing, failed), (good, _)) = (failing(&Sent::all()[0]), answering());
    let gateway = Gateway::start(&over(&[failing.address, good.address], ""));
    let body = "x".repeat(200_000);
    let mut statuses = [0; 2].map(|_| send(&mut gateway.connect(), "PUT", Some(&body)).status);
    statuses.sort_unstable();
    assert_eq!((statuses, failed.load(Ordering::SeqCst)), ([200, 502], 1));
}

/// A connection that the upstream closes at its second request says nothing of the upstream: it counts as no retry.
#[test]
fn a_request_on_a_kept_connection_that_closes_is_sent_again_with_its_body() {
    let upstream = Upstream::start(|mut peer, _| {
        if let Some(request) = peer.request() {
            let body = String::from_utf8_lossy(&request.body).into_owned();
            peer.send(format!("HTTP/1.1 200 OK\r\nGot: [{body}]\r\nContent-Length: 0\r\n\r\n"));
            let _ = peer.request();
        }
    });
    let gateway = Gateway::builder(&document(&[service("/", upstream.address, "retries: 0", "")], ""))
        .set("proxy_listen", "127.0.0.1:0 http2")
        .start();
    let mut client = gateway.connect();
    for method in ["PUT", "DELETE", "GET", "OPTIONS"] {
        for request in 0..20 {
            let response = send(&mut client, method, Some("abc"));
            assert_eq!((response.status, response.header("got")), (200, Some("[abc]")), "{method} {request}");
        }
    }
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        for request in 0..20 {
            let put = http::Request::put("http://a/").header("content-length", 3).body(()).unwrap();
            let (response, mut body) = start(&requests, put, false).await.unwrap();
            body.send_data("abc".into(), true).unwrap();
            let (response, _) = read(response.await.unwrap()).await.unwrap();
            assert_eq!(
                (response.status().as_u16(), &response.headers()["got"].to_str().unwrap()),
                (200, &"[abc]"),
                "{request}"
            );
        }
    });
    let retries = budget::metric(
        &gateway,
        &format!("retries_total{{upstream=\"{}\",reason=\"kept\"}}", upstream.address),
    );
    assert!(retries >= 40, "{retries} connections closed at their second request");
}

/// A plugin that reads the body as it passes sees it once, however often it is sent.
#[test]
fn what_watches_a_body_sees_it_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let ((failing, _), (good, _)) = (failing(&Sent::all()[0]), answering());
    let plugins = format!("plugins:\n- {{name: file-log, config: {{path: {}}}}}\n", path.display());
    let gateway = Gateway::start(&(over(&[failing.address, good.address], "") + &plugins));
    let mut client = gateway.connect();
    (0..2).for_each(|_| assert_eq!(send(&mut client, "PUT", Some("abc")).status, 200));
    let lines = || std::fs::read_to_string(&path).unwrap_or_default();
    eventually("both are logged", || lines().lines().count() == 2);
    let sizes: Vec<u64> = lines()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|record| record["request"]["size"].as_u64().unwrap())
        .collect();
    assert_eq!(sizes[0], sizes[1], "one of them was sent twice");
}

/// A target that is down by its health checks is not asked, not even where no other is left.
#[test]
fn unhealthy_targets_get_no_retries() {
    let case = Sent { name: String::new(), bytes: String::new(), then: "close".into(), status: 502 };
    let ((failing, failed), checks) = (failing(&case), "passive: {unhealthy: {tcp_failures: 2}}");
    let upstream = format!(
        "upstreams:\n- {{name: some, targets: [{}], healthchecks: {{{checks}}}}}\n",
        targets(&[failing.address])
    );
    let gateway = Gateway::start(&document(&[service("/", "some", "retries: 5", "")], &upstream));
    assert_eq!(gateway.get("/").status, 502, "the failure is told, not that nobody is left");
    assert_eq!(failed.load(Ordering::SeqCst), 2);
    assert_eq!(gateway.get("/").status, 503);
}

/// What was told of a request by the log plugins.
#[test]
fn each_try_is_logged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let cases = Sent::all();
    let slow = cases.iter().find(|case| case.status == 504).unwrap();
    let ((silent, _), (closing, _), (good, _)) = (failing(slow), failing(&cases[0]), answering());
    let addresses = [silent.address, closing.address, good.address];
    let plugins = format!("plugins:\n- {{name: file-log, config: {{path: {}}}}}\n", path.display());
    let gateway = Gateway::start(&(over(&addresses, "read_timeout: 200") + &plugins));
    // Eight retries at most, which is within the budget.
    (0..6).for_each(|_| assert_eq!(gateway.get("/").status, 200));
    let lines = || std::fs::read_to_string(&path).unwrap_or_default();
    eventually("all are logged", || lines().lines().count() == 6);
    let known = Mutex::new(Vec::new());
    for line in lines().lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        let tries = record["tries"].as_array().unwrap();
        let (last, failed) = tries.split_last().unwrap();
        assert_eq!((&last["ip"], &last["port"]), (&"127.0.0.1".into(), &good.address.port().into()));
        assert_eq!((last.get("state"), last.get("code")), (None, None), "{record}");
        for tried in failed {
            assert_eq!((&tried["ip"], &tried["state"]), (&"127.0.0.1".into(), &"failed".into()));
            let code = if tried["port"] == silent.address.port() { 504 } else { 502 };
            assert_eq!(tried["code"], code, "{record}");
            assert!(tried["balancer_start"].is_u64() && tried["balancer_latency_ns"].is_u64(), "{record}");
            known.lock().unwrap().push(code);
        }
    }
    let known = known.into_inner().unwrap();
    assert!(known.contains(&504) && known.contains(&502), "{known:?}");
    for reason in ["reset", "timeout"] {
        let retries =
            budget::metric(&gateway, &format!("retries_total{{upstream=\"some\",reason=\"{reason}\"}}"));
        assert!(retries > 0, "{reason}");
    }
}
