//! Requests that a plugin sends elsewhere, as long as the client has got nothing.

use super::{Bench, HI, Scripted, idle};
use std::net::TcpListener;
use weir_plugin::*;

/// Counts the attempts in a header, and has three of them made.
fn three_times(exchange: &mut Exchange) -> Flow {
    exchange.request.headers.set("X-Try", b"1");
    exchange.fall_back(|exchange, outcome, _| {
        let tried = exchange.request.headers.get("X-Try").unwrap()[0] - b'0';
        exchange.request.headers.set("X-Try", &[b'1' + tried]);
        exchange.set_upstream_path(format!("/{}", tried + 1));
        tried < 3 && (outcome == UpstreamOutcome::Failed || exchange.response.status == 503)
    });
    Flow::Continue
}

fn log(exchange: &Exchange) -> String {
    let codes: Vec<_> = exchange.failed_tries().iter().map(|failed| failed.code).collect();
    format!("{} {codes:?} {}", exchange.response.status, exchange.upstream_address().is_some())
}

#[test]
fn a_response_that_is_passed_over_is_seen_by_nobody() {
    let answer = "HTTP/1.1 503 No\r\nX-A: 1\r\nContent-Length: 4\r\nConnection: close\r\n\r\nhalf";
    let response = |exchange: &mut Exchange| exchange.response.headers.append("X-Hook", b"1");
    let bench = Bench::new(Scripted { access: three_times, response, log, ..idle() }, answer);
    let got = bench.send("GET /1 HTTP/1.1\r\n\r\n");
    assert_eq!((got.matches("X-A: 1").count(), got.matches("X-Hook: 1").count()), (1, 1), "{got}");
    for number in 1..=3 {
        let asked = bench.asked();
        assert!(asked.starts_with(&format!("GET /{number} ")), "{asked}");
        assert!(asked.contains(&format!("X-Try: {number}\r\n")), "{asked}");
    }
    assert_eq!(bench.logged(), "503 [503, 503] true");
}

#[test]
fn a_success_that_ends_before_its_body_is_a_failure() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
    let bench = Bench::new(Scripted { access: three_times, log, ..idle() }, answer);
    let got = bench.send("GET /1 HTTP/1.1\r\n\r\n");
    assert!(got.starts_with("HTTP/1.1 502 "), "{got}");
    assert_eq!(bench.logged(), "502 [502, 502] true");
    let bench = Bench::new(Scripted { access: three_times, log, ..idle() }, HI);
    let got = bench.send("GET /1 HTTP/1.1\r\n\r\n");
    assert!(got.starts_with("HTTP/1.1 200 ") && got.ends_with("hi"), "{got}");
    assert_eq!(bench.logged(), "200 [] true");
}

#[test]
fn an_upstream_that_cannot_be_reached_is_one_that_has_failed() {
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let bench = Bench::before(Scripted { access: three_times, log, ..idle() }, unused);
    let got = bench.send("GET /1 HTTP/1.1\r\n\r\n");
    assert!(got.starts_with("HTTP/1.1 502 ") || got.starts_with("HTTP/1.1 503 "), "{got}");
    assert!(bench.logged().ends_with(" false"));
}
