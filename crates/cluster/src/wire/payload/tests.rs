//! The cases of `written.json` and `read.json`; that what is written is read as the same; and hashes of what is written.
use super::*;
use crate::wire::compat::{KongVersion, Rules, check_routes};
use crate::wire::hash::{ConfigHash, Hasher, Hashes};
use crate::wire::sample::{PLUGINS, cases, document};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use weir_model::entity::EntityKind;
use weir_model::kong_schema::has_kind;
use weir_model::{Document, Format, declarative};

const NOW: i64 = 1_700_000_100;

#[derive(Deserialize)]
struct WriteCase {
    name: String,
    version: Option<KongVersion>,
    file: String,
    config_table: Option<Map<String, Value>>,
    #[serde(default)]
    members: Map<String, Value>,
    withheld: Vec<String>,
}

fn written(table: &ConfigTable<'_>, rules: &Rules) -> Value {
    serde_json::to_value(table.for_version(rules)).unwrap()
}

fn current() -> Rules {
    Rules::of(KongVersion::CURRENT)
}

#[test]
fn documents_are_written_as_by_kong() {
    for case in cases::<WriteCase>(include_str!("written.json")) {
        let (name, document) = (&case.name, document(&case.file));
        let table = ConfigTable::new(&document, PLUGINS);
        let rules = Rules::of(case.version.unwrap_or(KongVersion::CURRENT));
        let mut value = written(&table, &rules);
        let header = value.as_object_mut().unwrap();
        let workspaces = header.remove("workspaces").unwrap();
        assert_eq!(workspaces[0]["id"], WORKSPACE_ID, "{name}");
        assert_eq!(
            (&header["_format_version"], &header["_transform"]),
            (&json!("3.0"), &json!(false)),
            "{name}"
        );
        header.retain(|name, _| !name.starts_with('_'));
        for (path, expected) in &case.members {
            assert_eq!(value.pointer(path), Some(expected), "{name}: {path}");
        }
        if let Some(expected) = case.config_table {
            assert_eq!(value, Value::Object(expected), "{name}");
        }
        let withheld = table.withheld(&rules).into_iter().map(|it| {
            let field = it.field.map(|field| format!("{field}: ")).unwrap_or_default();
            format!("{}: {field}{}", it.entity, it.reason)
        });
        let (mut withheld, mut expected): (Vec<_>, _) = (withheld.collect(), case.withheld);
        withheld.sort();
        expected.sort();
        assert_eq!(withheld, expected, "{name}");
    }
}

#[derive(Deserialize)]
struct ReadCase {
    name: String,
    config_table: Value,
    file: Option<String>,
    #[serde(default)]
    refusals: Vec<(String, String)>,
}

#[test]
fn tables_of_kong_are_read() {
    for case in cases::<ReadCase>(include_str!("read.json")) {
        let name = &case.name;
        let text = case.config_table.to_string();
        let read = read(declarative::parse(&text, Format::Json).unwrap(), PLUGINS, NOW);
        match case.file {
            Some(file) => assert_eq!(read.unwrap().document, document(&file), "{name}"),
            None => {
                let mut refusals: Vec<_> = read
                    .unwrap_err()
                    .into_iter()
                    .map(|it| (it.entity, it.field.unwrap_or_default()))
                    .collect();
                let mut expected = case.refusals;
                refusals.sort();
                expected.sort();
                assert_eq!(refusals, expected, "{name}");
            }
        }
    }
}

#[test]
fn what_is_written_is_read_as_the_same() {
    for case in cases::<WriteCase>(include_str!("written.json")) {
        if case.withheld.is_empty() && case.config_table.is_some_and(|table| !table.is_empty()) {
            let document = document(&case.file);
            let text = written(&ConfigTable::new(&document, PLUGINS), &current()).to_string();
            let root = declarative::parse(&text, Format::Json).unwrap();
            assert_eq!(read(root, PLUGINS, 1_700_000_001).unwrap().document, document, "{}", case.name);
        }
    }
}

/// The hashes of what is written, by the text alone.
fn hashes_of(table: &Value) -> (ConfigHash, [ConfigHash; 5]) {
    let of = |value: &Value| {
        let mut hasher = Hasher::default();
        hasher.value(value);
        hasher.finish()
    };
    let parts = Hashes::PARTS.map(|part| table.get(part).map_or(ConfigHash::EMPTY, of));
    let mut rest = table.as_object().unwrap().clone();
    rest.retain(|name, _| !Hashes::PARTS.contains(&name.as_str()));
    (Hashes::of_parts(parts, of(&Value::Object(rest))).config, parts)
}

#[test]
fn hashes_are_those_of_what_is_written() {
    for case in cases::<WriteCase>(include_str!("written.json")) {
        let document = document(&case.file);
        let table = ConfigTable::new(&document, PLUGINS);
        let hashes = table.hashes(None);
        assert_eq!((hashes.config, hashes.parts()), hashes_of(&written(&table, &current())), "{}", case.name);
        assert_eq!(table.hashes(Some((&table, &hashes))), hashes, "{}", case.name);
    }
}

#[test]
fn only_what_changed_is_hashed_again() {
    let before = document(
        "_format_version: '3.0'\nservices: [{name: a, host: h, routes: [{name: r, paths: [/]}]}]\nconsumers: [{username: ann}]\n",
    );
    let mut after = before.clone();
    let mut service = (*after.services[0]).clone();
    service.retries = 7;
    after.services[0] = Arc::new(service);
    let hashes = ConfigTable::new(&before, PLUGINS).hashes(None);
    let known = ConfigTable::new(&before, PLUGINS);
    let changed = ConfigTable::new(&after, PLUGINS).hashes(Some((&known, &hashes)));
    assert_eq!(changed, ConfigTable::new(&after, PLUGINS).hashes(None));
    assert_ne!(changed.config, hashes.config);
    assert_ne!(changed.services, hashes.services);
    assert_eq!((changed.routes, changed.rest()), (hashes.routes, hashes.rest()));
}

#[test]
fn what_holds_no_entity_of_kong_is_empty() {
    let with_group = document("_format_version: '3.0'\nconsumer_groups: [{name: gold}]\n");
    assert!(ConfigTable::new(&with_group, PLUGINS).is_empty());
    assert!(ConfigTable::new(&Document::default(), PLUGINS).configured_plugins().is_empty());
    let with_consumer = document("_format_version: '3.0'\nconsumers: [{username: ann}]\n");
    assert!(!ConfigTable::new(&with_consumer, PLUGINS).is_empty());
}

#[test]
fn routes_with_expressions_are_for_routers_that_take_them() {
    let file = "_format_version: '3.0'\nroutes:\n- {name: e, expression: 'http.path == \"/e\"', service: s, plugins: [{name: key-auth}]}\n- {name: p, paths: [/p], service: s}\nservices: [{name: s, host: h}]\n";
    let document = document(file);
    let table = ConfigTable::new(&document, PLUGINS);
    let all = written(&table, &current());
    assert_eq!(all["routes"].as_array().unwrap().len(), 2);
    let (older, newer) = (KongVersion::parse("3.6.1").unwrap(), KongVersion::parse("3.7.0").unwrap());
    assert!(check_routes(&table, older).is_err() && check_routes(&table, newer).is_ok());
    let table = table.without_expressions();
    let rest = written(&table, &current());
    assert_eq!((rest["routes"][0]["name"].as_str(), rest.get("plugins")), (Some("p"), None));
    assert!(check_routes(&table, older).is_ok());
    assert_eq!(table.withheld(&current())[0].entity, "route `e`");
}

/// Without its condition a route would match more, and without the route its plugins would run for all.
#[test]
fn routes_with_vars_are_withheld_with_their_plugins() {
    let file = "_format_version: '3.0'\nservices: [{name: s, host: h}]\nroutes:\n- {name: v, paths: [/], vars: [[arg_a, '==', b]], service: s, plugins: [{name: key-auth}]}\n- {name: p, paths: [/p], service: s}\n";
    let document = document(file);
    let table = ConfigTable::new(&document, PLUGINS);
    let sent = written(&table, &current());
    let routes: Vec<_> =
        sent["routes"].as_array().unwrap().iter().map(|route| route["name"].as_str().unwrap()).collect();
    assert_eq!((routes, sent.get("plugins")), (vec!["p"], None));
    assert_eq!((table.hashes(None).config, table.hashes(None).parts()), hashes_of(&sent));
    let withheld = table.withheld(&current());
    assert_eq!((withheld.len(), &*withheld[0].entity, &withheld[0].field), (2, "route `v`", &None));
    assert!(withheld[0].reason.contains("`vars`"), "{}", withheld[0].reason);
    assert!(withheld[1].entity.starts_with("plugin `key-auth`"), "{}", withheld[1]);
    assert_eq!(withheld[1].reason, "its route is left out");
}

#[test]
fn rows_have_no_other_fields_than_those_of_kong() {
    let fields = include_str!("../../../../gateway/tests/hybrid/kong/fields.json");
    let fields: Map<String, Value> = serde_json::from_str(fields).unwrap();
    let kinds = EntityKind::BUILT_IN.iter().filter(|kind| has_kind(**kind, PLUGINS));
    let mut count = 0;
    for kind in kinds {
        let of_kong = fields[kind.as_str()].as_array().unwrap();
        for field in kind.schema().fields.iter().filter(|field| !field.extension) {
            let is_special = matches!(field.name, "expression" | "priority" | "consumer_group");
            assert!(is_special || of_kong.contains(&field.name.into()), "{}.{}", kind.as_str(), field.name);
            count += 1;
        }
    }
    assert!(count > 100);
}
