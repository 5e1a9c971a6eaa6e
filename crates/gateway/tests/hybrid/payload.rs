//! Configurations with every plugin of Kong, from its control plane and back to its data planes.
use serde_json::{Value, json};
use weir_cluster::wire::compat::{KongVersion, Rules};
use weir_cluster::wire::payload::{ConfigTable, read};
use weir_model::{Document, Format, PluginSchema, declarative};

/// Plugins as Kong 3.9 tells of them, with every field.
const KONG: &str = include_str!("../deck/kong-3.9.json");

fn plugins() -> Vec<PluginSchema> {
    [weir_plugins::PLUGINS, weir_guests::PLUGINS].concat().iter().map(|plugin| plugin.schema).collect()
}

/// What a control plane of Kong sends.
fn sent_by_kong() -> Value {
    let mut table: Value = serde_json::from_str(KONG).expect("the document is JSON");
    table.as_object_mut().unwrap().remove("given");
    table["_format_version"] = "3.0".into();
    table["_transform"] = false.into();
    table
}

fn document(table: &Value, plugins: &[PluginSchema]) -> Document {
    let text = table.to_string();
    let read = read(declarative::parse(&text, Format::Json).unwrap(), plugins, 0);
    read.unwrap_or_else(|refusals| panic!("{refusals:#?}")).document
}

/// Where a row differs from what Kong wrote: a data plane refuses what it does not know.
fn differences(ours: &Value, kong: &Value, path: &str, found: &mut Vec<String>) {
    let (Value::Object(ours), Value::Object(kong)) = (ours, kong) else {
        found.extend((ours != kong).then(|| format!("{path} is {ours}, not {kong}")));
        return;
    };
    for (name, value) in ours {
        let path = format!("{path}.{name}");
        match kong.get(name) {
            Some(of_kong) => differences(value, of_kong, &path, found),
            None => found.push(format!("{path} is unknown to Kong")),
        }
    }
    // The fields of Redis once had other names, under which Kong still tells them.
    let missing = kong.iter().filter(|(name, value)| !ours.contains_key(*name) && !value.is_null());
    let missing = missing.filter(|(name, _)| !name.starts_with("redis_"));
    found.extend(missing.map(|(name, value)| format!("{path}.{name} is missing: {value}")));
}

#[test]
fn every_plugin_of_kong_comes_back_as_it_was_sent() {
    let (plugins, table) = (plugins(), sent_by_kong());
    let document = document(&table, &plugins);
    let rows = ConfigTable::new(&document, &plugins);
    let rules = Rules::of(KongVersion::CURRENT);
    assert_eq!(rows.withheld(&rules), []);
    let written = serde_json::to_value(rows.for_version(&rules)).unwrap();
    let mut found = Vec::new();
    let (ours, kong) = (written["plugins"].as_array().unwrap(), table["plugins"].as_array().unwrap());
    assert_eq!(ours.len(), kong.len());
    for (ours, kong) in ours.iter().zip(kong) {
        differences(ours, kong, kong["name"].as_str().unwrap(), &mut found);
    }
    assert_eq!(found, [""; 0]);
}

#[test]
fn every_plugin_of_kong_is_sent_to_every_older_version() {
    let (plugins, table) = (plugins(), sent_by_kong());
    let document = document(&table, &plugins);
    let rows = ConfigTable::new(&document, &plugins);
    let written = |version: &str| {
        let rules = Rules::of(KongVersion::parse(version).unwrap());
        serde_json::to_value(rows.for_version(&rules)).unwrap()
    };
    let config = |table: &Value, name: &str| {
        let rows = table["plugins"].as_array().unwrap().iter();
        rows.clone().find(|row| row["name"] == name).map(|row| row["config"].clone()).unwrap()
    };
    let limits = config(&written("3.5.0"), "rate-limiting");
    assert_eq!((limits.get("redis"), limits["redis_port"].clone()), (None, json!(6379)));
    assert!(config(&written("3.6.0"), "rate-limiting").get("redis").is_some());
    let tracing = config(&written("3.2.0"), "opentelemetry");
    assert_eq!((tracing.get("queue"), tracing["batch_flush_delay"].is_number()), (None, true));
    assert!(config(&written("3.7.0"), "prometheus").get("ai_metrics").is_none());
    assert!(config(&written("3.8.0"), "prometheus").get("ai_metrics").is_some());
}
