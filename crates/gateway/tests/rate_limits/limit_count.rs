//! limit-count, by APISIX's fields, on real servers.
use super::{HELLO, limited, passed};
use crate::harness::{Gateway, Message, RedisServer, Upstream, eventually};
use serde_json::{Value, json};

fn config(server: &RedisServer, more: Value) -> Value {
    // However slow the machine is.
    let mut config = json!({
        "policy": "redis", "redis_host": "127.0.0.1", "redis_port": server.port, "redis_timeout": 15_000,
        "count": 100, "time_window": 86_400, "rejected_code": 429,
    });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    config
}

fn nodes<const COUNT: usize>(upstream: &Upstream, config: &Value) -> [Gateway; COUNT] {
    [(); COUNT].map(|()| Gateway::start(&limited(upstream, "limit-count", config)))
}

fn number(response: &Message, header: &str) -> u64 {
    response.header(header).unwrap_or_else(|| panic!("{header}: {}", response.text())).parse().unwrap()
}

/// Three nodes, twelve connections and 600 requests.
#[test]
fn a_count_is_kept_exactly_over_three_nodes() {
    let (server, upstream) = (RedisServer::start(), Upstream::answering(HELLO));
    for more in [
        json!({ "count": 137 }),
        json!({ "count": 61, "key_type": "constant", "key": "all", "group": "g" }),
        json!({ "count": 97, "key": "http_x_tenant" }),
    ] {
        server.ask(&["flushall"]);
        let nodes: [Gateway; 3] = nodes(&upstream, &config(&server, more.clone()));
        let count = more["count"].as_u64().unwrap();
        assert_eq!(passed(&nodes, 4, 50, "X-Tenant: t\r\n"), count as usize, "{more}");
        let [key] = &*server.keys() else { panic!("{:?}", server.keys()) };
        assert_eq!(server.number(key), count, "{more}");
        let left: u64 = server.ask(&["ttl", key]).parse().unwrap();
        assert!((1..=86_400).contains(&left), "{left}");
    }
}

#[test]
fn clients_are_told_what_all_nodes_have_counted() {
    let (server, upstream) = (RedisServer::start(), Upstream::answering(HELLO));
    let more = json!({ "count": 3, "key": "http_x_tenant", "rejected_msg": "enough" });
    let nodes: [Gateway; 2] = nodes(&upstream, &config(&server, more));
    let told = |node: &Gateway| {
        let response = node.get_with("/", "X-Tenant: a:{b}\r\n");
        let reset = number(&response, "x-ratelimit-reset");
        assert!((1..=86_400).contains(&reset), "{reset}");
        assert_eq!(number(&response, "x-ratelimit-limit"), 3);
        (response.status, number(&response, "x-ratelimit-remaining"))
    };
    let all = [&nodes[0], &nodes[1], &nodes[1], &nodes[0]].map(told);
    assert_eq!(all, [(200, 2), (200, 1), (200, 0), (429, 0)]);
    assert_eq!(nodes[0].get_with("/", "X-Tenant: a:{b}\r\n").json()["error_msg"], "enough");
    let [key] = &*server.keys() else { panic!("{:?}", server.keys()) };
    assert!(key.starts_with("limit-count:") && key.ends_with(":3:86400:key:a:{b}"), "{key}");
    assert_eq!(nodes[0].get("/").status, 200, "counted by its address");
    assert!(server.keys().iter().any(|key| key.ends_with(":address:127.0.0.1")), "{:?}", server.keys());
}

#[test]
fn a_window_begins_with_its_first_request() {
    let (server, upstream) = (RedisServer::start(), Upstream::answering(HELLO));
    let [node] = nodes(&upstream, &config(&server, json!({ "count": 2, "time_window": 1 })));
    for _ in 0..3 {
        // It may end between two requests, but not for ever.
        eventually("a window is used up", || node.get("/").status == 429);
        eventually("another begins", || node.get("/").status == 200);
    }
    // A count that would never be over is given an end.
    let lasting = nodes(&upstream, &config(&server, json!({ "count": 2, "group": "g" })));
    let [node]: [Gateway; 1] = lasting;
    server.ask(&["set", "limit-count:group:g:2:86400:address:127.0.0.1", "5"]);
    assert_eq!(node.get("/").status, 429);
    assert_ne!(server.ask(&["ttl", "limit-count:group:g:2:86400:address:127.0.0.1"]), "-1");
}

#[test]
fn a_cluster_is_asked_where_the_keys_are() {
    let servers = RedisServer::cluster::<3>();
    let upstream = Upstream::answering(HELLO);
    let known: Vec<_> = servers.iter().take(2).map(|server| format!("127.0.0.1:{}", server.port)).collect();
    let config = json!({
        "policy": "redis-cluster", "redis_cluster_nodes": known, "redis_cluster_name": "counts",
        "redis_timeout": 15_000, "count": 1, "time_window": 86_400, "key": "http_x_tenant", "rejected_code": 429,
    });
    let nodes: [Gateway; 2] = nodes(&upstream, &config);
    for tenant in 0..30 {
        let statuses = [0, 1, 0].map(|at| nodes[at].get_with("/", &format!("X-Tenant: {tenant}\r\n")).status);
        assert_eq!(statuses, [200, 429, 429], "{tenant}");
    }
    let keys: Vec<_> = servers.iter().map(|server| server.keys().len()).collect();
    assert_eq!(keys.iter().sum::<usize>(), 30);
    assert!(keys.iter().all(|keys| *keys > 0), "{keys:?}");
}

#[test]
fn users_passwords_and_databases_are_those_of_the_configuration() {
    let login = ["--user", "weir", "--pass", "do-not-tell", "-n", "3"];
    // As little as the documentation says.
    let commands = ["+eval", "+evalsha", "+script|load", "+get", "+incrby", "+expire", "+pttl"];
    let connection = ["+select", "+ping", "+keys", "+scan"];
    let user = ["--user", "weir", "on", ">do-not-tell", "~limit-count:*", "~ratelimit:probe"];
    let others = ["--user", "default", "off", "resetpass"];
    let arguments = [&user[..], &commands, &connection, &others].concat();
    let server = RedisServer::with(&arguments, &login);
    let upstream = Upstream::answering(HELLO);
    let with = |password: &str| {
        let more =
            json!({ "count": 5, "redis_username": "weir", "redis_password": password, "redis_database": 3 });
        config(&server, more)
    };
    let [node] = nodes(&upstream, &with("do-not-tell"));
    assert_eq!(number(&node.get("/"), "x-ratelimit-remaining"), 4);
    assert_eq!(server.keys().len(), 1);
    let [node] = nodes(&upstream, &with("not-to-be-told-either"));
    let refused = node.get("/");
    assert_eq!((refused.status, refused.text()), (500, "{\"error_msg\":\"failed to limit count\"}"));
    eventually("the log says how to fix it", || {
        node.log().contains("check redis.username and redis.password")
    });
    assert!(!node.log().contains("to-be-told"), "{}", node.log());
}

#[test]
fn while_the_server_is_away_requests_are_refused_or_counted_by_the_node() {
    let (mut server, upstream) = (RedisServer::start(), Upstream::answering(HELLO));
    let more = |degrades: bool| json!({ "count": 3, "redis_timeout": 1000, "allow_degradation": degrades });
    let [strict] = nodes(&upstream, &config(&server, more(false)));
    let [lenient] = nodes(&upstream, &config(&server, more(true)));
    assert_eq!(number(&strict.get("/"), "x-ratelimit-remaining"), 2);
    server.kill();
    for _ in 0..5 {
        let refused = strict.get("/");
        assert_eq!((refused.status, refused.text()), (500, "{\"error_msg\":\"failed to limit count\"}"));
        assert_eq!(refused.header("x-ratelimit-limit"), None);
    }
    assert_eq!([(); 4].map(|()| lenient.get("/").status), [200, 200, 200, 429]);
    server.restart();
    for node in [&strict, &lenient] {
        eventually("it is asked again", || node.log().contains("answers again"));
    }
    assert_eq!(number(&strict.get("/"), "x-ratelimit-remaining"), 2);
}

/// A file with two routes, each with a plugin of one group.
fn grouped(upstream: &Upstream, first: &Value, second: &Value) -> String {
    let route = |name: &str, config: &Value| {
        let plugin = json!({ "name": "limit-count", "config": config });
        json!({ "name": name, "paths": [format!("/{name}")], "plugins": [plugin] })
    };
    let service = json!({
        "name": "s", "url": format!("http://{}", upstream.address), "routes": [route("a", first), route("b", second)],
    });
    json!({ "_format_version": "3.0", "services": [service] }).to_string()
}

#[test]
fn a_group_counts_together_on_all_its_routes() {
    let (server, upstream) = (RedisServer::start(), Upstream::answering(HELLO));
    let here = json!({ "count": 3, "time_window": 86_400, "group": "g", "rejected_code": 429 });
    for config in [here, config(&server, json!({ "count": 3, "group": "g" }))] {
        let node = Gateway::start(&grouped(&upstream, &config, &config));
        let statuses = ["/a", "/b", "/a", "/b", "/a"].map(|path| node.get(path).status);
        assert_eq!(statuses, [200, 200, 200, 429, 429], "{config}");
    }
    assert_eq!(server.keys(), ["limit-count:group:g:3:86400:address:127.0.0.1"]);
}

#[test]
fn a_group_has_one_configuration() {
    let upstream = Upstream::answering(HELLO);
    let config = |count: u32| json!({ "count": count, "time_window": 60, "group": "g" });
    let (_, said) = Gateway::builder(&grouped(&upstream, &config(3), &config(5))).fail();
    for part in
        ["config.group: group conf mismatched", "has another `count`", "or another `group` here", "line "]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
}
