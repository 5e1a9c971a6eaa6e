//! Plugins as Kong 3.9 tells of them, with every field: what a file that decK or Kong has written holds.
use super::{client, engine, sync, types};
use crate::harness::Gateway;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;

/// What is given of each plugin, and what Kong then tells of it.
const KONG: &str = include_str!("kong-3.9.json");

/// Plugins that the open source of Kong does not have.
const OTHERS: [&str; 34] = [
    "ai-proxy-multi",
    "ai-rate-limiting",
    "api-breaker",
    "apisix-aws-lambda",
    "apisix-cors",
    "apisix-hmac-auth",
    "apisix-proxy-cache",
    "apisix-redirect",
    "consumer-restriction",
    "fault-injection",
    "file-logger",
    "forward-auth",
    "grpc-transcode",
    "gzip",
    "http-logger",
    "jwt-auth",
    "kafka-logger",
    "limit-conn",
    "limit-count",
    "limit-req",
    "mocking",
    "mtls-auth",
    "openfunction",
    "openid-connect",
    "openwhisk",
    "proxy-mirror",
    "proxy-rewrite",
    "referer-restriction",
    "request-id",
    "request-validation",
    "response-rewrite",
    "traffic-split",
    "ua-restriction",
    "uri-blocker",
];

fn document() -> (Json, Json) {
    let mut document: Json = serde_json::from_str(KONG).expect("the document is JSON");
    let given = document["given"].take();
    document.as_object_mut().unwrap().remove("given");
    (given, document)
}

/// The first member that the second lacks, or has with another value.
fn lacking(expected: &Json, told: &Json, path: &str) -> Option<String> {
    match expected {
        Json::Object(members) => members.iter().find_map(|(name, value)| {
            let path = format!("{path}.{name}");
            match told.get(name) {
                Some(told) => lacking(value, told, &path),
                None => Some(format!("{path} is missing")),
            }
        }),
        expected => (expected != told).then(|| format!("{path} is {told}, not {expected}")),
    }
}

#[test]
fn every_plugin_of_kong_is_taken_and_told_again() {
    let (_, mut document) = document();
    document["_format_version"] = "3.0".into();
    let gateway = Gateway::start(&document.to_string());
    let told = client(&gateway).list("/plugins", 1000);
    let told = |id: &Json| told.iter().find(|plugin| plugin["id"] == *id).expect("the plugin is there");
    let plugins = document["plugins"].as_array().unwrap();
    let faults =
        plugins.iter().filter_map(|plugin| lacking(plugin, told(&plugin["id"]), plugin["name"].as_str()?));
    assert_eq!(faults.collect::<Vec<_>>(), [""; 0]);
    let names = plugins.iter().map(|plugin| plugin["name"].as_str().unwrap()).chain(OTHERS);
    let enabled = client(&gateway).get("/plugins/enabled");
    let enabled = enabled["enabled_plugins"].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
    assert_eq!(names.collect::<BTreeSet<_>>(), enabled.collect());
}

#[test]
fn schemas_have_kongs_defaults() {
    let (given, document) = document();
    let gateway = Gateway::empty().start();
    let mut faults = Vec::new();
    for plugin in document["plugins"].as_array().unwrap() {
        let name = plugin["name"].as_str().unwrap();
        let bare =
            json!({ "id": plugin["id"], "name": name, "config": given.get(name).unwrap_or(&json!({})) });
        let filled =
            engine::with_defaults(client(&gateway), engine::read(&json!({ "plugins": [bare] }).to_string()));
        let filled = &filled["plugins"][plugin["id"].as_str().unwrap()];
        let mut expected = plugin["config"].clone();
        // Old names have no defaults of their own.
        let schema = client(&gateway).get(&format!("/schemas/plugins/{name}"));
        engine::leave_old_names_out(&mut expected, None, engine::field(&schema["fields"], "config").unwrap());
        faults.extend(lacking(&expected, &filled["config"], name));
        faults.extend(lacking(&plugin["protocols"], &filled["protocols"], name));
    }
    assert_eq!(faults, [""; 0]);
}

#[test]
fn a_sync_of_what_kong_tells_converges() {
    let (_, document) = document();
    let gateway = Gateway::empty().start();
    let target = engine::read(&document.to_string());
    assert_eq!(sync(client(&gateway), &target), target["plugins"].len());
    let filled = engine::dump(client(&gateway), &types(), 1000);
    assert_eq!(filled["plugins"].len(), target["plugins"].len());
}
