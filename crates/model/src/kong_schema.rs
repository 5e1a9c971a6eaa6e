//! What the open source of Kong 3.9 lacks: entities, plugins, fields and values. Its schemas are strict, so that what is
//! written for it must hold none of them.
use crate::entity::{Entity, EntityKind, Plugin, Route};
use crate::plugin_schema::{PluginSchema, find_plugin};
use crate::schema::{Json, take_extensions};

/// The kinds of entities that Kong does not have, beside those that plugins declare which it does not have.
const KINDS: [EntityKind; 3] =
    [EntityKind::ConsumerGroups, EntityKind::ConsumerGroupConsumers, EntityKind::ApisixObjects];

/// Whether Kong knows entities of this kind.
pub fn has_kind(kind: EntityKind, plugins: &[PluginSchema]) -> bool {
    let declared_by = |plugin: &&PluginSchema| plugin.entities.iter().any(|it| it.name == kind.as_str());
    match kind {
        EntityKind::Custom(_) => plugins.iter().filter(declared_by).any(|plugin| !plugin.extension),
        kind => !KINDS.contains(&kind),
    }
}

/// Why Kong cannot have a plugin, if it cannot. One for a consumer group would be for everybody without the group.
pub fn lacks_plugin(plugin: &Plugin, plugins: &[PluginSchema]) -> Option<&'static str> {
    if find_plugin(plugins, &plugin.name).is_some_and(|schema| schema.extension) {
        return Some("Kong 3.9 does not have this plugin");
    }
    plugin.consumer_group.map(|_| "Kong 3.9 does not have consumer groups")
}

/// Why Kong cannot have a route, if it cannot. Without its condition the route would match more requests, also such as
/// another route authenticates.
pub fn lacks_route(route: &Route) -> Option<&'static str> {
    route.vars.as_ref().map(
        |_| "Kong 3.9 does not have `vars`, without which the route would match more: say it in `expression`",
    )
}

/// Whether Kong can have an entity like this one.
pub fn has(entity: &Entity, plugins: &[PluginSchema]) -> bool {
    match entity {
        Entity::Plugins(plugin) => lacks_plugin(plugin, plugins).is_none(),
        Entity::Routes(route) => lacks_route(route).is_none(),
        entity => has_kind(entity.kind(), plugins),
    }
}

/// Removes the fields and values that Kong lacks from an entity that is written as JSON; returns the paths of those that had
/// an effect.
pub fn take_unknown(kind: EntityKind, entity: &mut Json, plugins: &[PluginSchema]) -> Vec<String> {
    let mut taken = Vec::new();
    let name = entity.get("name").and_then(Json::as_str);
    let plugin = name.and_then(|name| find_plugin(plugins, name)).filter(|_| kind == EntityKind::Plugins);
    let Json::Object(members) = entity else { return taken };
    if let (Some(plugin), Some(Json::Object(config))) = (plugin, members.get_mut("config")) {
        take_extensions(plugin.config, config, "config", &mut taken);
        // They stand beside the new names, with the same values.
        plugin.config.old_names.iter().for_each(|(old, _)| drop(config.remove(*old)));
    }
    if kind == EntityKind::Plugins {
        members.remove("consumer_group");
    }
    take_extensions(kind.schema(), members, "", &mut taken);
    taken
}
