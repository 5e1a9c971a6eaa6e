//! A declarative file for Kong 3.9: without the entities, plugins, fields and values that it lacks.
use serde_json::{Map, Value};
use std::collections::HashSet;
use weir_model::entity::{Entity, EntityKind};
use weir_model::kong_schema::{has, take_unknown};
use weir_model::{PluginSchema, find_kind};

/// Those entities that Kong can have; adds a line for each of the others.
pub(super) fn known(
    entities: &[Entity],
    plugins: &[PluginSchema],
    left_out: &mut Vec<String>,
) -> Vec<Entity> {
    let without = |entity: &&Entity| entity.kind() == EntityKind::Routes && !has(entity, plugins);
    let lacking: HashSet<_> = entities.iter().filter(without).map(Entity::id).collect();
    // Without its route, a plugin would run for others.
    let is_known = |entity: &Entity| match entity {
        Entity::Plugins(plugin) if plugin.route.is_some_and(|route| lacking.contains(&route)) => false,
        entity => has(entity, plugins),
    };
    let (known, others): (Vec<_>, Vec<_>) = entities.iter().cloned().partition(is_known);
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
