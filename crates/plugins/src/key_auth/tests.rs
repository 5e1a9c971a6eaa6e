//! key-auth over exchanges in memory.

use super::credential::KeyAuthCredential;
use crate::PLUGINS;
use serde_json::json;
use weir_plugin::Json;
use weir_plugin::testing::{Gateway, check_cases_in, custom, id};

fn key(number: u128, consumer: u128, key: &str, ttl: Option<i64>, created: Option<i64>) -> KeyAuthCredential {
    custom(
        json!({ "id": id(number), "consumer": id(consumer), "key": key, "ttl": ttl, "created_at": created }),
    )
}

/// Alice and Bob with a key each.
fn gateway() -> Gateway {
    let mut gateway = Gateway::new(PLUGINS);
    let created = Some(1_700_000_000);
    let keys = [key(0xa1, 1, "alices-key", None, created), key(0xa2, 2, "bobs-key", None, created)];
    gateway.document.custom.set(keys);
    gateway
}

#[test]
fn cases() {
    check_cases_in(gateway, "key-auth", include_str!("cases.json"));
}

#[test]
fn a_ttl_counts_from_the_creation_of_the_credential() {
    let mut gateway = Gateway::new(PLUGINS);
    gateway.document.custom.set([
        key(7, 1, "old", Some(60), Some(1_700_000_000)),
        key(8, 1, "new", Some(60), None),
        key(9, 1, "lasting", Some(0), Some(1_700_000_000)),
    ]);
    let plugin = gateway.plugin("key-auth", json!({})).unwrap();
    let status = |key: &str| gateway.send(&[&*plugin], &format!("GET /\napikey: {key}")).status();
    assert_eq!(["old", "new", "lasting"].map(status), [401, 200, 200]);
}

#[test]
fn a_credential_whose_consumer_is_gone_opens_nothing() {
    let mut gateway = gateway();
    gateway.document.consumers.remove(0);
    let plugin = gateway.plugin("key-auth", json!({})).unwrap();
    assert_eq!(gateway.send(&[&*plugin], "GET /\napikey: alices-key").status(), 401);
}

#[test]
fn plugins_with_anonymous_are_alternatives_and_others_are_all_required() {
    let gateway = gateway();
    let both = |config: fn(&str) -> Json| {
        ["apikey", "other"].map(|name| gateway.plugin("key-auth", config(name)).unwrap())
    };
    let [first, second] = both(|name| json!({ "key_names": [name], "anonymous": "guest" }));
    let caller = |request: &str| {
        let outcome = gateway.send(&[&*first, &*second], request);
        outcome.upstream_header("X-Consumer-Username").map(str::to_owned)
    };
    assert_eq!(caller("GET /\napikey: alices-key").as_deref(), Some("alice"));
    assert_eq!(caller("GET /\nother: bobs-key").as_deref(), Some("bob"));
    assert_eq!(caller("GET /").as_deref(), Some("guest"));

    let [first, second] = both(|name| json!({ "key_names": [name] }));
    let status = |request: &str| gateway.send(&[&*first, &*second], request).status();
    assert_eq!(status("GET /\napikey: alices-key"), 401);
    assert_eq!(status("GET /\napikey: alices-key\nother: bobs-key"), 200);
}
