//! On one server of Redis or Valkey.
use super::{HELLO, left, limited, nodes, passed};
use crate::harness::{Gateway, RedisServer, Upstream, eventually};
use rustix::process::Signal;
use serde_json::{Value, json};

fn config(server: &RedisServer, more: Value) -> Value {
    // However slow the machine is: whoever does not wait counts for itself.
    let redis = json!({ "host": "127.0.0.1", "port": server.port, "timeout": 60_000 });
    let mut config = json!({ "policy": "redis", "redis": redis });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    config
}

/// Three nodes, twelve connections and 600 requests: exactly as many pass as one of the limits lets.
fn is_exact_over_three_nodes(server: &RedisServer) {
    let upstream = Upstream::answering(HELLO);
    for (more, limit) in [
        (json!({ "year": 137, "limit_by": "service" }), 137),
        (json!({ "month": 61, "year": 500, "limit_by": "ip" }), 61),
        (json!({ "month": 97, "year": 97, "window_type": "sliding" }), 97),
    ] {
        server.ask(&["flushall"]);
        let nodes: [Gateway; 3] = nodes(&upstream, &config(server, more.clone()));
        assert_eq!(passed(&nodes, 4, 50, ""), limit, "{more}");
        let counts: Vec<_> = server.keys().iter().map(|key| server.number(key)).collect();
        assert!(counts.iter().all(|count| *count == limit as u64), "{more}: {counts:?}");
    }
}

#[test]
fn a_limit_is_kept_exactly_over_three_nodes() {
    is_exact_over_three_nodes(&RedisServer::start());
}

#[test]
fn a_limit_is_kept_exactly_on_valkey() {
    match RedisServer::valkey() {
        Some(server) => is_exact_over_three_nodes(&server),
        None => eprintln!("VALKEY WAS NOT TESTED: set VALKEY to a valkey-server, or install the package"),
    }
}

#[test]
fn nodes_of_kong_count_under_the_same_keys() {
    let (server, upstream) = (RedisServer::start(), Upstream::answering(HELLO));
    let [node] =
        nodes(&upstream, &config(&server, json!({ "year": 10, "limit_by": "header", "header_name": "X-T" })));
    assert_eq!(left(&node.get_with("/", "X-T: a:b\r\n")), 9);
    let [key] = &*server.keys() else { panic!("{:?}", server.keys()) };
    // ratelimit:ROUTE:SERVICE:IDENTIFIER:MILLISECONDS:PERIOD
    let rest = key.strip_prefix("ratelimit:00000000-0000-0000-0000-000000000000:").expect(key);
    let (service, rest) = rest.split_at(36);
    let rest = rest.strip_prefix(":a:b:").expect(key).strip_suffix(":year").expect(key);
    assert_eq!(service.matches('-').count(), 4, "{key}");
    assert!(rest.len() == 13 && rest.ends_with("00000"), "{key}");
    let kept: u64 = server.ask(&["ttl", key]).parse().unwrap();
    assert!((10..=366 * 86_400 + 10).contains(&kept), "{kept}");
    // As one of Kong's nodes counts.
    server.ask(&["incrby", key, "8"]);
    assert_eq!(left(&node.get_with("/", "X-T: a:b\r\n")), 0);
    let refused = node.get_with("/", "X-T: a:b\r\n");
    assert_eq!((refused.status, server.number(key)), (429, 10));
    // What would be no key, or a very long one, is named by its hash.
    assert_eq!(left(&node.get_with("/", &format!("X-T: {}\r\n", "x".repeat(5_000)))), 9);
    assert!(
        server.keys().iter().any(|key| key.contains(":sha256-") && key.len() < 200),
        "{:?}",
        server.keys()
    );
}

#[test]
fn nodes_that_exchange_their_counts_come_to_know_them_all() {
    let (server, upstream) = (RedisServer::start(), Upstream::answering(HELLO));
    for window_type in ["fixed", "sliding"] {
        server.ask(&["flushall"]);
        let more = json!({ "year": 1000, "sync_rate": 0.05, "window_type": window_type });
        let nodes: [Gateway; 3] = nodes(&upstream, &config(&server, more));
        assert_eq!(passed(&nodes, 2, 20, ""), 120);
        eventually("something is told", || !server.keys().is_empty());
        let [key] = &*server.keys() else { panic!("{:?}", server.keys()) };
        eventually("all is told", || server.number(key) == 120);
        let mut sent = 120;
        for node in &nodes {
            eventually("the node knows of all", || {
                sent += 1;
                left(&node.get("/")) == 1000 - sent
            });
        }
        eventually("all is told", || server.number(key) == sent);
        // What one uses up, the others refuse.
        passed(&nodes[..1], 4, 250, "");
        eventually("the limit is reached", || server.number(key) >= 1000);
        for node in &nodes {
            eventually("all refuse", || node.get("/").status == 429);
        }
    }
}

#[test]
fn counts_survive_reloads_and_what_is_not_told_yet_is_told_when_a_plugin_goes() {
    let (server, upstream) = (RedisServer::start(), Upstream::answering(HELLO));
    let a_year = |limit: u64| config(&server, json!({ "year": limit, "sync_rate": 0.5 }));
    let [node] = nodes(&upstream, &a_year(100));
    assert_eq!(left(&node.get("/")), 99);
    assert!(node.reload(&limited(&upstream, "rate-limiting", &a_year(200))).status.success());
    assert_eq!(left(&node.get("/")), 198);
    let without = limited(&upstream, "cors", &json!({}));
    assert!(node.reload(&without).status.success());
    eventually("both are told", || server.keys().first().is_some_and(|key| server.number(key) == 2));
}

#[test]
fn what_is_not_told_yet_is_told_before_a_node_ends() {
    let (server, upstream) = (RedisServer::start(), Upstream::answering(HELLO));
    let [mut node] = nodes(&upstream, &config(&server, json!({ "year": 100, "sync_rate": 3600 })));
    assert_eq!((left(&node.get("/")), left(&node.get("/"))), (99, 98));
    assert!(server.keys().is_empty());
    node.signal(Signal::TERM);
    assert!(node.exit().success());
    assert_eq!(server.keys().iter().map(|key| server.number(key)).collect::<Vec<_>>(), [2]);
}

#[test]
fn users_passwords_and_databases_are_those_of_the_configuration() {
    let login = ["--user", "weir", "--pass", "do-not-tell", "-n", "3"];
    let arguments =
        ["--user", "weir", "on", ">do-not-tell", "~*", "+@all", "--user", "default", "off", "resetpass"];
    let server = RedisServer::with(&arguments, &login);
    let upstream = Upstream::answering(HELLO);
    let with = |password: &str| {
        let redis = json!({
            "host": "localhost", "port": server.port, "username": "weir", "password": password, "database": 3,
        });
        json!({ "policy": "redis", "year": 5, "fault_tolerant": false, "redis": redis })
    };
    let [node] = nodes(&upstream, &with("do-not-tell"));
    assert_eq!((left(&node.get("/")), server.keys().len()), (4, 1));
    // By the names that the fields had once.
    let mut old = json!({ "policy": "redis", "year": 5, "fault_tolerant": false });
    for (name, value) in with("do-not-tell")["redis"].as_object().unwrap() {
        old[format!("redis_{name}")] = value.clone();
    }
    let [node] = nodes(&upstream, &old);
    assert_eq!(left(&node.get("/")), 3);
    let [node] = nodes(&upstream, &with("not-to-be-told-either"));
    let refused = node.get("/");
    assert_eq!(refused.status, 500);
    assert!(refused.text().contains("An unexpected error occurred"), "{}", refused.text());
    eventually("the log says how to fix it", || {
        node.log().contains("check redis.username and redis.password")
    });
    assert!(!node.log().contains("to-be-told"), "{}", node.log());
}

#[test]
fn users_and_passwords_that_are_empty_are_none() {
    let open = RedisServer::start();
    let login = ["--pass", "do-not-tell"];
    let closed = RedisServer::with(&["--requirepass", "do-not-tell"], &login);
    let upstream = Upstream::answering(HELLO);
    for (server, password) in [(&open, ""), (&closed, "do-not-tell")] {
        let redis = json!({ "host": "localhost", "port": server.port, "username": "", "password": password });
        let config = json!({ "policy": "redis", "year": 5, "fault_tolerant": false, "redis": redis });
        let [node] = nodes(&upstream, &config);
        assert_eq!((left(&node.get("/")), server.keys().len()), (4, 1), "{}", node.log());
    }
}

#[test]
fn what_upstreams_say_was_used_is_counted_for_all_nodes() {
    let server = RedisServer::start();
    let upstream =
        Upstream::answering("HTTP/1.1 200 OK\r\nX-Kong-Limit: video=2\r\nContent-Length: 5\r\n\r\nhello");
    let config =
        config(&server, json!({ "limits": { "video": { "year": 5 } }, "block_on_first_violation": true }));
    let nodes = [(); 2].map(|()| Gateway::start(&limited(&upstream, "response-ratelimiting", &config)));
    let left = |node: &Gateway| {
        let response = node.get("/");
        (response.status, response.header("x-ratelimit-remaining-video-year").map(str::to_owned))
    };
    let count = |count| {
        let is_so = || server.keys().first().is_some_and(|key| server.number(key) == count);
        eventually("it is counted", is_so);
    };
    assert_eq!(left(&nodes[0]), (200, Some("3".to_owned())));
    count(2);
    let [key] = &*server.keys() else { panic!("{:?}", server.keys()) };
    assert!(key.starts_with("response-ratelimit:00000000-") && key.ends_with(":video:year"), "{key}");
    assert_eq!(left(&nodes[1]), (200, Some("1".to_owned())));
    count(4);
    assert_eq!(left(&nodes[0]), (200, Some("0".to_owned())));
    count(6);
    let refused = nodes[1].get("/");
    assert_eq!(refused.status, 429);
    assert!(refused.text().contains("API rate limit exceeded for 'video'"), "{}", refused.text());
}

/// What the server refuses of one count does not have it told of others again.
#[test]
fn a_key_that_is_no_number_spoils_no_other_count() {
    let (server, upstream) = (RedisServer::start(), Upstream::answering(HELLO));
    let more = json!({ "year": 1000, "sync_rate": 0.05, "limit_by": "header", "header_name": "X-T" });
    let [node] = nodes(&upstream, &config(&server, more));
    let key_of = |identifier: &str| {
        let named = format!(":{identifier}:");
        eventually("it is told", || server.keys().iter().any(|key| key.contains(&named)));
        server.keys().iter().find(|key| key.contains(&named)).cloned().unwrap()
    };
    node.get_with("/", "X-T: odd\r\n");
    node.get_with("/", "X-T: even\r\n");
    let (odd, even) = (key_of("odd"), key_of("even"));
    server.ask(&["del", &odd]);
    server.ask(&["lpush", &odd, "no number"]);
    for told in 2..8 {
        node.get_with("/", "X-T: odd\r\n");
        node.get_with("/", "X-T: even\r\n");
        eventually("the other is told", || server.number(&even) >= told);
        assert_eq!(server.number(&even), told);
    }
}
