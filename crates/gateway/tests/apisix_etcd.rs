//! A node whose configuration is in the etcd of an APISIX installation.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{EtcdServer, Gateway, Message, Peer, Upstream, eventually};
use rustix::process::Signal;
use serde_json::{Value as Json, json};

const KEY: &str = "edd1c9f034335f136f87ad84b625c8f1";

fn node(etcd: &EtcdServer, settings: &[(&str, &str)]) -> crate::harness::Builder {
    let builder = Gateway::empty()
        .set("apisix_etcd", &etcd.url())
        .set("apisix_admin", "on")
        .set("apisix_admin_key", KEY)
        .set("apisix_proxy_listen", "127.0.0.1:0")
        .set("apisix_admin_listen", "127.0.0.1:0");
    settings.iter().fold(builder, |builder, (name, value)| builder.set(name, value))
}

fn upstream() -> Upstream {
    Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
}

fn nodes(upstream: &Upstream) -> String {
    json!({ "type": "roundrobin", "nodes": { upstream.address.to_string(): 1 } }).to_string()
}

fn get(gateway: &Gateway, path: &str, headers: &str) -> u16 {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    Peer::connect(gateway.apisix_proxy()).send(request).response().status
}

fn write(gateway: &Gateway, method: &str, path: &str, body: &Json) -> Message {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = format!(
        "{method} /apisix/admin{path} HTTP/1.1\r\nHost: localhost\r\nX-API-KEY: {KEY}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    Peer::connect(gateway.apisix_admin()).send(request).response()
}

fn is_reachable(gateway: &Gateway) -> bool {
    gateway.status("/status").json()["database"]["reachable"] == true
}

/// The objects that are not in force.
fn unusable(gateway: &Gateway) -> Json {
    let status = gateway.status("/status").json();
    status["unusable_objects"].as_array().unwrap().iter().map(|one| one["key"].clone()).collect()
}

#[test]
fn what_is_in_etcd_is_served_and_followed() {
    let (etcd, upstream) = (EtcdServer::start(), upstream());
    etcd.put("/apisix/routes/", "init_dir");
    etcd.put("/apisix/data_plane/server_info/1", r#"{"id": "1"}"#);
    etcd.put("/apisix/upstreams/1", &nodes(&upstream));
    etcd.put("/apisix/routes/1", r#"{"uri": "/a", "upstream_id": "1"}"#);
    let gateway = node(&etcd, &[]).start();
    assert_eq!([get(&gateway, "/a", ""), get(&gateway, "/b", "")], [200, 404]);
    etcd.put("/apisix/routes/2", r#"{"uri": "/b", "upstream_id": "1"}"#);
    eventually("a new route", || get(&gateway, "/b", "") == 200);
    etcd.delete("/apisix/routes/1");
    eventually("a route less", || get(&gateway, "/a", "") == 404);
    assert_eq!(unusable(&gateway), json!([]));
    let refused = gateway.ask_admin("POST", "/services", r#"{"url": "http://a"}"#);
    assert_eq!(refused.status, 405, "{}", refused.text());
}

#[test]
fn nodes_write_as_apisix_does_and_hear_of_each_other() {
    let (etcd, upstream) = (EtcdServer::start(), upstream());
    let [here, there] = [(); 2].map(|()| node(&etcd, &[]).start());
    etcd.put("/apisix/upstreams/1", &nodes(&upstream));
    eventually("the upstream is known", || write(&here, "GET", "/upstreams/1", &Json::Null).status == 200);
    let route = json!({ "uri": "/a", "upstream_id": "1", "plugins": { "key-auth": {} } });
    assert_eq!(write(&here, "PUT", "/routes/1", &route).status, 201);
    let consumer = json!({ "username": "jack", "plugins": { "key-auth": { "key": "a secret" } } });
    assert_eq!(write(&here, "PUT", "/consumers", &consumer).status, 201);
    eventually("the other node serves it", || get(&there, "/a", "apikey: a secret\r\n") == 200);
    eventually("and this one", || get(&here, "/a", "apikey: a secret\r\n") == 200);
    assert_eq!([get(&there, "/a", ""), get(&here, "/a", "")], [401, 401]);
    // As `printf 'a secret' | openssl enc -aes-128-cbc` prints it with the first key of APISIX.
    let stored = etcd.value("/apisix/consumers/jack").unwrap();
    assert!(stored.contains("97o5qGKxzAhVNXUaY4hLuw==") && !stored.contains("a secret"), "{stored}");
    let shown = write(&there, "GET", "/consumers/jack", &Json::Null).json();
    assert_eq!(shown["value"]["plugins"]["key-auth"]["key"], "a secret");
    // Each node writes on what the other has just written.
    for nth in 0..20 {
        for gateway in [&here, &there] {
            let path = format!("/routes/{nth}-{}", gateway.pid());
            assert_eq!(write(gateway, "PUT", &path, &json!({ "uri": path, "upstream_id": "1" })).status, 201);
        }
    }
    eventually("all of them are everywhere", || {
        [&here, &there]
            .iter()
            .all(|gateway| write(gateway, "GET", "/routes", &Json::Null).json()["total"] == 41)
    });
    assert_eq!(write(&there, "DELETE", "/routes/1", &Json::Null).status, 200);
    assert_eq!(etcd.value("/apisix/routes/1"), None);
    eventually("it is gone everywhere", || get(&here, "/a", "") == 404);
}

#[test]
fn objects_that_cannot_be_used_are_shown_and_so_are_those_that_refer_to_them() {
    let (etcd, upstream) = (EtcdServer::start(), upstream());
    etcd.put("/apisix/upstreams/1", &nodes(&upstream));
    etcd.put("/apisix/routes/good", r#"{"uri": "/good", "upstream_id": "1"}"#);
    etcd.put("/apisix/upstreams/text", "no JSON");
    etcd.put("/apisix/upstreams/list", "[]");
    etcd.put("/apisix/protos/1", r#"{"content": "syntax"}"#);
    etcd.put("/apisix/services/1", r#"{"upstream_id": "2"}"#);
    etcd.put("/apisix/routes/dependent", r#"{"uri": "/dependent", "service_id": "1"}"#);
    etcd.put("/apisix/routes/plugin", r#"{"uri": "/plugin", "upstream_id": "1", "plugins": {"none": {}}}"#);
    etcd.put("/apisix/consumers/jack/credentials/1", r#"{"plugins": {"key-auth": {"key": "k"}}}"#);
    let gateway = node(&etcd, &[]).start();
    let all = ["consumers/jack/credentials/1", "protos/1", "routes/dependent", "routes/plugin", "services/1"];
    let all: Vec<_> = all.into_iter().chain(["upstreams/list", "upstreams/text"]).collect();
    assert_eq!(unusable(&gateway), json!(all));
    // Closed, because a route with less to say might take the requests of one that cannot be used.
    etcd.put("/apisix/routes/all", r#"{"uri": "/*", "upstream_id": "1"}"#);
    eventually("the route for all", || get(&gateway, "/other", "") == 200);
    assert_eq!(["/good", "/dependent", "/plugin"].map(|path| get(&gateway, path, "")), [200, 503, 503]);
    etcd.put("/apisix/upstreams/2", &nodes(&upstream));
    eventually("what was missing makes two usable", || get(&gateway, "/dependent", "") == 200);
    etcd.delete("/apisix/upstreams/2");
    eventually("and unusable again", || get(&gateway, "/dependent", "") == 503);
    for key in all.iter().filter(|key| !key.contains("dependent")) {
        etcd.delete(&format!("/apisix/{key}"));
    }
    etcd.delete("/apisix/routes/dependent");
    eventually("nothing is left", || unusable(&gateway) == json!([]));
    eventually("a route for all takes the requests of one that is gone", || {
        get(&gateway, "/plugin", "") == 200
    });
    let vault = json!({ "uri": "http://127.0.0.1:8200", "prefix": "kv/apisix", "token": "t" });
    assert_eq!(write(&gateway, "PUT", "/secrets/vault/1", &vault).status, 201);
    etcd.put("/apisix/routes/last", r#"{"uri": "/last", "upstream_id": "1", "plugins": {"none": {}}}"#);
    eventually("the route alone is unusable", || unusable(&gateway) == json!(["routes/last"]));
}

#[test]
fn a_route_that_cannot_be_read_opens_nothing() {
    let (mut etcd, upstream) = (EtcdServer::start(), upstream());
    etcd.put("/apisix/upstreams/1", &nodes(&upstream));
    etcd.put("/apisix/routes/all", r#"{"uri": "/*", "upstream_id": "1"}"#);
    etcd.put(
        "/apisix/routes/guarded",
        r#"{"uri": "/guarded", "upstream_id": "1", "plugins": {"key-auth": {}}}"#,
    );
    let gateway = node(&etcd, &[]).start();
    assert_eq!(["/guarded", "/other"].map(|path| get(&gateway, path, "")), [401, 200]);
    etcd.put("/apisix/routes/guarded", "{");
    eventually("it is shown", || unusable(&gateway) == json!(["routes/guarded"]));
    assert_eq!(get(&gateway, "/guarded", ""), 401);
    // It is translated again with what it refers to, and read again after a gap.
    etcd.put("/apisix/upstreams/1", &nodes(&upstream));
    etcd.kill();
    etcd.restart();
    etcd.put("/apisix/routes/later", r#"{"uri": "/later", "upstream_id": "1", "plugins": {"key-auth": {}}}"#);
    eventually("changes are followed", || get(&gateway, "/later", "") == 401);
    assert_eq!((get(&gateway, "/guarded", ""), unusable(&gateway)), (401, json!(["routes/guarded"])));
    let (_, log) = node(&etcd, &[]).fail();
    assert!(log.contains("/apisix/routes/guarded cannot be used: it is not JSON"), "{log}");
    etcd.put("/apisix/routes/guarded", r#"{"uri": "/guarded", "upstream_id": "1"}"#);
    eventually("it can be read again", || get(&gateway, "/guarded", "") == 200);
    assert_eq!(unusable(&gateway), json!([]));
}

#[test]
fn a_rule_for_all_that_cannot_be_used_changes_nothing() {
    let (etcd, upstream) = (EtcdServer::start(), upstream());
    etcd.put("/apisix/upstreams/1", &nodes(&upstream));
    etcd.put("/apisix/routes/1", r#"{"uri": "/a", "upstream_id": "1"}"#);
    let gateway = node(&etcd, &[]).start();
    etcd.put("/apisix/global_rules/1", r#"{"plugins": {"none": {}}}"#);
    eventually("it is noticed", || !is_reachable(&gateway));
    etcd.put("/apisix/routes/2", r#"{"uri": "/b", "upstream_id": "1"}"#);
    assert_eq!(get(&gateway, "/a", ""), 200);
    let (_, log) = node(&etcd, &[]).fail();
    assert!(
        log.contains("/apisix/global_rules/1 cannot be used") && log.contains("change or delete it"),
        "{log}"
    );
    assert_eq!(get(&gateway, "/b", ""), 404);
    // Decided without what has arrived, it would undo that.
    etcd.put("/apisix/routes/1", r#"{"uri": "/a", "upstream_id": "1", "plugins": {"key-auth": {}}}"#);
    let refused = write(&gateway, "PATCH", "/routes/1", &json!({ "desc": "changed" }));
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(etcd.value("/apisix/routes/1").unwrap().contains("key-auth"));
    etcd.delete("/apisix/global_rules/1");
    eventually("all is followed again", || is_reachable(&gateway) && get(&gateway, "/b", "") == 200);
}

#[test]
fn restarts_and_compactions_of_etcd_lose_nothing() {
    let (mut etcd, upstream) = (EtcdServer::start(), upstream());
    etcd.put("/apisix/upstreams/1", &nodes(&upstream));
    etcd.put("/apisix/routes/1", r#"{"uri": "/a", "upstream_id": "1"}"#);
    let gateway = node(&etcd, &[]).start();
    etcd.kill();
    eventually("it is noticed", || !is_reachable(&gateway));
    assert_eq!(get(&gateway, "/a", ""), 200);
    let refused = write(&gateway, "PUT", "/routes/2", &json!({ "uri": "/b", "upstream_id": "1" }));
    assert_eq!(refused.status, 503, "{}", refused.text());
    gateway.signal(Signal::STOP);
    etcd.restart();
    etcd.put("/apisix/routes/2", r#"{"uri": "/b", "upstream_id": "1"}"#);
    etcd.delete("/apisix/routes/1");
    etcd.compact();
    gateway.signal(Signal::CONT);
    eventually("what the watch missed is read", || get(&gateway, "/b", "") == 200);
    assert_eq!(get(&gateway, "/a", ""), 404);
    assert!(gateway.log().contains("all is read anew"), "{}", gateway.log());
    assert!(is_reachable(&gateway));
    gateway.signal(Signal::STOP);
    etcd.recreate();
    etcd.put("/apisix/upstreams/1", &nodes(&upstream));
    etcd.put("/apisix/routes/3", r#"{"uri": "/c", "upstream_id": "1"}"#);
    gateway.signal(Signal::CONT);
    eventually("another etcd is read anew too", || get(&gateway, "/c", "") == 200);
    assert_eq!(get(&gateway, "/b", ""), 404);
}

#[test]
fn a_login_is_used_and_never_shown() {
    let (mut etcd, upstream) = (EtcdServer::start(), upstream());
    etcd.ask_for_login("hush hush");
    etcd.put("/apisix/upstreams/1", &nodes(&upstream));
    etcd.put("/apisix/routes/1", r#"{"uri": "/a", "upstream_id": "1"}"#);
    let login = |password| [("apisix_etcd_user", "root"), ("apisix_etcd_password", password)];
    let gateway = node(&etcd, &login("hush hush")).start();
    assert_eq!(get(&gateway, "/a", ""), 200);
    etcd.put("/apisix/routes/2", r#"{"uri": "/b", "upstream_id": "1"}"#);
    eventually("a new route", || get(&gateway, "/b", "") == 200);
    // A restart forgets the tokens of logins.
    etcd.kill();
    etcd.restart();
    etcd.log_in("hush hush");
    etcd.put("/apisix/routes/3", r#"{"uri": "/c", "upstream_id": "1"}"#);
    eventually("it logs in again", || get(&gateway, "/c", "") == 200);
    assert_eq!(write(&gateway, "DELETE", "/routes/3", &Json::Null).status, 200);
    assert!(!gateway.log().contains("hush hush") && !gateway.admin("/").text().contains("hush hush"));
    let (_, log) = node(&etcd, &login("wrong")).fail();
    assert!(log.contains("correct `apisix_etcd_user` and `apisix_etcd_password`"), "{log}");
    let (_, log) = node(&etcd, &[]).fail();
    assert!(log.contains("give `apisix_etcd_user`"), "{log}");
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let etcd = EtcdServer::start();
    let (_, log) = node(&etcd, &[("database", "postgres")]).fail();
    assert!(log.contains("database: the configuration is in etcd"), "{log}");
    let (_, log) = Gateway::empty().set("apisix_etcd", "http://u:secret@127.0.0.1").fail();
    assert!(log.contains("apisix_etcd_password") && !log.contains("secret@"), "{log}");
    let (_, log) = Gateway::empty().set("apisix_etcd", "http://127.0.0.1:1").fail();
    assert!(log.contains("etcd at http://127.0.0.1:1") && log.contains("see that it runs"), "{log}");
}
