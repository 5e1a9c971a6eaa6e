//! Translations, as cases: what is written, what others there are, and what must follow.
use super::*;
use crate::plugins;
use std::collections::HashMap;
use std::sync::Arc;
use weir_model::entity::Route;
use weir_router::{Query, Router, Scheme};

/// Objects by key.
struct Others(HashMap<String, Json>);

impl Objects for Others {
    fn value(&self, key: &Key) -> Option<&Json> {
        self.0.get(&key.to_string())
    }
}

fn bundled() -> Vec<PluginSchema> {
    plugins::bundled()
}

fn key(text: &str) -> Key {
    let (kind, id) = text.split_once('/').unwrap();
    Key::below(Kind::from_name(kind).unwrap(), id).unwrap()
}

fn translated(case: &Json) -> Result<Translated, Invalid> {
    let others = case["others"].as_object().into_iter().flatten();
    let others = Others(others.map(|(key, value)| (key.clone(), value.clone())).collect());
    translate(&key(case["object"].as_str().unwrap()), &case["written"], &others, &bundled())
}

/// Whether the actual value has all that is expected.
fn has(actual: &Json, expected: &Json) -> bool {
    match expected {
        Json::Object(members) => members.iter().all(|(name, member)| has(&actual[name], member)),
        other => actual == other,
    }
}

fn check(name: &str, case: &Json) {
    let translated = match (translated(case), case["error"].as_str()) {
        (Ok(translated), None) => translated,
        (Err(Invalid(message)), Some(part)) => return assert!(message.contains(part), "{name}: {message}"),
        (Ok(_), Some(_)) => panic!("{name}: it was translated"),
        (Err(Invalid(message)), None) => panic!("{name}: {message}"),
    };
    assert!(has(&translated.value, &case["written"]), "{name}: what was written is kept");
    assert!(
        has(&translated.value, &case["value"]) || case["value"].is_null(),
        "{name}: {}",
        translated.value
    );
    let mut found: HashMap<&str, Vec<Json>> = HashMap::new();
    for entity in &translated.entities {
        assert_eq!(entity.tags(), [key(case["object"].as_str().unwrap()).tag()], "{name}");
        found.entry(entity.kind().as_str()).or_default().push(entity.to_value());
    }
    let expected = case["entities"].as_object().unwrap();
    assert_eq!(found.len(), expected.len(), "{name}: {found:?}");
    for (kind, expected) in expected {
        let (found, expected) = (&found[kind.as_str()], expected.as_array().unwrap());
        assert_eq!(found.len(), expected.len(), "{name}: {found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(has(found, expected), "{name}: {found} is not {expected}");
        }
    }
}

#[test]
fn cases() {
    let cases: Vec<Json> = serde_json::from_str(include_str!("cases.json")).unwrap();
    assert!(cases.len() > 40);
    cases.iter().for_each(|case| check(case["case"].as_str().unwrap(), case));
}

/// Which of APISIX's routes a request meets.
fn winner(routes: &[(String, Arc<Route>)], request: &str) -> Option<String> {
    let all: Vec<&Route> = routes.iter().map(|(_, route)| &**route).collect();
    let router = Router::build(&all).unwrap();
    let parts: Vec<_> = request.split(' ').collect();
    let [method, host, path] = parts[..] else { panic!("{request}") };
    let query = Query {
        method,
        host,
        path,
        scheme: Scheme::Http,
        sni: None,
        query: "",
        source: ([192, 0, 2, 1], 40_000).into(),
        destination: [192, 0, 2, 2].into(),
        dst_port: 9080,
        header: &|_, _| false,
    };
    router.find(&query).map(|found| routes[found.index as usize].0.clone())
}

#[test]
fn routes_are_preferred_in_apisixs_order() {
    let cases: Vec<Json> = serde_json::from_str(include_str!("order.json")).unwrap();
    assert!(!cases.is_empty());
    for case in cases {
        let mut routes = Vec::new();
        for (id, written) in case["routes"].as_object().unwrap() {
            let object = json!({ "object": format!("routes/{id}"), "written": written });
            routes.extend(translated(&object).unwrap().entities.into_iter().filter_map(
                |entity| match entity {
                    Entity::Routes(route) => Some((id.clone(), route)),
                    _ => None,
                },
            ));
        }
        for (request, expected) in case["requests"].as_object().unwrap() {
            assert_eq!(winner(&routes, request).as_deref(), expected.as_str(), "{}: {request}", case["case"]);
        }
    }
}

#[test]
fn references_lead_from_one_object_to_what_follows_from_another() {
    let upstream = json!({ "nodes": { "a.test:80": 1 } });
    let others = json!({ "upstreams/1": upstream, "services/1": { "upstream_id": "1" } });
    let of = |object: &str, written: Json| {
        translated(&json!({ "object": object, "written": written, "others": others })).unwrap().entities
    };
    let id =
        |entities: &[Entity], kind| entities.iter().find(|entity| entity.kind() == kind).unwrap().clone();
    let upstream = of("upstreams/1", upstream);
    let service = of("services/1", json!({ "upstream_id": "1" }));
    let (through_upstream, through_service) = (
        of("routes/1", json!({ "uri": "/", "upstream_id": "1" })),
        of("routes/2", json!({ "uri": "/", "service_id": "1" })),
    );
    let service_of = |route: &[Entity]| id(route, EntityKind::Routes).references()[0].id;
    assert_eq!(service_of(&through_upstream), id(&upstream, EntityKind::Services).id());
    assert_eq!(service_of(&through_service), id(&service, EntityKind::Services).id());
    assert_eq!(
        Some(id(&service, EntityKind::Services).to_value()["host"].as_str().unwrap()),
        id(&upstream, EntityKind::Upstreams).name()
    );
}
