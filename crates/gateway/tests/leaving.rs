//! Clients that leave before their requests were sent on: logs have 499, and upstreams get nothing.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, Upstream, document, eventually, service};
use crate::overload::{get, hold, let_go, metric, upstream_entity};
use crate::retries::blackhole;
use serde_json::Value;
use std::fs;
use std::path::Path;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
/// No timeout ends a request before its client does.
const FIELDS: &str = "retries: 0, connect_timeout: 600000, read_timeout: 600000";

/// Requests whose bodies, if they have one, come whole with their heads; and what they ask for.
fn requests() -> [(&'static str, String); 2] {
    let post = "POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    [("/get", get("/get")), ("/post", post.to_owned())]
}

fn gateway(configuration: &str, log: &Path) -> Gateway {
    Gateway::builder(configuration)
        .set("proxy_access_log", log.to_str().unwrap())
        .set("proxy_access_log_format", "json")
        .start()
}

/// Waits until it is logged that the client of a request has left.
fn is_logged(log: &Path, uri: &str) {
    let is_it = |record: Value| record["request"]["uri"] == uri && record["response"]["status"] == 499;
    eventually(&format!("{uri} is logged with 499"), || {
        let text = fs::read_to_string(log).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).any(is_it)
    });
}

#[test]
fn while_the_gateway_connects() {
    let hole = blackhole();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let gateway = gateway(&document(&[service("/", hole.address, FIELDS, "")], ""), &log);
    for (uri, request) in requests() {
        let mut client = gateway.connect();
        client.send(request);
        drop(client);
        is_logged(&log, uri);
    }
}

#[test]
fn while_the_request_waits_for_room_at_the_upstream() {
    let (upstream, asked) = Upstream::holding(OK);
    let upstreams = upstream_entity(&[upstream.address], "\"weir-max-requests:1\", \"weir-max-waiting:1\"");
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let gateway = gateway(&document(&[service("/", "orders", FIELDS, "")], &upstreams), &log);
    let waiting = || metric(&gateway, "weir_upstream_waiting{upstream=\"orders\"}");
    let held = hold(&gateway, "/", &asked);
    for (uri, request) in requests() {
        let mut client = gateway.connect();
        client.send(request);
        eventually("it waits", || waiting() == Some(1.0));
        drop(client);
        is_logged(&log, uri);
        eventually("no request waits", || waiting() == Some(0.0));
    }
    let_go(vec![held]);
    let_go(vec![hold(&gateway, "/", &asked)]);
    assert!(asked.try_recv().is_err(), "a request was sent on whose client had left");
}
