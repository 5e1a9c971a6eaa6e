//! Limits that several nodes keep together, on real servers: one counts exactly, or exchanges its counts in the
//! background; and what becomes of limits when the servers are away.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod failures;
mod limit_count;
mod limit_req;
mod postgres;
mod redis;
mod servers;
mod tls;

use crate::harness::{Gateway, Message, Upstream};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// A declarative file with one service, whose requests are limited.
fn limited(upstream: &Upstream, plugin: &str, config: &Value) -> String {
    let service = json!({
        "name": "s", "url": format!("http://{}", upstream.address), "routes": [{ "name": "r", "paths": ["/"] }],
        "plugins": [{ "name": plugin, "config": config }],
    });
    json!({ "_format_version": "3.0", "services": [service] }).to_string()
}

/// Nodes that limit requests to one upstream.
fn nodes<const COUNT: usize>(upstream: &Upstream, config: &Value) -> [Gateway; COUNT] {
    [(); COUNT].map(|()| Gateway::start(&limited(upstream, "rate-limiting", config)))
}

/// How many of many requests at once pass, from several connections to each node.
fn passed(nodes: &[Gateway], connections: usize, requests: usize, headers: &str) -> usize {
    let passed = AtomicUsize::new(0);
    thread::scope(|scope| {
        for node in nodes.iter().flat_map(|node| std::iter::repeat_n(node, connections)) {
            let passed = &passed;
            scope.spawn(move || {
                let mut peer = node.connect();
                for _ in 0..requests {
                    let request = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
                    match peer.send(request).response().status {
                        200 => passed.fetch_add(1, Ordering::SeqCst),
                        status => {
                            assert_eq!(status, 429);
                            0
                        }
                    };
                }
            });
        }
    });
    passed.into_inner()
}

/// What is left of the limit per year, by the response.
fn left(response: &Message) -> u64 {
    response.header("x-ratelimit-remaining-year").expect("the limit is told").parse().unwrap()
}
