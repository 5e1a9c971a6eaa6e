//! Servers that are one: a master with sentinels, and a cluster.
use super::{HELLO, left, nodes, passed};
use crate::harness::{Gateway, RedisServer, Upstream, eventually};
use serde_json::json;

#[test]
fn what_sentinels_make_the_master_is_asked() {
    let mut master = RedisServer::start();
    let replica = RedisServer::with(&["--replicaof", &format!("127.0.0.1 {}", master.port)], &[]);
    eventually("it follows", || replica.ask(&["info", "replication"]).contains("master_link_status:up"));
    let sentinel = RedisServer::sentinel("counts", &master);
    eventually("the sentinel knows of it", || {
        sentinel.ask(&["sentinel", "replicas", "counts"]).contains(&replica.port.to_string())
    });
    let upstream = Upstream::answering(HELLO);
    let away = crate::harness::closed_port().port();
    let redis = json!({
        "sentinel_master": "counts", "sentinel_role": "master", "timeout": 1000,
        "sentinel_nodes": [{ "host": "127.0.0.1", "port": away }, { "host": "127.0.0.1", "port": sentinel.port }],
    });
    let [node] = nodes(&upstream, &json!({ "policy": "redis", "year": 1_000_000, "redis": redis }));
    assert_eq!(left(&node.get("/")), 999_999);
    let [key] = &*master.keys() else { panic!("{:?}", master.keys()) };
    eventually("the replica has it", || replica.number(key) == 1);
    master.kill();
    // All the while requests are served and counted.
    let mut sent = 1;
    eventually("the other is the master, and is told of all", || {
        sent += 1;
        let response = node.get("/");
        assert_eq!((response.status, left(&response)), (200, 1_000_000 - sent));
        replica.number(key) == sent
    });
    assert!(replica.ask(&["role"]).starts_with("master"));
}

#[test]
fn a_replica_is_asked_where_the_role_says_so() {
    let master = RedisServer::start();
    let follow = format!("127.0.0.1 {}", master.port);
    let replica = RedisServer::with(&["--replicaof", &follow, "--replica-read-only", "no"], &[]);
    eventually("it follows", || replica.ask(&["info", "replication"]).contains("master_link_status:up"));
    let sentinel = RedisServer::sentinel("counts", &master);
    eventually("the sentinel knows of it", || {
        sentinel.ask(&["sentinel", "replicas", "counts"]).contains(&replica.port.to_string())
    });
    let upstream = Upstream::answering(HELLO);
    for (role, is_on_master) in [("slave", false), ("any", true)] {
        let redis = json!({
            "sentinel_master": "counts", "sentinel_role": role, "timeout": 60_000,
            "sentinel_nodes": [{ "host": "127.0.0.1", "port": sentinel.port }],
        });
        let [node] = nodes(&upstream, &json!({ "policy": "redis", "year": 1_000_000, "redis": redis }));
        let before = (master.keys().len(), replica.keys().len());
        assert_eq!(left(&node.get("/")), 999_999, "{role}");
        assert_eq!(master.keys().len() > before.0, is_on_master, "{role}");
        assert!(replica.keys().len() > before.1 || is_on_master, "{role}");
    }
}

#[test]
fn a_cluster_is_asked_where_the_keys_are() {
    let servers = RedisServer::cluster::<3>();
    let upstream = Upstream::answering(HELLO);
    let known: Vec<_> = servers.iter().skip(1).map(|server| json!({ "port": server.port })).collect();
    let config = json!({
        "policy": "redis", "month": 23, "year": 500, "limit_by": "header", "header_name": "X-T",
        "redis": { "cluster_nodes": known, "timeout": 60_000 },
    });
    let nodes: [Gateway; 3] = nodes(&upstream, &config);
    for tenant in 0..12 {
        assert_eq!(passed(&nodes, 2, 5, &format!("X-T: {tenant}\r\n")), 23, "tenant {tenant}");
    }
    let keys: Vec<_> = servers.iter().map(RedisServer::keys).collect();
    assert_eq!(keys.iter().flatten().count(), 24);
    assert!(keys.iter().all(|keys| !keys.is_empty()), "{keys:?}");
    // A slot goes to another server, without its keys: counting begins anew there.
    let key = &keys[0][0];
    let tag = key.split('}').next().unwrap();
    servers[0].ask(
        &[
            &["del"],
            &*keys[0].iter().map(String::as_str).filter(|key| key.starts_with(tag)).collect::<Vec<_>>(),
        ]
        .concat(),
    );
    let slot = servers[0].ask(&["cluster", "keyslot", key]);
    let taker = servers[1].ask(&["cluster", "myid"]);
    for server in [&servers[1], &servers[0], &servers[2]] {
        assert_eq!(server.ask(&["cluster", "setslot", &slot, "node", &taker]), "OK");
    }
    let tenant = tag.rsplit(':').next().unwrap();
    assert_eq!(passed(&nodes, 2, 5, &format!("X-T: {tenant}\r\n")), 23);
    assert_eq!(servers[1].number(key), 23);
}

#[test]
fn while_a_slot_is_moved_counting_goes_on_at_the_server_that_gets_it() {
    let servers = RedisServer::cluster::<3>();
    let upstream = Upstream::answering(HELLO);
    let known: Vec<_> = servers.iter().map(|server| json!({ "port": server.port })).collect();
    let config = json!({
        "policy": "redis", "year": 23, "limit_by": "header", "header_name": "X-T",
        "redis": { "cluster_nodes": known, "timeout": 60_000 },
    });
    let nodes: [Gateway; 2] = nodes(&upstream, &config);
    assert_eq!(left(&nodes[0].get_with("/", "X-T: a\r\n")), 22);
    let from = servers.iter().position(|server| !server.keys().is_empty()).unwrap();
    let (keys, to) = (servers[from].keys(), (from + 1) % servers.len());
    let key = &*keys[0];
    let slot = servers[from].ask(&["cluster", "keyslot", key]);
    let [giver, taker] = [from, to].map(|at| servers[at].ask(&["cluster", "myid"]));
    let importing = ["cluster", "setslot", &slot, "importing", &giver];
    let migrating = ["cluster", "setslot", &slot, "migrating", &taker];
    let port = servers[to].port.to_string();
    let migrate = ["migrate", "127.0.0.1", &port, key, "0", "5000"];
    assert_eq!(servers[to].ask(&importing), "OK");
    assert_eq!(servers[from].ask(&migrating), "OK");
    assert_eq!(servers[from].ask(&migrate), "OK");
    assert_eq!(passed(&nodes, 2, 10, "X-T: a\r\n"), 22);
    for at in [to, from, (from + 2) % servers.len()] {
        assert_eq!(servers[at].ask(&["cluster", "setslot", &slot, "node", &taker]), "OK");
    }
    assert_eq!(servers[to].number(key), 23);
    assert_eq!(passed(&nodes, 2, 5, "X-T: a\r\n"), 0);
}
