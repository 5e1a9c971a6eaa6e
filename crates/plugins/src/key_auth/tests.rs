//! key-auth over exchanges in memory.

use crate::PLUGINS;
use serde_json::json;
use weir_plugin::testing::{Gateway, check_cases, entity, id};

#[test]
fn cases() {
    check_cases(PLUGINS, "key-auth", include_str!("cases.json"));
}

#[test]
fn a_ttl_counts_from_the_creation_of_the_credential() {
    let mut gateway = Gateway::new(PLUGINS);
    let key = |key: &str, ttl: i64, created: Option<i64>| {
        entity(json!({ "id": id(9), "consumer": id(1), "key": key, "ttl": ttl, "created_at": created }))
    };
    gateway.document.keyauth_credentials = vec![
        key("old", 60, Some(1_700_000_000)),
        key("new", 60, None),
        key("lasting", 0, Some(1_700_000_000)),
    ];
    let plugin = gateway.plugin("key-auth", json!({})).unwrap();
    let status = |key: &str| gateway.send(&[&*plugin], &format!("GET /\napikey: {key}")).status();
    assert_eq!(["old", "new", "lasting"].map(status), [401, 200, 200]);
}

#[test]
fn a_credential_whose_consumer_is_gone_opens_nothing() {
    let mut gateway = Gateway::new(PLUGINS);
    gateway.document.consumers.remove(0);
    let plugin = gateway.plugin("key-auth", json!({})).unwrap();
    assert_eq!(gateway.send(&[&*plugin], "GET /\napikey: alices-key").status(), 401);
}

#[test]
fn plugins_with_anonymous_are_alternatives_and_others_are_all_required() {
    let gateway = Gateway::new(PLUGINS);
    let both = |config: serde_json::Value| {
        [gateway.plugin("key-auth", config.clone()).unwrap(), gateway.plugin("basic-auth", config).unwrap()]
    };
    let [key, basic] = both(json!({ "anonymous": "guest" }));
    let caller = |request: &str| {
        let outcome = gateway.send(&[&*key, &*basic], request);
        outcome.upstream_header("X-Consumer-Username").map(str::to_owned)
    };
    assert_eq!(caller("GET /\napikey: alices-key").as_deref(), Some("alice"));
    assert_eq!(caller("GET /\nAuthorization: Basic Ym9iOmJvYjpzZWNyZXQ=").as_deref(), Some("bob"));
    assert_eq!(caller("GET /").as_deref(), Some("guest"));

    let [key, basic] = both(json!({}));
    let status = |request: &str| gateway.send(&[&*key, &*basic], request).status();
    assert_eq!(status("GET /\napikey: alices-key"), 401);
    assert_eq!(status("GET /\napikey: alices-key\nAuthorization: Basic Ym9iOmJvYjpzZWNyZXQ="), 200);
}
