//! limit-count over exchanges in memory. The windows last a day, so that none ends during a test.

use crate::PLUGINS;
use serde_json::json;
use std::sync::Arc;
use weir_plugin::testing::{Gateway, check_cases, id, run};
use weir_plugin::{ConsumerIndex, Credential, Exchange, Hooks, Json};

#[test]
fn cases() {
    check_cases(PLUGINS, "limit-count", include_str!("cases.json"));
}

fn limiter(gateway: &Gateway, config: Json) -> Arc<dyn Hooks> {
    let mut config = config;
    config["count"] = config["count"].as_u64().unwrap_or(1).into();
    config["time_window"] = 86_400.into();
    gateway.plugin("limit-count", config).unwrap()
}

#[test]
fn refused_clients_learn_why_and_when_to_retry() {
    let gateway = Gateway::new(PLUGINS);
    let plugin = limiter(&gateway, json!({ "rejected_code": 429, "rejected_msg": "say \"please\"" }));
    gateway.send(&[&*plugin], "GET /");
    let refused = gateway.send(&[&*plugin], "GET /");
    assert_eq!(
        (refused.status(), refused.answer.as_deref()),
        (429, Some(r#"{"error_msg":"say \"please\""}"#))
    );
    assert_eq!(refused.header("X-RateLimit-Remaining"), Some("0"));
    let reset: u64 = refused.header("X-RateLimit-Reset").unwrap().parse().unwrap();
    assert!((1..=86_400).contains(&reset));
}

#[test]
fn without_a_message_there_is_no_body() {
    let gateway = Gateway::new(PLUGINS);
    let plugin = limiter(&gateway, json!({}));
    gateway.send(&[&*plugin], "GET /");
    let refused = gateway.send(&[&*plugin], "GET /");
    assert_eq!((refused.status(), refused.answer.as_deref()), (503, Some("")));
    assert_eq!(refused.header("Content-Type"), None);
}

/// Which of these requests pass, if one per key does.
fn passing(key_type: &str, key: &str, requests: &[&str]) -> Vec<bool> {
    let gateway = Gateway::new(PLUGINS);
    let plugin = limiter(&gateway, json!({ "key_type": key_type, "key": key }));
    requests.iter().map(|request| gateway.send(&[&*plugin], request).status() == 200).collect()
}

#[test]
fn requests_are_counted_by_their_key() {
    let (one, other, none) =
        ("GET /a?t=1\nX-T: 1\nCookie: a=b; t=1", "GET /b?t=2\nX-T: 2\nCookie: t=2", "GET /a");
    let all = [one, other, one, none, none];
    for key in ["http_x_t", "arg_t", "cookie_t", "request_uri"] {
        assert_eq!(passing("var", key, &all), [true, true, false, true, false], "{key}");
    }
    assert_eq!(passing("var", "uri", &all), [true, true, false, false, false]);
    assert_eq!(passing("var", "remote_addr", &all), [true, false, false, false, false]);
    assert_eq!(passing("constant", "all", &all), [true, false, false, false, false]);
    let both = passing("var_combination", "$remote_addr-$arg_t", &all);
    assert_eq!(both, [true, true, false, true, false]);
    let none_has_it = passing("var_combination", "$http_x_a$http_x_b", &all);
    assert_eq!(none_has_it, [true, false, false, false, false], "counted by their address");
}

#[test]
fn consumers_are_counted_separately() {
    let gateway = Gateway::new(PLUGINS);
    let plugin = limiter(&gateway, json!({ "key": "consumer_name" }));
    let status = |consumer| {
        let mut exchange: Exchange = gateway.exchange("GET /");
        exchange.authenticate(ConsumerIndex(consumer), Credential { id: id(9), identifier: None });
        run(&[&*plugin], exchange).status()
    };
    assert_eq!([0, 1, 0, 1].map(status), [200, 200, 503, 503]);
}

#[test]
fn counts_belong_to_a_scope_or_to_a_group() {
    let gateway = Gateway::new(PLUGINS);
    let status = |scope: &str, config: Json| {
        let mut entity = json!({ "name": "limit-count", "config": config });
        entity["config"]["time_window"] = 86_400.into();
        if !scope.is_empty() {
            entity[scope] = json!(id(0x51));
        }
        gateway.send(&[&*gateway.scoped_plugin(entity).unwrap()], "GET /").status()
    };
    let own = || json!({ "count": 1 });
    assert_eq!([status("route", own()), status("service", own()), status("route", own())], [200, 200, 503]);
    assert_eq!(status("route", json!({ "count": 2 })), 200, "another limit counts anew");
    let shared = || json!({ "count": 1, "group": "g" });
    assert_eq!([status("route", shared()), status("service", shared())], [200, 503]);
}

#[test]
fn what_the_upstream_says_of_limits_gives_way() {
    let gateway = Gateway::new(PLUGINS);
    let plugin = limiter(&gateway, json!({}));
    let mut exchange = gateway.exchange("GET /");
    plugin.access(&mut exchange);
    exchange.response.headers.append("x-ratelimit-limit", b"7");
    plugin.response(&mut exchange);
    let values: Vec<_> = exchange.response.headers.get_all("X-RateLimit-Limit").collect();
    assert_eq!(values, [b"1"]);
}
