//! The names of entities that others refer to, which the Admin API gives by their ids alone.
use super::list::name;
use crate::kinds::{self, Kind};
use crate::page::Visit;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// The most entities of a page whose names are asked for.
const MAX_NAMED: usize = 200;

/// The kind of the entity that a field refers to.
pub(super) fn kind_of(field: &str) -> Option<&'static Kind> {
    match field {
        "set" => kinds::of("key-sets"),
        "client_certificate" => kinds::of("certificates"),
        field => kinds::of(&format!("{field}s")),
    }
}

/// Puts the names of the entities that rows refer to beside their ids.
pub(super) async fn add_names<'r>(visit: &Visit, rows: impl Iterator<Item = &'r mut Value>) {
    let mut known = HashMap::new();
    for (field, reference) in rows.filter_map(Value::as_object_mut).flatten() {
        let (Some(kind), Some(reference)) = (kind_of(field), reference.as_object_mut()) else { continue };
        let (Some(id), Some(&field)) = (only_id(reference), kind.names.first()) else { continue };
        if !known.contains_key(&id) && known.len() < MAX_NAMED {
            let found = visit.api.get(&kind.path(&id)).await.ok();
            known.insert(id.clone(), found.map(|answer| name(kind, &answer.body)));
        }
        if let Some(Some(name)) = known.get(&id) {
            reference.insert(field.to_owned(), name.as_str().into());
        }
    }
}

/// The id of a reference that has nothing else.
fn only_id(reference: &Map<String, Value>) -> Option<String> {
    let id = reference.get("id").filter(|_| reference.len() == 1)?;
    id.as_str().map(str::to_owned)
}
