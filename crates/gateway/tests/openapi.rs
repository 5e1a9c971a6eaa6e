//! `/openapi.json`: sound in itself, and true of what the Admin API answers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::Gateway;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

const SAMPLE: &str = r#"
_format_version: "3.0"
services:
- { name: orders, url: "http://orders.test", tags: [shop], routes: [{ name: orders, paths: [/orders] }] }
consumers:
- username: alice
  keyauth_credentials: [{ key: alice-key }]
  basicauth_credentials: [{ username: alice, password: alice-password }]
  acls: [{ group: staff }]
  groups: [{ name: gold }]
consumer_groups:
- { name: gold, plugins: [{ name: rate-limiting, config: { minute: 9 } }] }
upstreams:
- { name: orders.test, targets: [{ target: "10.0.0.1:80" }] }
plugins:
- { name: rate-limiting, config: { minute: 5 } }
"#;

const VERBS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

fn document(gateway: &Gateway) -> Value {
    let answer = gateway.admin("/openapi.json");
    assert_eq!(answer.status, 200);
    answer.json()
}

fn operations(document: &Value) -> Vec<(&str, &str, &Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    paths
        .flat_map(|(path, item)| {
            VERBS.iter().filter_map(move |verb| Some((path.as_str(), *verb, item.get(*verb)?)))
        })
        .collect()
}

fn references<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str));
            members.values().for_each(|member| references(member, found));
        }
        Value::Array(elements) => elements.iter().for_each(|element| references(element, found)),
        _ => {}
    }
}

#[test]
fn the_document_is_sound() {
    let gateway = Gateway::start(SAMPLE);
    let document = document(&gateway);
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1."));
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(!found.is_empty());
    for reference in found {
        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
    }
    let mut ids = BTreeSet::new();
    for (path, verb, operation) in operations(&document) {
        assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{path} {verb}: {operation}");
        assert!(operation["responses"].as_object().is_some_and(|responses| !responses.is_empty()));
        let declared = document["paths"][path].get("parameters").cloned().unwrap_or(json!([]));
        let declared: BTreeSet<_> =
            declared.as_array().unwrap().iter().map(|p| p["name"].to_string()).collect();
        let named: BTreeSet<_> =
            path.split('{').skip(1).map(|rest| format!("{:?}", rest.split('}').next().unwrap())).collect();
        assert_eq!(declared, named, "{path}");
    }
}

#[test]
fn every_path_is_there_and_is_listed() {
    let gateway = Gateway::start(SAMPLE);
    let document = document(&gateway);
    let described: BTreeSet<_> = document["paths"].as_object().unwrap().keys().cloned().collect();
    let listed = gateway.admin("/endpoints").json();
    let listed: BTreeSet<_> =
        listed["data"].as_array().unwrap().iter().map(|p| p.as_str().unwrap().to_owned()).collect();
    assert_eq!(described, listed);
}

#[test]
fn answers_are_as_described() {
    let gateway = Gateway::start(SAMPLE);
    let document = document(&gateway);
    let mut checked = 0;
    for (path, _, operation) in operations(&document).into_iter().filter(|(_, verb, _)| *verb == "get") {
        let Some(schema) = operation.pointer("/responses/200/content/application~1json/schema") else {
            continue;
        };
        let asked = path
            .replace("{services}", "orders")
            .replace("{routes}", "orders")
            .replace("{consumers}", "alice")
            .replace("{upstreams}", "orders.test")
            .replace("{targets}", "10.0.0.1:80")
            .replace("{keyauth_credentials}", "alice-key")
            .replace("{basicauth_credentials}", "alice")
            .replace("{acls}", "staff")
            .replace("{consumer_groups}", "gold")
            .replace("{entity}", "services")
            .replace("{tag}", "shop");
        if asked.contains('{') {
            continue;
        }
        let answer = gateway.admin(&asked);
        let described = operation["responses"].get(answer.status.to_string());
        assert!(described.is_some(), "{asked}: {} is not described: {}", answer.status, answer.text());
        if answer.status == 200 {
            checked += 1;
            if let Err(fault) = valid(&answer.json(), schema, &document) {
                panic!("{asked}: {fault}\n{}", answer.text());
            }
        }
    }
    assert!(checked > 30, "{checked} answers were looked at");
}

/// Whether a value is as the part of JSON Schema says that the document uses.
fn valid(value: &Value, schema: &Value, document: &Value) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        return valid(value, document.pointer(reference.trim_start_matches('#')).unwrap(), document);
    }
    let types = match &schema["type"] {
        Value::String(name) => vec![name.as_str()],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !types.is_empty() && !types.iter().any(|name| is_of(value, name)) {
        return Err(format!("{value} is none of {types:?}"));
    }
    if schema["enum"].as_array().is_some_and(|allowed| !allowed.contains(value)) {
        return Err(format!("{value} is not one of {}", schema["enum"]));
    }
    let number = value.as_f64();
    let beyond = |bound: &str, wrong: fn(f64, f64) -> bool| {
        number.zip(schema[bound].as_f64()).is_some_and(|(value, bound)| wrong(value, bound))
    };
    if beyond("minimum", |v, b| v < b)
        || beyond("maximum", |v, b| v > b)
        || beyond("exclusiveMinimum", |v, b| v <= b)
    {
        return Err(format!("{value} is out of bounds of {schema}"));
    }
    members(value.as_object(), schema, document)?;
    let mut elements = value.as_array().into_iter().flatten();
    elements.try_for_each(|element| valid(element, &schema["items"], document))
}

fn is_of(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("no such type: {other}"),
    }
}

fn members(members: Option<&Map<String, Value>>, schema: &Value, document: &Value) -> Result<(), String> {
    let Some(members) = members else { return Ok(()) };
    for name in schema["required"].as_array().into_iter().flatten() {
        if !members.contains_key(name.as_str().unwrap()) {
            return Err(format!("{name} is missing"));
        }
    }
    for (name, member) in members {
        match schema["properties"].get(name) {
            Some(property) => {
                valid(member, property, document).map_err(|fault| format!("{name}: {fault}"))?
            }
            None if schema.get("additionalProperties").is_some() => {
                valid(member, &schema["additionalProperties"], document)?;
            }
            None if schema["properties"].is_object()
                && schema["required"].as_array().is_some_and(|r| r.len() > 5) =>
            {
                return Err(format!("{name} is not described"));
            }
            None => {}
        }
    }
    Ok(())
}
