//! The schemas that the Admin API shows, in Kong's shape.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]
mod sample;

use serde_json::{Value as Json, json};
use weir_model::entity::{Plugin, Route, Service, Target, Upstream};
use weir_model::schema::{Choice, Record, RecordSchema, find_plugin};

/// One field of a schema.
fn field(schema: &Json, name: &str) -> Json {
    let fields = schema["fields"].as_array().unwrap();
    fields.iter().find_map(|field| field.get(name)).unwrap_or_else(|| panic!("no field {name}")).clone()
}

fn entity_field(schema: &RecordSchema, name: &str) -> Json {
    let mut field = field(&schema.to_json(), name);
    field.as_object_mut().unwrap().remove("description");
    field
}

#[test]
fn fields_say_type_default_and_rules() {
    let service = Service::SCHEMA;
    assert_eq!(
        entity_field(service, "retries"),
        json!({ "type": "integer", "required": true, "default": 5, "between": [0, 32767] })
    );
    assert_eq!(entity_field(service, "name"), json!({ "type": "string", "unique": true }));
    assert_eq!(
        entity_field(service, "client_certificate"),
        json!({ "type": "foreign", "reference": "certificates" })
    );
    assert_eq!(
        entity_field(service, "enabled"),
        json!({ "type": "boolean", "required": true, "default": true })
    );
    assert_eq!(entity_field(Target::SCHEMA, "weight")["default"], json!(100));
}

#[test]
fn lists_and_maps_describe_their_elements() {
    let protocols = entity_field(Plugin::SCHEMA, "protocols");
    assert_eq!(protocols["type"], "set");
    assert_eq!(protocols["default"], json!(["grpc", "grpcs", "http", "https"]));
    assert_eq!(protocols["elements"]["one_of"].as_array().unwrap().len(), 8);
    let headers = entity_field(Route::SCHEMA, "headers");
    assert_eq!(headers["type"], "map");
    assert_eq!(headers["values"], json!({ "type": "array", "elements": { "type": "string" } }));
    let sources = entity_field(Route::SCHEMA, "sources");
    assert_eq!(sources["elements"]["type"], "record");
}

#[test]
fn nested_records_are_required_and_hold_their_defaults() {
    let healthchecks = entity_field(Upstream::SCHEMA, "healthchecks");
    assert_eq!((&healthchecks["type"], &healthchecks["required"]), (&json!("record"), &json!(true)));
    let healthy = field(&field(&healthchecks, "active"), "healthy");
    assert_eq!(field(&healthy, "http_statuses")["default"], json!([200, 302]));
    assert_eq!(field(&healthy, "http_statuses")["elements"]["between"], json!([100, 999]));
    assert_eq!(field(&field(&healthchecks, "active"), "type")["default"], "http");
}

#[test]
fn a_plugin_schema_wraps_its_config() {
    let limits = find_plugin(sample::PLUGINS, "rate-limiting").unwrap().to_json();
    let config = field(&limits, "config");
    assert_eq!((&config["type"], &config["required"]), (&json!("record"), &json!(true)));
    assert_eq!(field(&config, "second")["gt"], json!(0));
    let password = field(&field(&config, "redis"), "password");
    assert_eq!((&password["encrypted"], &password["len_min"]), (&json!(true), &json!(3)));
    field(&limits, "consumer");
    let keys = find_plugin(sample::PLUGINS, "key-auth").unwrap().to_json();
    assert!(keys["fields"].as_array().unwrap().iter().all(|field| field.get("consumer").is_none()));
}

#[test]
fn checked_configurations_hold_every_field() {
    let limits = find_plugin(sample::PLUGINS, "rate-limiting").unwrap();
    let config = limits.check(&json!({ "minute": 5 })).unwrap();
    assert_eq!(
        config,
        json!({
            "second": null, "minute": 5, "limit_by": "consumer", "policy": "local", "error_code": 429,
            "fault_tolerant": true, "redis": { "host": null, "port": 6379, "password": null },
        })
    );
    let violations = limits.check(&json!({ "minute": 0, "redis": { "port": "x" } })).unwrap_err();
    let paths: Vec<_> = violations.iter().map(|violation| violation.path.as_str()).collect();
    assert_eq!(paths, ["minute", "redis.port"]);
    assert_eq!(limits.check(&config).unwrap(), config);
}

#[test]
fn secrets_do_not_show_in_debug() {
    let config = json!({ "minute": 1, "redis": { "password": "hunter2" } });
    let limits = sample::RateLimiting::from_value(&config).unwrap();
    assert!(!format!("{limits:?}").contains("hunter2"));
    assert_eq!(limits.redis.password.unwrap().expose(), "hunter2");
}

#[test]
fn the_names_of_a_choice_lead_back_to_it() {
    for algorithm in weir_model::entity::Algorithm::ALL {
        assert_eq!(weir_model::entity::Algorithm::from_name(algorithm.as_str()), Some(*algorithm));
    }
    assert_eq!(weir_model::entity::Algorithm::from_name("round_robin"), None);
}
