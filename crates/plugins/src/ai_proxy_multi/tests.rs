//! ai-proxy-multi over exchanges in memory: which instance a request goes to.

use crate::PLUGINS;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_plugin::testing::{Gateway, check_cases};
use weir_plugin::{Hooks, Json};

#[test]
fn cases() {
    check_cases(PLUGINS, "ai-proxy-multi", include_str!("cases.json"));
}

/// A plugin with these instances: name, priority, weight.
fn plugin(gateway: &Gateway, instances: &[(&str, i32, u32)], balancer: Json) -> Arc<dyn Hooks> {
    let instance = |(name, priority, weight): &(&str, i32, u32)| {
        json!({
            "name": name, "provider": "openai-compatible", "priority": priority, "weight": weight,
            "override": { "endpoint": format!("http://{name}.test") },
        })
    };
    let instances: Vec<_> = instances.iter().map(instance).collect();
    gateway.plugin("ai-proxy-multi", json!({ "instances": instances, "balancer": balancer })).unwrap()
}

/// Where a request goes.
fn target(gateway: &Gateway, plugin: &dyn Hooks, user: &str) -> String {
    let body = "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}";
    let sent = gateway.send(&[plugin], &format!("POST /\nX-User: {user}\n\n{body}"));
    let changed = sent.exchange.service_override().unwrap().clone();
    assert_eq!((changed.retries, changed.timeouts), (Some(0), Some([30_000; 3])));
    changed.target.unwrap().host.trim_end_matches(".test").to_owned()
}

#[test]
fn each_instance_of_the_highest_priority_gets_its_share() {
    let gateway = Gateway::new(PLUGINS);
    let plugin = plugin(&gateway, &[("a", 1, 3), ("b", 0, 9), ("c", 1, 1), ("d", 1, 0)], json!({}));
    let mut counts = BTreeMap::new();
    for _ in 0..40 {
        *counts.entry(target(&gateway, &*plugin, "")).or_insert(0) += 1;
    }
    assert_eq!(counts, BTreeMap::from([("a".to_owned(), 30), ("c".to_owned(), 10)]));
}

#[test]
fn a_hash_leads_to_the_same_instance_and_moves_few_where_one_comes() {
    let gateway = Gateway::new(PLUGINS);
    let balancer = json!({ "algorithm": "chash", "hash_on": "header", "key": "X-User" });
    let two = plugin(&gateway, &[("a", 0, 1), ("b", 0, 1)], balancer.clone());
    let three = plugin(&gateway, &[("a", 0, 1), ("b", 0, 1), ("c", 0, 2)], balancer);
    let (mut moved, mut of_a) = (0, 0);
    for user in (0..400).map(|number| format!("user-{number}")) {
        let (before, after) = (target(&gateway, &*two, &user), target(&gateway, &*three, &user));
        assert_eq!(target(&gateway, &*two, &user), before);
        assert!(after == before || after == "c", "{user}: {before} {after}");
        (moved, of_a) = (moved + usize::from(after == "c"), of_a + usize::from(before == "a"));
    }
    assert!((150..250).contains(&of_a) && (150..250).contains(&moved), "{of_a} {moved}");
}
