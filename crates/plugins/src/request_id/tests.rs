//! request-id over exchanges in memory.

use crate::PLUGINS;
use serde_json::{Value, json};
use weir_plugin::testing::{Gateway, check_cases};

#[test]
fn cases() {
    check_cases(PLUGINS, "request-id", include_str!("cases.json"));
}

/// The ids of two requests, which the upstream and the client see alike.
fn two_ids(config: Value) -> [String; 2] {
    let gateway = Gateway::new(PLUGINS);
    let plugin = gateway.plugin("request-id", config).unwrap();
    [(); 2].map(|()| {
        let outcome = gateway.send(&[&*plugin], "GET /\nX-Request-Id:");
        let id = outcome.upstream_header("X-Request-Id").unwrap().to_owned();
        assert_eq!(outcome.header("X-Request-Id"), Some(&*id));
        id
    })
}

#[test]
fn uuids_differ() {
    let [one, other] = two_ids(json!({}));
    assert_ne!(one, other);
    assert_eq!(uuid::Uuid::parse_str(&one).unwrap().get_version_num(), 4);
}

#[test]
fn random_texts_have_their_length_and_their_characters() {
    let ids = two_ids(json!({ "algorithm": "nanoid" }));
    assert_ne!(ids[0], ids[1]);
    assert!(ids.iter().all(|id| id.len() == 21), "{ids:?}");
    let of_a_set = json!({ "algorithm": "range_id", "range_id": { "length": 100, "char_set": "abcdef" } });
    for id in two_ids(of_a_set) {
        assert_eq!(id.len(), 100);
        assert!(
            "abcdef".chars().all(|c| id.contains(c)) && id.bytes().all(|b| b"abcdef".contains(&b)),
            "{id}"
        );
    }
}

#[test]
fn an_id_of_the_upstreams_is_kept() {
    let gateway = Gateway::new(PLUGINS);
    let plugin = gateway.plugin("request-id", json!({})).unwrap();
    let mut exchange = gateway.exchange("GET /");
    plugin.access(&mut exchange);
    exchange.response.headers.append("X-Request-Id", b"theirs");
    plugin.response(&mut exchange);
    assert_eq!(exchange.response.headers.get("X-Request-Id"), Some(&b"theirs"[..]));
}

#[test]
fn a_response_made_before_the_access_hook_has_an_id_too() {
    let gateway = Gateway::new(PLUGINS);
    let plugin = gateway.plugin("request-id", json!({})).unwrap();
    let mut exchange = gateway.exchange("GET /");
    plugin.response(&mut exchange);
    assert!(exchange.response.headers.get("X-Request-Id").is_some());
}
