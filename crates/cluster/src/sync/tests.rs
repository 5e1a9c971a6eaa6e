//! Both sides of the protocol, without sockets.
mod converge;
mod messages;
mod selection;
mod simulation;
mod wire_cost;

use serde_json::json;
use std::sync::Arc;
use weir_model::entity::{Entity, EntityKind};
use weir_model::schema::Json;
use weir_model::{Change, Document, ReadOptions, Uuid};

/// An entity read from JSON. It may name others that do not exist.
pub(crate) fn entity(kind: EntityKind, id: u128, written: &Json) -> Entity {
    let reading = ReadOptions { plugins: &[], references: &(), hash_passwords: false };
    Entity::read(kind, written, &[("id", Uuid::from_u128(id))], reading).unwrap()
}

pub(crate) fn service(id: u128, name: &str) -> Entity {
    entity(EntityKind::Services, id, &json!({ "name": name, "host": "upstream.example.com" }))
}

/// A route of a service, as large as usual ones are.
pub(crate) fn route(id: u128, name: &str, service: u128) -> Entity {
    let service = Uuid::from_u128(service).to_string();
    let path = format!("/api/{name}");
    let written = json!({ "name": name, "paths": [path], "methods": ["GET", "POST"], "service": { "id": service },
        "hosts": [format!("{name}.example.com")], "tags": ["team:payments"] });
    entity(EntityKind::Routes, id, &written)
}

pub(crate) fn consumer(id: u128, name: &str) -> Entity {
    entity(EntityKind::Consumers, id, &json!({ "username": name }))
}

/// A document of these entities.
pub(crate) fn document(entities: impl IntoIterator<Item = Entity>) -> Document {
    let mut document = Document::default();
    entities.into_iter().for_each(|entity| document.push(entity));
    document.sort();
    document
}

/// A document after changes.
pub(crate) fn changed(document: &Arc<Document>, changes: &[Change]) -> Arc<Document> {
    let mut document = Document::clone(document);
    changes.iter().for_each(|change| document.apply(change));
    Arc::new(document)
}
