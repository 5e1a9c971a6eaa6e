//! Consumer groups: which of a plugin's configurations a request meets, from files and over the Admin API.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Gateway, Upstream};
use serde_json::json;

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// Two services, `/a` and `/b` on the first one and `/c` on the other, and who calls.
fn file(upstream: &Upstream, consumers: &str, plugins: &[&str]) -> String {
    let plugins: String = plugins.iter().map(|scope| plugin(scope)).collect();
    format!(
        "_format_version: \"3.0\"
services:
- name: first
  url: http://{0}
  routes: [{{name: a, paths: [/a]}}, {{name: b, paths: [/b]}}]
- name: second
  url: http://{0}
  routes: [{{name: c, paths: [/c]}}]
consumer_groups: [{{name: gold}}, {{name: silver}}, {{name: tin}}]
consumers:
{consumers}
plugins:
- {{name: key-auth, config: {{anonymous: nobody}}}}
{plugins}",
        upstream.address
    )
}

/// A configuration that says in a header what it is for: `route a, consumer_group gold`.
fn plugin(scope: &str) -> String {
    let fields: String = scope
        .split(", ")
        .filter_map(|field| field.split_once(' '))
        .map(|(kind, name)| format!("{kind}: {name}, "))
        .collect();
    format!(
        "- {{name: response-transformer, {fields}config: {{add: {{headers: [\"X-Applied: {scope}\"]}}}}}}\n"
    )
}

const CONSUMERS: &str = "\
- {username: ann, keyauth_credentials: [{key: ann}], groups: [{name: gold}, {name: silver}]}
- {username: bob, keyauth_credentials: [{key: bob}], groups: [{name: silver}]}
- {username: cleo, keyauth_credentials: [{key: cleo}]}
- {username: nobody}";

const SCOPES: [&str; 12] = [
    "global",
    "service first",
    "route a",
    "route a, service first",
    "consumer cleo",
    "consumer_group silver",
    "consumer_group gold, service second",
    "consumer_group silver, route b",
    "consumer ann, service first",
    "consumer bob, service second",
    "consumer_group silver, service first, route a",
    "consumer_group tin, service first, route a",
];

/// Who asks for what, and which configuration applies.
const EXPECTED: [(&str, &str, &str); 12] = [
    ("ann", "/a", "consumer_group silver, service first, route a"),
    ("ann", "/b", "consumer ann, service first"),
    ("ann", "/c", "consumer_group gold, service second"),
    ("bob", "/a", "consumer_group silver, service first, route a"),
    ("bob", "/b", "consumer_group silver, route b"),
    ("bob", "/c", "consumer bob, service second"),
    ("cleo", "/a", "route a, service first"),
    ("cleo", "/b", "consumer cleo"),
    ("cleo", "/c", "consumer cleo"),
    ("", "/a", "route a, service first"),
    ("", "/b", "service first"),
    ("", "/c", "global"),
];

fn applied(gateway: &Gateway, key: &str, path: &str) -> String {
    let key = if key.is_empty() { String::new() } else { format!("apikey: {key}\r\n") };
    let answer = gateway.get_with(path, &key);
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.header("x-applied").unwrap_or("none").to_owned()
}

#[test]
fn the_most_specific_configuration_applies() {
    let upstream = Upstream::answering(HELLO);
    let gateway = Gateway::start(&file(&upstream, CONSUMERS, &SCOPES));
    for (key, path, expected) in EXPECTED {
        assert_eq!(applied(&gateway, key, path), expected, "{key} {path}");
    }
}

#[test]
fn who_is_in_a_group_changes_with_the_file() {
    let upstream = Upstream::answering(HELLO);
    let scopes = ["global", "consumer_group gold", "consumer_group silver"];
    let gateway = Gateway::start(&file(&upstream, CONSUMERS, &scopes));
    assert_eq!(applied(&gateway, "ann", "/a"), "consumer_group gold");
    let silver = CONSUMERS.replace("{name: gold}, ", "");
    assert!(gateway.reload(&file(&upstream, &silver, &scopes)).status.success());
    assert_eq!(applied(&gateway, "ann", "/a"), "consumer_group silver");
    let none = silver.replace("{name: silver}", "");
    assert!(gateway.reload(&file(&upstream, &none, &scopes)).status.success());
    assert_eq!(applied(&gateway, "ann", "/a"), "global");
    let unknown = silver.replace("silver", "bronze");
    let refused = gateway.reload(&file(&upstream, &unknown, &scopes));
    let said = String::from_utf8(refused.stderr).unwrap() + &String::from_utf8(refused.stdout).unwrap();
    assert!(
        !refused.status.success() && said.contains("\"bronze\" is none of the consumer_groups"),
        "{said}"
    );
    assert_eq!(applied(&gateway, "ann", "/a"), "global", "what was in force stays");
}

#[test]
fn who_is_in_a_group_changes_over_the_admin_api() {
    let upstream = Upstream::answering(HELLO);
    let gateway = Gateway::empty().start();
    let done = |method: &str, path: &str, body: serde_json::Value| {
        let answer = gateway.ask_admin(method, &format!("{path}?wait=true"), &body.to_string());
        assert!(answer.status < 300, "{method} {path}: {}", answer.text());
    };
    let header = |value: &str| {
        let add = json!({ "headers": [format!("X-Applied: {value}")] });
        json!({ "name": "response-transformer", "config": { "add": add } })
    };
    done("PUT", "/services/first", json!({ "url": format!("http://{}", upstream.address) }));
    done("PUT", "/services/first/routes/a", json!({ "paths": ["/a"] }));
    done("POST", "/plugins", json!({ "name": "key-auth" }));
    done("PUT", "/consumers/ann", json!({}));
    done("POST", "/consumers/ann/key-auth", json!({ "key": "ann" }));
    done("PUT", "/consumer_groups/gold", json!({}));
    done("POST", "/consumer_groups/gold/plugins", header("gold"));
    assert_eq!(applied(&gateway, "ann", "/a"), "none");
    done("POST", "/consumer_groups/gold/consumers", json!({ "consumer": "ann" }));
    assert_eq!(applied(&gateway, "ann", "/a"), "gold");
    // Of several groups, the first by name counts, whatever its name was before.
    done("PUT", "/consumer_groups/silver", json!({}));
    done("POST", "/consumer_groups/silver/plugins", header("silver"));
    done("POST", "/consumers/ann/consumer_groups", json!({ "group": "silver" }));
    assert_eq!(applied(&gateway, "ann", "/a"), "gold");
    done("PATCH", "/consumer_groups/gold", json!({ "name": "zinc" }));
    assert_eq!(applied(&gateway, "ann", "/a"), "silver");
    done("DELETE", "/consumers/ann/consumer_groups/silver", json!({}));
    assert_eq!(applied(&gateway, "ann", "/a"), "gold");
    done("DELETE", "/consumer_groups/zinc", json!({}));
    assert_eq!(applied(&gateway, "ann", "/a"), "none");
}

#[test]
fn a_limit_of_a_group_counts_each_of_its_consumers() {
    let upstream = Upstream::answering(HELLO);
    let limits = "- {name: rate-limiting, config: {year: 1}}\n\
                  - {name: rate-limiting, consumer_group: silver, config: {year: 3}}\n";
    let gateway = Gateway::start(&(file(&upstream, CONSUMERS, &[]) + limits));
    let statuses = |key: &str| [(); 4].map(|()| gateway.get_with("/a", &format!("apikey: {key}\r\n")).status);
    assert_eq!(statuses("ann"), [200, 200, 200, 429]);
    assert_eq!(statuses("bob"), [200, 200, 200, 429]);
    assert_eq!(statuses("cleo"), [200, 429, 429, 429]);
}

#[test]
fn limits_of_two_groups_count_apart() {
    let upstream = Upstream::answering(HELLO);
    let limit = |group: &str| {
        format!(
            "- {{name: limit-count, consumer_group: {group}, config: {{count: 1, time_window: 86400}}}}\n"
        )
    };
    let consumers = "- {username: ann, groups: [{name: gold}], keyauth_credentials: [{key: ann}]}
- {username: bob, groups: [{name: silver}], keyauth_credentials: [{key: bob}]}
- {username: nobody}";
    let gateway = Gateway::start(&(file(&upstream, consumers, &[]) + &limit("gold") + &limit("silver")));
    let statuses = |key: &str| [(); 2].map(|()| gateway.get_with("/a", &format!("apikey: {key}\r\n")).status);
    assert_eq!([statuses("ann"), statuses("bob")], [[200, 503]; 2], "both come from one address");
}
