//! What Kong 3.9 lacks: entities, plugins, fields and values that a file for Kong must not hold.
use serde_json::{Map, Value};
use weir_model::entity::EntityKind;
use weir_model::schema::take_extensions;
use weir_model::{PluginSchema, find_kind, find_plugin};

/// The kinds of entities that the open source of Kong does not have.
const KINDS: [EntityKind; 3] =
    [EntityKind::ConsumerGroups, EntityKind::ConsumerGroupConsumers, EntityKind::ApisixObjects];

/// Removes what Kong lacks from a declarative file; returns a line for each thing that is removed.
pub(super) fn leave_out(document: &mut Map<String, Value>, plugins: &[PluginSchema]) -> Vec<String> {
    let mut left_out = Vec::new();
    for (name, entities) in document.iter_mut() {
        let (Some(kind), Value::Array(entities)) = (find_kind(plugins, name), entities) else { continue };
        entities.retain_mut(|entity| {
            let label = label(kind, entity);
            let is_kept = is_known(kind, entity, plugins);
            if is_kept {
                let taken = taken(kind, entity, plugins);
                left_out.extend(taken.into_iter().map(|path| format!("{label}: `{path}`")));
            } else {
                left_out.push(label);
            }
            is_kept
        });
    }
    document.retain(|_, entities| entities.as_array().is_none_or(|entities| !entities.is_empty()));
    left_out
}

fn label(kind: EntityKind, entity: &Value) -> String {
    let name = ["name", "username", "id"].iter().find_map(|name| entity.get(name)?.as_str());
    format!("{} `{}`", kind.as_str().trim_end_matches('s'), name.unwrap_or_default())
}

/// A plugin for a consumer group would be for everybody without the group.
fn is_known(kind: EntityKind, entity: &Value, plugins: &[PluginSchema]) -> bool {
    let name = entity.get("name").and_then(Value::as_str);
    let is_foreign = name.and_then(|name| find_plugin(plugins, name)).is_some_and(|plugin| plugin.extension);
    let is_of_group = entity.get("consumer_group").is_some_and(|group| !group.is_null());
    !KINDS.contains(&kind) && !(kind == EntityKind::Plugins && (is_foreign || is_of_group))
}

/// Removes fields and values; returns their paths.
fn taken(kind: EntityKind, entity: &mut Value, plugins: &[PluginSchema]) -> Vec<String> {
    let mut taken = Vec::new();
    let name = entity.get("name").and_then(Value::as_str);
    let plugin = name.and_then(|name| find_plugin(plugins, name)).filter(|_| kind == EntityKind::Plugins);
    let Value::Object(members) = entity else { return taken };
    if let (Some(plugin), Some(Value::Object(config))) = (plugin, members.get_mut("config")) {
        take_extensions(plugin.config, config, "config", &mut taken);
    }
    take_extensions(kind.schema(), members, "", &mut taken);
    taken
}
