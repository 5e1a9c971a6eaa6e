//! Several nodes on one database, and a database that is not always there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Gateway, PostgresServer, Upstream, eventually};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// Says that it is over, also when a test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Makes a path lead to an upstream.
fn route(node: &Gateway, name: &str, upstream: &Upstream) -> u16 {
    let url = format!("{{\"url\": \"http://{}\"}}", upstream.address);
    let service = node.ask_admin("PUT", &format!("/services/{name}"), &url).status;
    let route = format!("{{\"paths\": [\"/{name}\"], \"service\": {{\"name\": \"{name}\"}}}}");
    if service == 200 { node.ask_admin("PUT", &format!("/routes/{name}"), &route).status } else { service }
}

#[test]
fn what_one_node_is_told_all_serve() {
    let upstream = Upstream::answering(HELLO);
    let [one, other] = Gateway::sharing(PostgresServer::shared_port(), "several");
    assert_eq!(route(&one, "first", &upstream), 200);
    eventually("the other serves it", || other.get("/first").status == 200);
    assert_eq!(other.ask_admin("GET", "/routes/first", "").json()["paths"][0], "/first");
    assert_eq!(other.ask_admin("DELETE", "/routes/first", "").status, 204);
    eventually("the first no longer does", || one.get("/first").status == 404);
    // Both at once: neither is told that the other was quicker.
    thread::scope(|scope| {
        for (name, node) in [("a", &one), ("b", &other)] {
            let upstream = &upstream;
            scope.spawn(move || {
                for number in 0..20 {
                    assert_eq!(route(node, &format!("{name}-{number}"), upstream), 200);
                }
            });
        }
    });
    for node in [&one, &other] {
        eventually("both have all", || {
            node.ask_admin("GET", "/routes?size=1000", "").json()["data"].as_array().unwrap().len() == 40
        });
    }
}

#[test]
fn a_node_begins_with_what_a_replica_holds() {
    let (port, upstream) = (PostgresServer::shared_port(), Upstream::answering(HELLO));
    // What the server does not have shows where the node has read it.
    let [replica] = Gateway::sharing(port, "replica");
    assert_eq!(route(&replica, "there", &upstream), 200);
    let [server] = Gateway::sharing(port, "replicated");
    assert_eq!([route(&server, "before", &upstream), route(&server, "since", &upstream)], [200, 200]);
    let node = |more: &[(&str, &str)]| {
        let mut settings = PostgresServer::settings(port, "replicated");
        settings.extend(more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        let [node] = Gateway::sharing_by(&settings);
        node
    };
    let fast = node(&[("pg_ro_host", "127.0.0.1"), ("pg_ro_schema", "replica")]);
    eventually("it has the changes of the server", || fast.get("/since").status == 200);
    assert_eq!([fast.get("/there").status, fast.get("/before").status], [200, 404]);
    let away = crate::harness::closed_port().port().to_string();
    let slow = node(&[("pg_ro_host", "127.0.0.1"), ("pg_ro_port", &away)]);
    assert_eq!([slow.get("/before").status, slow.get("/since").status], [200, 200]);
    assert!(slow.log().contains("the entities are read from PostgreSQL at 127.0.0.1"), "{}", slow.log());
}

const PLUGIN: &str = "/plugins/10000000-0000-4000-8000-000000000001?wait=true";

#[test]
fn who_waits_is_told_that_what_is_stored_cannot_be_served() {
    let (port, schema) = (PostgresServer::shared_port(), "unservable");
    let [node] = Gateway::sharing(port, schema);
    let good =
        r#"{"name": "tcp-log", "config": {"host": "a", "port": 1, "tls": true, "tls_sni": "good.test"}}"#;
    assert_eq!(node.ask_admin("PUT", PLUGIN, good).status, 200);
    // A server name that no node compiles, which no node would have stored. To find that out takes next to nothing: it is
    // done when no other process of the machine wants to run.
    let spoil = format!(
        "SET search_path TO {schema}; UPDATE weir_meta SET revision = revision + 1; UPDATE weir_entities SET revision = \
         (SELECT revision FROM weir_meta), body = replace(body, 'good.test', repeat('a', 64)) WHERE kind = 'plugins'"
    );
    PostgresServer::execute(port, &spoil);
    let answer = node.ask_admin("PUT", "/services/s?wait=true", "{\"host\": \"a\"}");
    assert_eq!((answer.status, answer.header("x-weir-revision")), (500, Some("3")), "{}", answer.text());
    let said = answer.json()["message"].as_str().unwrap().to_owned();
    assert!(
        said.starts_with("revision 3 was saved but could not be applied") && said.contains("plugin tcp-log"),
        "{said}"
    );
    for status in [node.status("/status"), node.admin("/status")] {
        let revision = &status.json()["revision"];
        assert_eq!(
            (&revision["committed"], &revision["in_force"], &revision["failed"]),
            (&3.into(), &1.into(), &3.into())
        );
        assert!(revision["error"].as_str().unwrap().contains("plugin tcp-log"), "{revision}");
    }
    assert_eq!(node.ask_admin("DELETE", PLUGIN, "").status, 204);
    assert_eq!(
        node.status("/status").json()["revision"],
        serde_json::json!({ "committed": 4, "in_force": 4 })
    );
}

#[test]
fn what_a_newer_version_has_changed_is_not_written() {
    let upstream = Upstream::answering(HELLO);
    let port = PostgresServer::shared_port();
    let [node] = Gateway::sharing(port, "migrated");
    assert_eq!(route(&node, "before", &upstream), 200);
    eventually("it is served", || node.get("/before").status == 200);
    PostgresServer::execute(port, "UPDATE migrated.weir_meta SET version = migrated_to + 1");
    let refused = node.ask_admin("PUT", "/services/after", "{\"host\": \"a\"}");
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("newer than this weir knows"), "{}", refused.text());
    assert_eq!(node.get("/before").status, 200);
    PostgresServer::execute(port, "UPDATE migrated.weir_meta SET version = migrated_to");
    let taken = || node.ask_admin("PUT", "/services/after", "{\"host\": \"a\"}").status == 200;
    eventually("writes are taken again", taken);
}

/// As when the nodes of a fleet are replaced one by one, and its tables are migrated before.
#[test]
fn what_a_newer_version_has_only_added_to_is_written() {
    let upstream = Upstream::answering(HELLO);
    let port = PostgresServer::shared_port();
    let [node] = Gateway::sharing(port, "added");
    PostgresServer::execute(
        port,
        "SET search_path TO added; ALTER TABLE weir_entities ADD COLUMN later TEXT; CREATE TABLE weir_later (id TEXT); \
         UPDATE weir_meta SET migrated_to = migrated_to + 1",
    );
    assert_eq!(route(&node, "first", &upstream), 200);
    eventually("it is served", || node.get("/first").status == 200);
    let [started] = Gateway::sharing(port, "added");
    assert_eq!(started.get("/first").status, 200);
    assert!(started.log().contains("newer than this weir's"), "{}", started.log());
    assert_eq!(route(&started, "second", &upstream), 200);
    eventually("the other serves it", || node.get("/second").status == 200);
}

#[test]
fn without_their_database_nodes_serve_on() {
    let mut server = PostgresServer::start();
    let upstream = Upstream::answering(HELLO);
    let nodes: [Gateway; 2] = Gateway::sharing(server.port, "public");
    assert_eq!(route(&nodes[0], "before", &upstream), 200);
    nodes.iter().for_each(|node| eventually("it is served", || node.get("/before").status == 200));
    let (ended, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for node in &nodes {
            scope.spawn(|| {
                while !ended.load(Ordering::SeqCst) {
                    assert_eq!(node.get("/before").status, 200);
                    served.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let over = Over(&ended);
        for (round, end) in [PostgresServer::kill, PostgresServer::stop].into_iter().enumerate() {
            end(&mut server);
            for node in &nodes {
                let refused = node.ask_admin("PUT", "/services/refused", "{\"host\": \"a\"}");
                assert_eq!(refused.status, 503, "{}", refused.text());
                assert_eq!(node.ask_admin("GET", "/services/before", "").status, 200, "reads are answered");
            }
            server.restart();
            let name = format!("after-{round}");
            eventually("writes are taken again", || route(&nodes[1], &name, &upstream) == 200);
            eventually("the other serves them", || nodes[0].get(&format!("/{name}")).status == 200);
            assert_eq!(nodes[0].ask_admin("GET", "/services/refused", "").status, 404);
        }
        let enough = served.load(Ordering::SeqCst) + 10;
        eventually("requests are served all the while", || served.load(Ordering::SeqCst) > enough);
        drop(over);
    });
}
