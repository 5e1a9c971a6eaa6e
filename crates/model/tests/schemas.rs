//! The schemas that the Admin API shows, in Kong's shape.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use crate::sample::entities::KeyAuthCredential;
use serde_json::{Value as Json, json};
use weir_model::PluginSchema;
use weir_model::entity::{Plugin, Route, Service, Target, Upstream};
use weir_model::schema::{Choice, Direction, Record, RecordSchema};
use weir_model::{Streams, find_plugin};

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
        json!({ "type": "integer", "default": 5, "between": [0, 32767] })
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
fn what_fills_itself_in_is_not_required() {
    let id = entity_field(Service::SCHEMA, "id");
    assert_eq!(id, json!({ "type": "string", "uuid": true, "auto": true }));
    let key = entity_field(KeyAuthCredential::SCHEMA, "key");
    assert_eq!((&key["auto"], key.get("required")), (&json!(true), None));
}

#[test]
fn the_bounds_of_a_number_are_told_once() {
    assert_eq!(entity_field(Service::SCHEMA, "port")["between"], json!([0, 65535]));
    let status = entity_field(Route::SCHEMA, "https_redirect_status_code");
    assert_eq!((status.get("between"), &status["one_of"][0]), (None, &json!(426)));
    assert_eq!(entity_field(Route::SCHEMA, "regex_priority").get("between"), None);
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
fn a_plugin_schema_lists_the_protocols_it_runs_for() {
    let protocols =
        |schema: PluginSchema| field(&schema.to_json(), "protocols")["elements"]["one_of"].clone();
    let plugin = *find_plugin(crate::sample::PLUGINS, "rate-limiting").unwrap();
    assert_eq!(protocols(plugin), json!(["grpc", "grpcs", "http", "https"]));
    let of_streams = protocols(plugin.with_streams(Streams::IfNamed));
    assert_eq!(of_streams.as_array().unwrap().len(), 8);
    assert_eq!(protocols(plugin.with_streams(Streams::Accepted)), of_streams);
}

#[test]
fn a_plugin_schema_wraps_its_config() {
    let limits = find_plugin(crate::sample::PLUGINS, "rate-limiting").unwrap().to_json();
    let config = field(&limits, "config");
    assert_eq!((&config["type"], &config["required"]), (&json!("record"), &json!(true)));
    assert_eq!(field(&config, "second")["gt"], json!(0));
    let password = field(&field(&config, "redis"), "password");
    assert_eq!((&password["encrypted"], &password["len_min"]), (&json!(true), &json!(3)));
    let old = json!({
        "type": "integer", "translate_backwards": ["redis", "port"],
        "deprecation": { "replaced_with": [{ "path": ["redis", "port"] }] },
    });
    assert_eq!(config["shorthand_fields"][1]["redis_port"], old);
    field(&limits, "consumer");
    let keys = find_plugin(crate::sample::PLUGINS, "key-auth").unwrap().to_json();
    assert_eq!(field(&keys, "consumer").get("eq"), Some(&Json::Null));
    assert_eq!(field(&limits, "consumer").get("eq"), None);
}

#[test]
fn checked_configurations_hold_every_field() {
    let limits = find_plugin(crate::sample::PLUGINS, "rate-limiting").unwrap();
    let config = limits.check(&json!({ "minute": 5 })).unwrap();
    assert_eq!(
        config,
        json!({
            "second": null, "minute": 5, "limit_by": "consumer", "policy": "local", "error_code": 429,
            "fault_tolerant": true, "redis": { "host": null, "port": 6379, "password": null },
            "redis_host": null, "redis_port": 6379,
        })
    );
    let violations = limits.check(&json!({ "minute": 0, "redis": { "port": "x" } })).unwrap_err();
    let paths: Vec<_> = violations.iter().map(|violation| violation.path.as_str()).collect();
    assert_eq!(paths, ["minute", "redis.port"]);
    assert_eq!(limits.check(&config).unwrap(), config);
    let differing =
        limits.check(&json!({ "minute": 5, "redis_port": 2, "redis": { "port": 1 } })).unwrap_err();
    assert_eq!(differing.len(), 1);
    assert_eq!(differing[0].path, "redis_port");
    assert!(differing[0].message.contains("leave out `redis_port`"), "{}", differing[0].message);
    let same =
        json!({ "minute": 5, "redis_port": 2, "redis_host": null, "redis": { "port": 2.0, "host": "h" } });
    let same = limits.check(&same).unwrap();
    assert_eq!((&same["redis_host"], &same["redis"]["port"]), (&json!("h"), &json!(2)));
}

#[test]
fn secrets_do_not_show_in_debug() {
    let config = json!({ "minute": 1, "redis": { "password": "hunter2" } });
    let limits = crate::sample::RateLimiting::from_value(&config).unwrap();
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

/// A property of a record's JSON Schema, without what it is for.
fn property(record: &RecordSchema, side: Direction, name: &str) -> Json {
    let mut property = record.to_json_schema(side)["properties"][name].clone();
    property.as_object_mut().unwrap().remove("description");
    property
}

#[test]
fn json_schema_says_what_may_be_written() {
    let written = |name| property(Service::SCHEMA, Direction::Request, name);
    assert_eq!(written("host"), json!({ "type": "string", "minLength": 1 }));
    assert_eq!(
        written("retries"),
        json!({ "type": ["integer", "null"], "minimum": 0, "maximum": 32767, "default": 5 })
    );
    let protocol = written("protocol");
    assert_eq!((&protocol["default"], &protocol["enum"][8]), (&json!("http"), &Json::Null));
    assert_eq!(Service::SCHEMA.to_json_schema(Direction::Request)["required"], json!(["host"]));
    let limits = crate::sample::RateLimiting::SCHEMA;
    assert_eq!(property(limits, Direction::Request, "second")["exclusiveMinimum"], json!(0));
}

#[test]
fn json_schema_says_what_is_answered() {
    let schema = Route::SCHEMA.to_json_schema(Direction::Response);
    assert_eq!(
        schema["required"].as_array().unwrap().len(),
        Route::SCHEMA.fields.iter().filter(|field| !field.extension).count()
    );
    assert_eq!(
        property(Route::SCHEMA, Direction::Response, "strip_path"),
        json!({ "type": "boolean", "default": true })
    );
    let service = property(Route::SCHEMA, Direction::Response, "service");
    assert_eq!((&service["type"], &service["required"]), (&json!(["object", "null"]), &json!(["id"])));
    let headers = property(Route::SCHEMA, Direction::Response, "headers");
    assert_eq!(
        headers["additionalProperties"],
        json!({ "type": "array", "items": { "type": "string", "minLength": 1 } })
    );
}
