//! What decK asks of a gateway, and that its commands come to an end: a second `sync` finds nothing to do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod client;
mod engine;
mod kong;

use crate::harness::Gateway;
use client::{Client, Types};
use engine::{COLLECTIONS, State, apply, difference, dump, read, with_defaults, without_old_names};
use serde::Deserialize;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use weir_model::EntityKinds;
use weir_model::entity::EntityKind;
use weir_plugins::PLUGINS;

const DOCUMENT: &str = include_str!("document.json");
const UPDATE: &str = include_str!("update.json");

fn types() -> Types {
    toml::from_str(include_str!("types.toml")).expect("types are TOML")
}

fn client(gateway: &Gateway) -> Client {
    Client(gateway.admin_addresses()[0])
}

/// Writes what is needed to get there, then sees that there is nothing left to do.
#[track_caller]
fn sync(client: Client, target: &State) -> usize {
    let target = with_defaults(client, target.clone());
    let current = || without_old_names(client, dump(client, &types(), 1000), &target);
    let steps = difference(&current(), &target);
    let count = steps.len();
    apply(client, &types(), steps);
    let left = difference(&current(), &target);
    assert!(left.is_empty(), "a second diff finds {left:?}");
    count
}

/// Without the seconds that are left, which one answer after the other counts down.
fn without_ttl(mut state: State) -> State {
    let entities = state.values_mut().flat_map(|entities| entities.values_mut());
    entities.for_each(|entity| drop(entity.as_object_mut().unwrap().remove("ttl")));
    state
}

fn count(state: &State) -> usize {
    state.values().map(|entities| entities.len()).sum()
}

#[test]
fn the_document_has_every_kind_and_every_plugin() {
    let document = read(DOCUMENT);
    let plugins: Vec<_> = PLUGINS.iter().map(|plugin| plugin.schema).collect();
    // Kong knows nothing of APISIX's.
    let kinds = EntityKinds::of(&plugins);
    let is_kongs =
        |kind: &EntityKind| *kind != EntityKind::ApisixObjects && kind.as_str() != "jwt_auth_credentials";
    let kinds = kinds.iter().filter(is_kongs);
    let kinds: BTreeSet<_> = kinds.map(EntityKind::as_str).collect();
    let written = document.iter().filter(|(_, entities)| !entities.is_empty()).map(|(name, _)| *name);
    assert_eq!(written.collect::<BTreeSet<_>>(), kinds);
    let gateway = Gateway::empty().start();
    let enabled = client(&gateway).get("/plugins/enabled");
    let enabled: BTreeSet<_> = enabled["enabled_plugins"].as_array().unwrap().iter().map(name).collect();
    assert_eq!(
        document["plugins"].values().map(|plugin| name(&plugin["name"])).collect::<BTreeSet<_>>(),
        enabled
    );
}

fn name(value: &Json) -> String {
    value.as_str().expect("a name is a string").to_owned()
}

#[test]
fn ping_and_the_collections_there_are_not() {
    let gateway = Gateway::empty().start();
    let client = client(&gateway);
    let root = client.get("/");
    let version = root["version"].as_str().expect("the version is a string");
    let numbers: Vec<_> = version.split('.').take(2).map(|number| number.parse::<u32>().unwrap()).collect();
    assert!(numbers.as_slice() >= &[3, 0], "{version}");
    assert!(!version.contains("enterprise"));
    let absent = ["partials", "mtls-auths"];
    for path in absent.iter().chain(&["filter-chains", "custom-plugins", "cloned-plugins", "licenses"]) {
        assert_eq!(client.call("GET", &format!("/{path}?size=1000"), None).0, 404, "{path}");
    }
}

#[test]
fn sync_converges_with_ten_writers_and_reset_leaves_nothing() {
    let gateway = Gateway::empty().start();
    let client = client(&gateway);
    let mut target = read(DOCUMENT);
    assert_eq!(sync(client, &target), count(&target));
    assert_eq!(
        without_ttl(dump(client, &types(), 2)),
        without_ttl(dump(client, &types(), 1000)),
        "pages hold what the whole list holds"
    );
    let update = read(UPDATE);
    let changed = count(&update);
    for (name, entities) in update {
        target.get_mut(name).unwrap().extend(entities);
    }
    assert_eq!(sync(client, &target), changed);
    let nothing: State = COLLECTIONS.iter().map(|collection| (collection.name, Default::default())).collect();
    assert_eq!(sync(client, &nothing), count(&target));
    assert_eq!(count(&dump(client, &types(), 1000)), 0);
}

#[test]
fn entities_are_selected_by_tags() {
    let gateway = Gateway::empty().start();
    let client = client(&gateway);
    sync(client, &read(DOCUMENT));
    for collection in COLLECTIONS.iter().filter(|collection| !collection.list_path().contains('{')) {
        let path = collection.list_path();
        let tagged = |tags: &str| client.get(&format!("{path}?size=1000&tags={tags}"))["data"].clone();
        for entity in tagged("deck").as_array().unwrap() {
            assert!(entity["tags"].as_array().unwrap().contains(&"deck".into()), "{path}: {entity}");
        }
    }
    let found =
        |query: &str| client.get(&format!("/consumers?tags={query}"))["data"].as_array().unwrap().len();
    assert_eq!([found("deck,people"), found("deck/people"), found("nobody")], [1, 1, 0]);
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Validations {
    case: Vec<Validation>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Validation {
    schema: String,
    body: Json,
    status: u16,
    field: Option<String>,
}

#[test]
fn entities_are_validated_without_being_written() {
    let gateway = Gateway::empty().start();
    let client = client(&gateway);
    let cases: Validations = toml::from_str(include_str!("validate.toml")).unwrap();
    for case in cases.case {
        let path = format!("/schemas/{}/validate", case.schema);
        let (status, answer) = client.call("POST", &path, Some(&case.body));
        assert_eq!(status, case.status, "{path} {}: {answer}", case.body);
        assert!(answer["message"].is_string(), "{answer}");
        if let Some(field) = case.field {
            assert!(!answer["fields"][&field].is_null(), "{path} {}: {answer}", case.body);
        }
    }
    assert_eq!(count(&dump(client, &types(), 1000)), 0);
}

/// What decK deletes may be gone already, and what it gets may not be there.
#[test]
fn deletions_can_be_repeated() {
    let gateway = Gateway::empty().start();
    let client = client(&gateway);
    let id = "00000000-0000-4000-8000-000000000001";
    for path in ["services", "routes", "consumers", "consumer_groups", "plugins", "upstreams", "certificates"]
    {
        assert_eq!(client.call("DELETE", &format!("/{path}/{id}"), None).0, 204, "{path}");
        let (status, answer) = client.call("GET", &format!("/{path}/{id}"), None);
        assert_eq!((status, &answer["message"]), (404, &"Not found".into()), "{path}");
    }
}
