//! What Kong's tools and files expect of the Admin API: how files are read, and what outlives writes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Gateway, Identity, Message, Peer};
use serde_json::{Value, json};

const SAMPLE: &str = "_format_version: \"3.0\"\nservices:\n- {name: orders, url: \"http://orders.test\"}\n";

#[track_caller]
fn send(gateway: &Gateway, method: &str, path: &str, content_type: &str, body: &str) -> Message {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n"
    );
    Peer::connect(gateway.admin_addresses()[0]).send(format!("{head}{body}")).response()
}

#[track_caller]
fn get(gateway: &Gateway, path: &str) -> Value {
    let answer = gateway.admin(path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

#[test]
fn a_configuration_is_read_as_kong_reads_it() {
    let gateway = Gateway::start(SAMPLE);
    let load = |text: &str| send(&gateway, "POST", "/config", "text/yaml", text);
    let answer = load("{_format_version: \"3.0\", services: [{name: braces, host: a.test},],}");
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert!(
        get(&gateway, "/config")["config"].as_str().unwrap().contains("path: null"),
        "unset fields are shown"
    );
    let broken = load("{\"_format_version\": \"3.0\", \"services\": [}");
    assert!(broken.status == 400 && broken.text().contains("not valid JSON"), "{}", broken.text());
    let identity = Identity::new("client.test");
    let nested = format!(
        "_format_version: \"3.0\"\nservices:\n- name: one\n  url: https://a.test\n  client_certificate: {{cert: {cert}, key: \
         {key}}}\n- name: two\n  url: https://a.test\n  client_certificate: {{cert: {cert}, key: {key}}}\n",
        cert = identity.cert_yaml(),
        key = identity.key_yaml()
    );
    assert_eq!(load(&nested).status, 201);
    let certificates = get(&gateway, "/certificates")["data"].clone();
    assert_eq!(certificates.as_array().unwrap().len(), 1, "{certificates}");
    for name in ["one", "two"] {
        assert_eq!(
            get(&gateway, &format!("/services/{name}"))["client_certificate"]["id"],
            certificates[0]["id"]
        );
    }
}

#[test]
fn a_repeated_target_is_one_target() {
    let targets = "targets: [{target: a.test, weight: 1}, {target: \"a.test:8000\", weight: 2}]";
    let gateway = Gateway::start(&format!("_format_version: \"3.0\"\nupstreams:\n- name: u\n  {targets}\n"));
    let listed = get(&gateway, "/upstreams/u/targets")["data"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!((&listed[0]["target"], &listed[0]["weight"]), (&json!("a.test:8000"), &json!(2)));
}

#[test]
fn an_upstream_that_is_made_anew_keeps_the_health_of_its_targets() {
    let gateway = Gateway::empty().start();
    let call = |method: &str, path: &str, body: Value| {
        let answer = send(&gateway, method, path, "application/json", &body.to_string());
        assert!(answer.status < 300, "{method} {path}: {}", answer.text());
    };
    let make = || {
        let checks = json!({ "passive": { "unhealthy": { "http_failures": 1 } } });
        call("POST", "/upstreams?wait=true", json!({ "name": "u", "healthchecks": checks }));
        call("POST", "/upstreams/u/targets?wait=true", json!({ "target": "127.0.0.1:1" }));
    };
    let health = || get(&gateway, "/upstreams/u/health")["data"][0]["health"].clone();
    make();
    assert_eq!(health(), "HEALTHY");
    call("PUT", "/upstreams/u/targets/127.0.0.1:1/unhealthy", json!({}));
    assert_eq!(health(), "UNHEALTHY");
    call("DELETE", "/upstreams/u?wait=true", json!({}));
    make();
    assert_eq!(health(), "UNHEALTHY");
}
