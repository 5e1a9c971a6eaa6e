//! Responses in the place of the upstream's, and requests in the background.

use super::{Bench, HI, Scripted, TEST_TIMEOUT, idle};
use std::net::TcpListener;
use weir_plugin::*;

fn instead(exchange: &mut Exchange) -> Flow {
    exchange.replace_upstream_response(|exchange, outcome| {
        let status = exchange.response.status;
        let is_wanted = outcome == UpstreamOutcome::Failed || status == 304;
        is_wanted.then(|| LocalResponse::raw(203, None, format!("{outcome:?}")))
    });
    Flow::Continue
}

#[test]
fn a_plugin_replaces_the_upstreams_response_or_lets_it_pass() {
    let log = |exchange: &Exchange| format!("{} {:?}", exchange.response.status, exchange.service_status());
    let bench = Bench::new(
        Scripted { access: instead, log, ..idle() },
        "HTTP/1.1 304 Not Modified\r\nETag: 1\r\n\r\n",
    );
    let response = bench.send("GET / HTTP/1.1\r\n\r\n");
    assert!(response.starts_with("HTTP/1.1 203") && response.ends_with("\r\n\r\nAnswered"), "{response}");
    assert!(!response.contains("ETag"), "{response}");
    assert_eq!(bench.logged(), "203 Some(304)");
    let response = Bench::new(Scripted { access: instead, ..idle() }, HI).send("GET / HTTP/1.1\r\n\r\n");
    assert!(response.starts_with("HTTP/1.1 200") && response.ends_with("hi"), "{response}");
}

#[test]
fn a_plugin_answers_where_the_upstream_fails() {
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let response =
        Bench::before(Scripted { access: instead, ..idle() }, unused).send("GET / HTTP/1.1\r\n\r\n");
    assert!(response.starts_with("HTTP/1.1 203") && response.ends_with("\r\n\r\nFailed"), "{response}");
}

#[test]
fn the_upstream_is_asked_in_the_background_without_hooks() {
    let access = |exchange: &mut Exchange| {
        exchange.set_upstream_path("/elsewhere");
        exchange.ask_upstream_in_background(|copy| copy.request.headers.set("X-Copy", b"1"));
        Flow::Respond(LocalResponse::raw(200, None, "at once"))
    };
    let response = |exchange: &mut Exchange| exchange.response.headers.set("X-Hook", b"1");
    let bench = Bench::new(Scripted { access, response, log: |_| "logged".into(), ..idle() }, HI);
    let response = bench.send("GET /?a=1 HTTP/1.1\r\nX-Own: 2\r\n\r\n");
    assert!(response.contains("X-Hook: 1") && response.ends_with("\r\n\r\nat once"), "{response}");
    assert_eq!(bench.logged(), "logged");
    let asked = bench.asked.recv_timeout(TEST_TIMEOUT).unwrap();
    assert!(asked.starts_with("GET /elsewhere?a=1 ") && asked.contains("X-Own: 2\r\n"), "{asked}");
    assert!(asked.contains("X-Copy: 1\r\n"), "{asked}");
    assert!(bench.logged.try_recv().is_err(), "it is logged once");
}
