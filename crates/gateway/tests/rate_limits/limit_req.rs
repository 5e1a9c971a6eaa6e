//! limit-req and limit-conn, by APISIX's fields, on real servers.
use super::{HELLO, limited};
use crate::harness::{Gateway, RedisServer, Upstream, eventually};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{thread, time::Duration};

fn node(upstream: &Upstream, plugin: &str, server: &RedisServer, more: Value) -> Gateway {
    let mut config = json!({
        "policy": "redis", "redis_host": "127.0.0.1", "redis_port": server.port, "redis_timeout": 15_000,
        "key": "http_x_tenant",
    });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Gateway::start(&limited(upstream, plugin, &config))
}

fn status(node: &Gateway, tenant: &str) -> u16 {
    node.get_with("/", &format!("X-Tenant: {tenant}\r\n")).status
}

#[test]
fn a_bucket_is_shared_by_all_nodes() {
    let (server, upstream) = (RedisServer::start(), Upstream::answering(HELLO));
    let limit = json!({ "rate": 0.001, "burst": 1, "nodelay": true });
    let nodes = [(); 2].map(|()| node(&upstream, "limit-req", &server, limit.clone()));
    let statuses = [0, 1, 0, 1].map(|at| status(&nodes[at], "a"));
    assert_eq!(statuses, [200, 200, 503, 503]);
    assert_eq!(status(&nodes[0], "b"), 200);
    let keys = server.keys();
    assert!(keys[0].starts_with("limit-req:") && keys[0].ends_with(":0.001:1:key:a"), "{keys:?}");
    let left: u64 = server.ask(&["pttl", &keys[0]]).parse().unwrap();
    assert!((1..=2_000_000).contains(&left), "it lasts until the bucket is empty: {left}");
    // What has leaked lets the next request pass.
    server.ask(&["hset", &keys[0], "at", "1000"]);
    assert_eq!([0, 1, 0].map(|at| status(&nodes[at], "a")), [200, 200, 503]);
}

#[test]
fn a_bucket_of_a_cluster_is_where_its_key_is() {
    let (servers, upstream) = (RedisServer::cluster::<3>(), Upstream::answering(HELLO));
    let config = json!({
        "policy": "redis-cluster", "redis_cluster_nodes": [format!("127.0.0.1:{}", servers[0].port)],
        "redis_cluster_name": "counts", "redis_timeout": 15_000, "key": "http_x_tenant", "rate": 0.001, "burst": 0,
    });
    let node = Gateway::start(&limited(&upstream, "limit-req", &config));
    for tenant in 0..20 {
        let statuses = [(); 2].map(|()| status(&node, &tenant.to_string()));
        assert_eq!(statuses, [200, 503], "{tenant}");
    }
    assert!(servers.iter().all(|server| !server.keys().is_empty()));
}

/// One request at a time, whichever node serves it, until it is over or its client leaves.
#[test]
fn requests_in_flight_are_counted_over_all_nodes() {
    let server = RedisServer::valkey().unwrap_or_else(RedisServer::start);
    let (quick, (slow, _held)) = (Upstream::answering(HELLO), Upstream::holding(HELLO));
    let limit = json!({ "conn": 1, "burst": 0, "default_conn_delay": 0.001 });
    let holder = node(&slow, "limit-conn", &server, limit.clone());
    // The scope of the other node's plugin is the same, because ids derive from names.
    let other = node(&quick, "limit-conn", &server, limit);
    assert_eq!(status(&other, "a"), 200);
    eventually("the end is reported", || server.keys().is_empty());
    let mut client = holder.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Tenant: a\r\n\r\n");
    eventually("the request is counted", || !server.keys().is_empty());
    assert_eq!([status(&other, "a"), status(&other, "b")], [503, 200]);
    drop(client);
    eventually("a request whose client has left is over", || status(&other, "a") == 200);
}

/// Whenever a client leaves, and whatever has been sent to the server by then.
#[test]
fn requests_whose_clients_have_left_are_not_counted() {
    let (server, upstream) = (RedisServer::start(), Upstream::answering(HELLO));
    let limit = json!({ "conn": 10_000, "burst": 0, "default_conn_delay": 0.001 });
    let node = node(&upstream, "limit-conn", &server, limit);
    assert_eq!(status(&node, "a"), 200);
    let abort = |after: u64| {
        let mut client = node.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Tenant: a\r\n\r\n");
        thread::park_timeout(Duration::from_micros(after));
        client.reset();
    };
    // Many at once, so that replies wait to be taken when their clients leave.
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..300).for_each(|count| abort(count % 30 * 50)));
        }
    });
    // A connection is served after those before it.
    assert_eq!(status(&node, "b"), 200);
    eventually("nothing is in flight", || server.keys().is_empty());
}

#[test]
fn a_request_that_was_counted_too_late_is_not_in_flight() {
    let (server, upstream) = (RedisServer::start(), Upstream::answering(HELLO));
    let limit = json!({ "conn": 1, "burst": 0, "default_conn_delay": 0.001, "redis_timeout": 300 });
    let node = node(&upstream, "limit-conn", &server, limit);
    assert_eq!(status(&node, "a"), 200);
    eventually("the end is reported", || server.keys().is_empty());
    server.ask(&["config", "resetstat"]);
    server.signal(Signal::STOP);
    assert_eq!(status(&node, "a"), 500);
    server.signal(Signal::CONT);
    let counted = || server.ask(&["info", "commandstats"]).contains("cmdstat_zadd:");
    eventually("the server executes what it got", counted);
    eventually("it is taken back", || server.keys().is_empty());
}

/// Another program may have written a key.
#[test]
fn a_key_of_another_type_fails_the_requests_of_that_key_alone() {
    let (server, upstream) = (RedisServer::start(), Upstream::answering(HELLO));
    let limits = [
        ("limit-req", json!({ "rate": 0.001, "burst": 10, "nodelay": true })),
        ("limit-conn", json!({ "conn": 10, "burst": 0, "default_conn_delay": 0.001, "key_ttl": 5 })),
    ];
    for (plugin, limit) in limits {
        let (held, _held) = Upstream::holding(HELLO);
        let holder = node(&held, plugin, &server, limit.clone());
        let mut client = holder.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Tenant: a\r\n\r\n");
        eventually("it is counted", || !server.keys().is_empty());
        server.ask(&["set", &server.keys()[0], "text"]);
        let node = node(&upstream, plugin, &server, limit);
        let statuses = ["a", "b", "a", "b"].map(|tenant| status(&node, tenant));
        assert_eq!(statuses, [500, 200, 500, 200], "{plugin}");
        drop(client);
        server.ask(&["flushall"]);
    }
}

#[test]
fn a_bucket_that_never_empties_lasts_for_a_year() {
    let (server, upstream) = (RedisServer::start(), Upstream::answering(HELLO));
    let limit = json!({ "rate": 1e-14, "burst": 0, "nodelay": true });
    let node = node(&upstream, "limit-req", &server, limit);
    assert_eq!([(); 2].map(|()| status(&node, "a")), [200, 503]);
    let left: u64 = server.ask(&["pttl", &server.keys()[0]]).parse().unwrap();
    let year = 31_536_000_000;
    assert!((year - 600_000..=year).contains(&left), "{left}");
}

#[test]
fn without_the_server_nodes_count_by_themselves_if_they_may() {
    let upstream = Upstream::answering(HELLO);
    let limits = [
        ("limit-req", json!({ "rate": 0.001, "burst": 0 })),
        ("limit-conn", json!({ "conn": 1, "burst": 0, "default_conn_delay": 0.001 })),
    ];
    for (plugin, limit) in limits {
        let server = RedisServer::start();
        let strict = node(&upstream, plugin, &server, limit.clone());
        let mut lenient = limit;
        lenient["allow_degradation"] = json!(true);
        let lenient = node(&upstream, plugin, &server, lenient);
        drop(server);
        assert_eq!(status(&strict, "a"), 500, "{plugin}");
        assert_eq!(status(&lenient, "a"), 200, "{plugin}");
        let again = if plugin == "limit-req" { 503 } else { 200 };
        assert_eq!(status(&lenient, "a"), again, "{plugin}");
    }
}
