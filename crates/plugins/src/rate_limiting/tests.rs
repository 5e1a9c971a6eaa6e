//! rate-limiting over exchanges in memory. The limits are per year, so that no window ends during a test.

use crate::PLUGINS;
use serde_json::json;
use std::sync::Arc;
use weir_plugin::testing::{Gateway, check_cases, id, run};
use weir_plugin::{Credential, Exchange, Hooks, Json};

#[test]
fn cases() {
    check_cases(PLUGINS, "rate-limiting", include_str!("cases.json"));
}

fn limiter(gateway: &Gateway, config: Json) -> Arc<dyn Hooks> {
    let mut config = config;
    config["year"] = config["year"].as_u64().unwrap_or(1).into();
    gateway.plugin("rate-limiting", config).unwrap()
}

/// The statuses of requests, one after another.
fn statuses(gateway: &Gateway, config: Json, requests: &[&dyn Fn() -> Exchange]) -> Vec<u16> {
    let plugin = limiter(gateway, config);
    requests.iter().map(|request| run(&[&*plugin], request()).status()).collect()
}

#[test]
fn refused_clients_learn_when_to_retry() {
    let gateway = Gateway::new(PLUGINS);
    let config =
        json!({ "month": 2, "year": 2, "limit_by": "ip", "error_code": 503, "error_message": "busy" });
    let plugin = gateway.plugin("rate-limiting", config).unwrap();
    let remaining = |_| {
        let outcome = gateway.send(&[&*plugin], "GET /");
        outcome.header("RateLimit-Remaining").map(str::to_owned)
    };
    assert_eq!([0, 1].map(remaining), [Some("1".to_owned()), Some("0".to_owned())]);
    let refused = gateway.send(&[&*plugin], "GET /");
    assert_eq!(refused.status(), 503);
    assert!(refused.answer.as_ref().is_some_and(|body| body.contains("\"message\":\"busy\"")));
    // If two limits are equal, the longer one is sent: what is left of the year, which Kong counts as 365 days.
    let reset: u64 = refused.header("RateLimit-Reset").unwrap().parse().unwrap();
    assert_eq!(refused.header("Retry-After"), refused.header("RateLimit-Reset"));
    assert!((1..=31_536_000).contains(&reset));
    assert_eq!(refused.header("X-RateLimit-Remaining-Month"), Some("0"));
}

#[test]
fn hidden_headers_are_hidden_from_the_refused_too() {
    let gateway = Gateway::new(PLUGINS);
    let plugin = limiter(&gateway, json!({ "hide_client_headers": true }));
    gateway.send(&[&*plugin], "GET /");
    let refused = gateway.send(&[&*plugin], "GET /");
    assert_eq!((refused.status(), refused.header("Retry-After")), (429, None));
}

#[test]
fn callers_are_counted_separately() {
    let gateway = Gateway::new(PLUGINS);
    let as_consumer = |consumer, credential| {
        let mut exchange = gateway.exchange("GET /");
        let identifier = Credential { id: id(credential), identifier: None };
        exchange.authenticate(weir_plugin::ConsumerIndex(consumer), identifier);
        exchange
    };
    let from = |address: &str| {
        let mut exchange = gateway.exchange("GET /");
        exchange.client_ip = address.parse().unwrap();
        exchange
    };
    let (alice, bob) = (|| as_consumer(0, 0xa1), || as_consumer(1, 0xa2));
    let alice_again = || as_consumer(0, 0xa9);
    let (here, there) = (|| from("192.0.2.1"), || from("2001:db8::1"));
    let callers: [&dyn Fn() -> Exchange; 7] = [&alice, &bob, &alice_again, &here, &there, &alice, &here];
    let by = |limit_by: &str| statuses(&Gateway::new(PLUGINS), json!({ "limit_by": limit_by }), &callers);
    assert_eq!(by("consumer"), [200, 200, 429, 200, 200, 429, 429]);
    assert_eq!(by("credential"), [200, 200, 200, 200, 200, 429, 429]);
    assert_eq!(by("ip"), [200, 429, 429, 429, 200, 429, 429]);
    assert_eq!(by("service"), [200, 429, 429, 429, 429, 429, 429]);
}

#[test]
fn headers_and_paths_are_counted_or_else_addresses() {
    let gateway = Gateway::new(PLUGINS);
    let request = |text: &'static str| move || Gateway::new(PLUGINS).exchange(text);
    let (one, two, none) = (request("GET /\nX-Tenant: 1"), request("GET /\nX-Tenant: 2"), request("GET /"));
    let config = json!({ "limit_by": "header", "header_name": "X-Tenant" });
    assert_eq!(statuses(&gateway, config, &[&one, &two, &one, &none, &none]), [200, 200, 429, 200, 429]);

    let (there, other, elsewhere) = (request("GET /a?x=1"), request("GET /a?x=2"), request("GET /b"));
    let config = json!({ "limit_by": "path", "path": "/a" });
    assert_eq!(
        statuses(&Gateway::new(PLUGINS), config, &[&there, &other, &elsewhere, &elsewhere]),
        [200, 429, 200, 429]
    );
}

#[test]
fn counts_outlive_a_configuration_and_belong_to_its_scope() {
    let gateway = Gateway::new(PLUGINS);
    let scoped = |scope: &str, year: u64| {
        let mut entity = json!({ "name": "rate-limiting", "config": { "year": year, "limit_by": "ip" } });
        if scope != "global" {
            entity[scope] = json!(id(0x51));
        }
        let plugin = gateway.scoped_plugin(entity).unwrap();
        gateway.send(&[&*plugin], "GET /").status()
    };
    assert_eq!([scoped("global", 1), scoped("global", 1)], [200, 429]);
    assert_eq!([scoped("service", 1), scoped("route", 1), scoped("service", 1)], [200, 200, 429]);
    assert_eq!([scoped("global", 2), scoped("global", 2)], [200, 429]);
}

#[test]
fn what_the_upstream_says_of_limits_gives_way() {
    let gateway = Gateway::new(PLUGINS);
    let plugin = limiter(&gateway, json!({}));
    let mut exchange = gateway.exchange("GET /");
    plugin.access(&mut exchange);
    for name in ["X-RateLimit-Limit-Year", "ratelimit-reset", "X-RateLimit-Limit-Day"] {
        exchange.response.headers.append(name, b"7");
        exchange.response.headers.append(name, b"8");
    }
    plugin.response(&mut exchange);
    let values = |name: &str| {
        let values =
            exchange.response.headers.get_all(name).map(|value| String::from_utf8_lossy(value).into_owned());
        values.collect::<Vec<_>>()
    };
    assert_eq!(values("X-RateLimit-Limit-Year"), ["1"]);
    assert_eq!(values("RateLimit-Reset").len(), 1);
    assert_eq!(values("X-RateLimit-Limit-Day"), ["7", "8"]);
}
