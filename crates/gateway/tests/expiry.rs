//! Keys that last for a time: what has expired is nowhere to be seen, and in nobody's way.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, weir};

const EXPIRED: &str = r#"{"key": "spent", "ttl": 60, "created_at": 1700000000}"#;

fn shows_no_key(gateway: &Gateway, id: &str) {
    for list in ["/key-auths", "/consumers/jane/key-auth", "/tags/spent"] {
        let shown = gateway.admin(list);
        assert_eq!(shown.json()["data"].as_array().map(Vec::len), Some(0), "{list}: {}", shown.text());
    }
    for one in
        [format!("/key-auths/{id}"), "/key-auths/spent".to_owned(), format!("/key-auths/{id}/consumer")]
    {
        assert_eq!(gateway.admin(&one).status, 404, "{one}");
    }
    assert_eq!(gateway.admin(&format!("/consumers/jane/key-auth/{id}")).status, 404);
}

#[test]
fn a_stored_key_that_has_expired_is_gone() {
    let gateway = Gateway::empty().start();
    assert_eq!(gateway.ask_admin("POST", "/consumers", r#"{"username": "jane"}"#).status, 201);
    let created = gateway.ask_admin("POST", "/consumers/jane/key-auth", EXPIRED);
    assert_eq!(created.status, 201, "{}", created.text());
    shows_no_key(&gateway, created.json()["id"].as_str().unwrap());
    let export = || {
        let output = weir().args(["config", "db_export", "-", "--prefix"]).arg(gateway.prefix()).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let exported = export();
    assert!(exported.contains("username: jane") && !exported.contains("key: spent"), "{exported}");
    // Its key is free.
    let again = gateway.ask_admin("POST", "/consumers/jane/key-auth", r#"{"key": "spent", "ttl": 6000}"#);
    assert_eq!(again.status, 201, "{}", again.text());
    assert_eq!(gateway.admin("/key-auths/spent").json()["id"], again.json()["id"]);
    assert!(export().contains("key: spent"));
}

#[test]
fn a_time_that_is_given_to_an_old_key_begins_with_that() {
    let gateway = Gateway::empty().start();
    assert_eq!(gateway.ask_admin("POST", "/consumers", r#"{"username": "jane"}"#).status, 201);
    let old = r#"{"key": "old", "created_at": 1700000000}"#;
    assert_eq!(gateway.ask_admin("POST", "/consumers/jane/key-auth", old).status, 201);
    let tagged = gateway.ask_admin("PATCH", "/key-auths/old", r#"{"tags": ["a"]}"#);
    assert_eq!(tagged.json()["created_at"], 1_700_000_000);
    let changed = gateway.ask_admin("PATCH", "/key-auths/old", r#"{"ttl": 6000}"#);
    assert_eq!(changed.status, 200, "{}", changed.text());
    let left = gateway.admin("/key-auths/old").json()["ttl"].as_u64().unwrap();
    assert!((5900..=6000).contains(&left), "{left}");
}

#[test]
fn a_declared_key_that_has_expired_is_gone() {
    let id = "7c2b7b1e-3bb2-4c1d-8f0a-0242ac120002";
    let gateway = Gateway::start(&format!(
        "_format_version: \"3.0\"\nconsumers:\n- username: jane\n  keyauth_credentials:\n  - {{id: {id}, key: spent, \
         ttl: 60, created_at: 1700000000, tags: [spent]}}\n"
    ));
    shows_no_key(&gateway, id);
    let configuration = gateway.admin("/config");
    let configuration = configuration.json()["config"].as_str().unwrap().to_owned();
    assert!(configuration.contains("username: jane") && !configuration.contains("spent"), "{configuration}");
}
