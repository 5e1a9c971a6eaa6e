//! Every case of h2spec, in strict mode, on both kinds of listener. `make test` installs it from the versions that
//! `h2spec/go.mod` names.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Gateway, Upstream, one_route};
use std::net::SocketAddr;
use std::process::Command;

/// Of the generic ones, of RFC 9113's and of HPACK's.
const CASES: u32 = 147;

/// What stands in its last line: how many cases ran, passed, were skipped and failed; and the failed ones by name.
struct Report {
    counts: Vec<u32>,
    failed: Vec<String>,
}

fn h2spec(address: SocketAddr, more: &[&str]) -> Report {
    let program = std::env::var("H2SPEC").unwrap_or_else(|_| "h2spec".into());
    let output = Command::new(program)
        .args(["--strict", "--timeout", "10", "-h", &address.ip().to_string()])
        .args(["-p", &address.port().to_string()])
        .args(more)
        .output()
        .expect("h2spec runs: `make test` installs it and names it in H2SPEC");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = said.lines().last().unwrap_or_default();
    let counts: Vec<u32> = last.split(", ").filter_map(|part| part.split(' ').next()?.parse().ok()).collect();
    assert_eq!(counts.len(), 4, "{said}");
    let failures = said.split("Failures:").nth(1).unwrap_or_default();
    let failed = failures.lines().filter_map(|line| line.trim().strip_prefix("× "));
    Report { counts, failed: failed.map(str::to_owned).collect() }
}

/// Some cases need a body that takes several frames.
fn upstream() -> Upstream {
    Upstream::answering(&format!("HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n{}", "x".repeat(1024)))
}

fn gateway(upstream: &Upstream) -> Gateway {
    let listeners = "127.0.0.1:0 http2, 127.0.0.1:0 ssl http2";
    Gateway::builder(&one_route(upstream.address)).set("proxy_listen", listeners).start()
}

#[test]
fn every_case_passes_over_tls() {
    let upstream = upstream();
    let gateway = gateway(&upstream);
    let report = h2spec(gateway.proxy_ssl(), &["--tls", "--insecure"]);
    assert_eq!((report.counts, report.failed), (vec![CASES, CASES, 0, 0], vec![]));
}

/// What is no preface is HTTP/1.1 here: the client gets its 400 in HTTP/1.1, where h2spec wants silence.
#[test]
fn every_case_but_a_wrong_preface_passes_in_clear() {
    let upstream = upstream();
    let gateway = gateway(&upstream);
    let report = h2spec(gateway.proxy(), &[]);
    assert_eq!(report.failed, ["2: Sends invalid connection preface"]);
    assert_eq!(report.counts, [CASES, CASES - 1, 0, 1]);
}
