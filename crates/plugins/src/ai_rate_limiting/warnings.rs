//! Warnings about limits of instances that no request is sent to.

use super::AiRateLimiting;
use crate::shared::scopes::{ByScope, Routes};
use weir_plugin::entity::{EntityKind, Plugin as Entity};
use weir_plugin::schema::{did_you_mean, quoted};
use weir_plugin::{Document, EntityWarning, Plugin};

/// Among how many names one is looked for that was meant, because the search takes time.
const MAX_COMPARED: usize = 100;

/// Warns about names that no instance has whose requests the limits could meet.
pub(super) fn unknown_instances(document: &Document) -> Vec<EntityWarning> {
    let routes = Routes::of(document);
    let named: Vec<_> = document
        .plugins
        .iter()
        .flat_map(|it| instances(it).into_iter().map(move |name| (&**it, name)))
        .collect();
    let instances = ByScope::of(&routes, named.iter().map(|(plugin, name)| (*plugin, name.as_str())));
    let mut found = Vec::new();
    for (index, plugin) in document.plugins.iter().enumerate() {
        let limited = plugin.config["instances"].as_array().filter(|_| plugin.name == AiRateLimiting::NAME);
        let Some(limited) = limited else { continue };
        let known = instances.met_by(&routes, plugin);
        for (at, limit) in limited.iter().enumerate() {
            let Some(name) = limit["name"].as_str() else { continue };
            if known.contains(&name) {
                continue;
            }
            let hint = did_you_mean(name, known.iter().take(MAX_COMPARED));
            let message = format!(
                "no ai-proxy-multi or ai-proxy that the same requests meet has an instance `{}`{hint}; it limits nothing",
                quoted(name)
            );
            let place = format!("config.instances[{at}].name");
            found.push(EntityWarning::new((EntityKind::Plugins, index), place, message));
        }
    }
    found
}

/// The names of the instances that a plugin sends requests to.
fn instances(plugin: &Entity) -> Vec<String> {
    let config = &plugin.config;
    let own = |provider: &str| vec![format!("ai-proxy-{provider}")];
    match &*plugin.name {
        "ai-proxy" => config["model"]["provider"].as_str().map(own).unwrap_or_default(),
        "ai-proxy-multi" => {
            let names = config["instances"].as_array().into_iter().flatten();
            names.filter_map(|instance| instance["name"].as_str().map(str::to_owned)).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::unknown_instances;
    use crate::PLUGINS;
    use serde_json::{Value, json};
    use weir_plugin::testing::{Gateway, entity, id};

    /// The names that are warned about, of limits on the route 1, with this other plugin.
    fn warned(other: Value) -> Vec<String> {
        let mut gateway = Gateway::new(PLUGINS);
        let limits = json!([
            { "name": "own", "limit": 1, "time_window": 1 },
            { "name": "ai-proxy-openai", "limit": 1, "time_window": 1 },
        ]);
        let mut other = other;
        (other["id"], other["name"]) = (json!(id(8)), other["name"].clone());
        let limiting = json!({ "id": id(9), "name": "ai-rate-limiting", "route": { "id": id(1) }, "config": { "instances": limits } });
        gateway.document.plugins = vec![entity(limiting), entity(other)];
        gateway.document.routes = [(1, 3), (2, 4)]
            .map(|(route, service)| {
                entity(json!({ "id": id(route), "paths": ["/"], "service": { "id": id(service) } }))
            })
            .into();
        let found = unknown_instances(&gateway.document);
        found.iter().map(|warning| warning.path.clone()).collect()
    }

    #[test]
    fn limits_of_instances_that_the_same_requests_do_not_meet_are_warned_about() {
        let (first, second) = ("config.instances[0].name", "config.instances[1].name");
        let multi = json!({ "instances": [{ "name": "own" }] });
        let single = json!({ "model": { "provider": "openai" } });
        for (plugin, expected) in [
            (json!({ "name": "ai-proxy-multi", "config": multi }), vec![second]),
            (json!({ "name": "ai-proxy-multi", "config": multi, "route": { "id": id(1) } }), vec![second]),
            (json!({ "name": "ai-proxy-multi", "config": multi, "service": { "id": id(3) } }), vec![second]),
            (
                json!({ "name": "ai-proxy-multi", "config": multi, "route": { "id": id(2) } }),
                vec![first, second],
            ),
            (
                json!({ "name": "ai-proxy-multi", "config": multi, "service": { "id": id(4) } }),
                vec![first, second],
            ),
            (json!({ "name": "ai-proxy", "config": single }), vec![first]),
            (json!({ "name": "cors", "config": {} }), vec![first, second]),
        ] {
            assert_eq!(warned(plugin.clone()), expected, "{plugin}");
        }
    }
}
