//! What the new process knows of what the old one counted and kept.
use super::{Node, OK, program, runs};
use crate::harness::{Gateway, Peer, Upstream, document, eventually, service};
use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

#[test]
fn limits_cached_responses_metrics_and_health_are_handed_over() {
    let upstream = Upstream::answering(OK);
    let limit = "plugins: [{name: rate-limiting, config: {month: 2, policy: local, limit_by: ip}}]";
    let cache = "plugins: [{name: proxy-cache, config: {strategy: memory, content_type: [text/plain], cache_ttl: 3000}}]";
    let cached =
        Upstream::answering("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nkept");
    let more = format!(
        "upstreams:\n- {{name: pool, healthchecks: {{passive: {{unhealthy: {{tcp_failures: 9}}}}}}, \
         targets: [{{target: \"{}\"}}]}}\nplugins: [{{name: prometheus, config: {{status_code_metrics: true}}}}]\n",
        upstream.address
    );
    let services =
        [service("/limited", upstream.address, "", limit), service("/kept", cached.address, "", cache)];
    let node = Node::start(Gateway::builder(&document(&services, &more)));
    let gateway = &node.gateway;
    assert_eq!(gateway.get("/limited").status, 200);
    assert_eq!(gateway.get("/kept").header("x-cache-status"), Some("Miss"));
    let path = format!("/upstreams/pool/targets/{}/unhealthy", upstream.address);
    assert_eq!(gateway.ask_admin("PUT", &path, "").status, 204);
    let asked = cached.connections();
    node.upgrade();
    assert_eq!(gateway.get("/kept").header("x-cache-status"), Some("Hit"));
    assert_eq!(gateway.get("/kept").text(), "kept");
    assert_eq!(cached.connections(), asked);
    assert_eq!(gateway.get("/limited").header("x-ratelimit-remaining-month"), Some("0"));
    assert_eq!(gateway.get("/limited").status, 429);
    let health = gateway.admin("/upstreams/pool/health").json()["data"][0]["health"].clone();
    assert_eq!(health, json!("UNHEALTHY"));
    let counted = |status: u16| {
        let metrics = gateway.status("/metrics");
        let mark = format!("code=\"{status}\"");
        let lines = metrics.text().lines().filter(|line| line.starts_with("kong_http_requests_total{"));
        let of_status = lines.filter(|line| line.contains("limited") && line.contains(&mark));
        of_status.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum::<u64>()
    };
    eventually("all requests are counted", || counted(200) == 2 && counted(429) == 1);
}

#[test]
fn the_store_goes_on() {
    let node = Node::start(Gateway::empty());
    let post = |name: &str| {
        let body = json!({"name": name, "url": "http://127.0.0.1:1"}).to_string();
        assert_eq!(node.gateway.ask_admin("POST", "/services", &body).status, 201);
    };
    post("first");
    node.upgrade();
    post("second");
    node.upgrade();
    for name in ["first", "second"] {
        assert_eq!(node.gateway.admin(&format!("/services/{name}")).status, 200);
    }
    eventually("the old processes end", || node.gateway.log().matches("INFO stopped").count() == 2);
    post("third");
}

/// The new program may have migrated the tables before it failed. The one that goes on can use them, if they only have more.
#[test]
fn the_store_goes_on_when_the_new_process_fails_after_it_has_migrated() {
    let node = Node::start(Gateway::empty());
    let file = node.gateway.prefix().join("weir.sqlite");
    let put = |name: &str| node.gateway.ask_admin("PUT", &format!("/consumers/{name}"), "{}");
    assert_eq!(put("before").status, 200);
    let mut late = begin_put(&node.gateway, "late");
    fails_after(&node, || {
        let sql = "CREATE TABLE weir_later (id TEXT); UPDATE weir_meta SET migrated_to = migrated_to + 1";
        execute(&file, sql);
    });
    assert_eq!(late.send("}").response().status, 200);
    assert_eq!(put("after").status, 200);
    // As a restart of the same program.
    node.upgrade();
    for name in ["before", "late", "after"] {
        assert_eq!(node.gateway.admin(&format!("/consumers/{name}")).status, 200, "{name}");
    }
    assert_eq!(put("later").status, 200);
    fails_after(&node, || execute(&file, "UPDATE weir_meta SET version = migrated_to"));
    let refused = put("refused");
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("which is newer than this weir knows"), "{}", refused.text());
    assert!(node.refused(&[]).contains("which is newer than this weir knows"));
    assert_eq!(node.gateway.admin("/consumers/later").status, 200);
}

/// Begins an upgrade to a program that does this and fails.
fn fails_after(node: &Node, work: impl FnOnce()) {
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let program =
        program(folder.path(), &format!("until [ -e '{}' ]; do sleep 0.1; done\nexit 1", go.display()));
    let starts = || node.gateway.log().matches("a new process starts").count();
    let before = starts();
    thread::scope(|scope| {
        let upgrade = scope.spawn(|| node.refused(&["--program", &program]));
        eventually("the new process starts", || starts() > before);
        work();
        fs::write(&go, "").unwrap();
        assert!(upgrade.join().unwrap().contains("ended before it was ready (exit status: 1)"));
    });
}

/// Runs statements on a file of SQLite, as another program.
pub(super) fn execute(file: &Path, sql: &'static str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = SqliteConnectOptions::new().filename(file).connect().await.unwrap();
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    });
}

/// A connection to the Admin API that has sent a request but the last byte of its body, so that the process which has accepted
/// it answers.
pub(super) fn begin_put(gateway: &Gateway, name: &str) -> Peer {
    let mut client = Peer::connect(gateway.admin_addresses()[0]);
    let head = format!("PUT /consumers/{name} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json");
    client.send(format!("{head}\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"));
    assert_eq!(client.response().status, 100, "the request is being read");
    client.send("{");
    client
}

#[test]
fn what_the_oldest_process_commits_is_read_when_the_one_after_it_has_ended() {
    let node = Node::start(Gateway::empty().set("upgrade_drain_timeout", "1h"));
    let mut put = begin_put(&node.gateway, "late");
    node.upgrade();
    let second = node.pid();
    node.upgrade();
    eventually("the second process ends", || !runs(second));
    // Longer than the newest waits for the store when it knows of no process that drains.
    thread::park_timeout(Duration::from_secs(7));
    assert_eq!(put.send("}").response().status, 200);
    assert_eq!(node.gateway.admin("/consumers/late").status, 200);
}

#[test]
fn what_the_old_process_commits_is_read_from_the_new_one_at_once() {
    let node = Node::start(Gateway::empty());
    let mut puts: Vec<_> = (0..8).map(|number| begin_put(&node.gateway, &format!("late-{number}"))).collect();
    node.upgrade();
    for (number, client) in puts.iter_mut().enumerate() {
        assert_eq!(client.send("}").response().status, 200);
        assert_eq!(node.gateway.admin(&format!("/consumers/late-{number}")).status, 200);
    }
}
