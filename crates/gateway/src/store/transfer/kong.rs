//! A declarative file for Kong 3.9: without the entities, plugins, fields and values that it lacks.
use serde_json::{Map, Value};
use weir_model::entity::{Entity, EntityKind};
use weir_model::kong_schema::{has, take_unknown};
use weir_model::{PluginSchema, find_kind};

/// Those entities that Kong can have; adds a line for each of the others.
pub(super) fn known(
    entities: &[Entity],
    plugins: &[PluginSchema],
    left_out: &mut Vec<String>,
) -> Vec<Entity> {
    let (known, others): (Vec<_>, Vec<_>) = entities.iter().cloned().partition(|entity| has(entity, plugins));
    left_out.extend(others.iter().map(|entity| label(entity.kind(), &entity.to_value())));
    known
}

/// Removes the fields and values that Kong lacks from a declarative file; adds a line for each that is removed.
pub(super) fn leave_out(
    document: &mut Map<String, Value>,
    plugins: &[PluginSchema],
    left_out: &mut Vec<String>,
) {
    for (name, entities) in document.iter_mut() {
        let (Some(kind), Value::Array(entities)) = (find_kind(plugins, name), entities) else { continue };
        for entity in entities {
            let label = label(kind, entity);
            let taken = take_unknown(kind, entity, plugins);
            left_out.extend(taken.into_iter().map(|path| format!("{label}: `{path}`")));
        }
    }
}

fn label(kind: EntityKind, entity: &Value) -> String {
    let name = ["name", "username", "id"].iter().find_map(|name| entity.get(name)?.as_str());
    format!("{} `{}`", kind.as_str().trim_end_matches('s'), name.unwrap_or_default())
}
