//! correlation-id over exchanges in memory.

use crate::PLUGINS;
use serde_json::json;
use weir_plugin::testing::{Gateway, check_cases};

#[test]
fn cases() {
    check_cases(PLUGINS, "correlation-id", include_str!("cases.json"));
}

/// The ids of two requests, which the upstream and the client see alike.
fn two_ids(generator: &str) -> [String; 2] {
    let gateway = Gateway::new(PLUGINS);
    let plugin =
        gateway.plugin("correlation-id", json!({ "generator": generator, "echo_downstream": true })).unwrap();
    [(); 2].map(|()| {
        let outcome = gateway.send(&[&*plugin], "GET /\nKong-Request-ID:");
        let id = outcome.upstream_header("Kong-Request-ID").unwrap().to_owned();
        assert_eq!(outcome.header("Kong-Request-ID"), Some(&*id));
        id
    })
}

#[test]
fn uuids_differ() {
    let [one, other] = two_ids("uuid");
    assert_ne!(one, other);
    assert_eq!(uuid::Uuid::parse_str(&one).unwrap().get_version_num(), 4);
}

#[test]
fn counters_follow_the_workers_uuid() {
    let [one, other] = two_ids("uuid#counter").map(|id| {
        let (uuid, count) = id.split_once('#').unwrap();
        (uuid::Uuid::parse_str(uuid).unwrap(), count.parse::<u64>().unwrap())
    });
    assert_eq!((one.0, one.1 + 1), other);
}

#[test]
fn trackers_name_address_process_connection_and_request() {
    let [id, _] = two_ids("tracker");
    let start = format!("127.0.0.1-8000-{}-7-3-", std::process::id());
    let time = id.strip_prefix(&start).unwrap_or_else(|| panic!("{id}"));
    assert_eq!(time.split_once('.').map(|(_, thousandths)| thousandths.len()), Some(3));
    assert!(time.parse::<f64>().unwrap() > 1.7e9);
}

#[test]
fn a_response_made_before_the_access_hook_has_an_id_too() {
    let gateway = Gateway::new(PLUGINS);
    let plugin = gateway.plugin("correlation-id", json!({ "echo_downstream": true })).unwrap();
    let mut exchange = gateway.exchange("GET /");
    plugin.response(&mut exchange);
    assert!(exchange.response.headers.get("Kong-Request-ID").is_some());
}
