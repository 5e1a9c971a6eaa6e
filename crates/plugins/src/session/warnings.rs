//! Warnings about sessions that no request can use.

use super::SessionPlugin;
use crate::shared::scopes::{ByScope, Routes};
use weir_plugin::entity::{EntityKind, Plugin as Entity};
use weir_plugin::{Document, EntityWarning, Plugin};

/// Warns about each plugin whose requests meet no authentication plugin that accepts a session in the place of credentials.
pub(super) fn without_anonymous(document: &Document) -> Vec<EntityWarning> {
    let accepts_sessions = |plugin: &Entity| {
        plugin.enabled && plugin.config["anonymous"].as_str().is_some_and(|it| !it.is_empty())
    };
    let sessions = document.plugins.iter().enumerate();
    let sessions: Vec<_> =
        sessions.filter(|(_, plugin)| plugin.enabled && plugin.name == SessionPlugin::NAME).collect();
    if sessions.is_empty() {
        return Vec::new();
    }
    let routes = Routes::of(document);
    let accepting = document.plugins.iter().filter(|plugin| accepts_sessions(plugin));
    let accepting = ByScope::of(&routes, accepting.map(|plugin| (&**plugin, ())));
    let unused = sessions.into_iter().filter(|(_, session)| accepting.met_by(&routes, session).is_empty());
    let message = "no request uses a session, because no authentication plugin of the same requests has `anonymous`: \
                   configure one, such as basic-auth or key-auth, with `anonymous: CONSUMER`, and a request-termination \
                   for that consumer";
    unused.map(|(index, _)| EntityWarning::new((EntityKind::Plugins, index), "", message)).collect()
}

#[cfg(test)]
mod tests {
    use super::without_anonymous;
    use crate::PLUGINS;
    use serde_json::{Value, json};
    use weir_plugin::Document;
    use weir_plugin::testing::{Gateway, entity, id};

    fn is_warned_about(others: &[Value]) -> bool {
        let mut gateway = Gateway::new(PLUGINS);
        let session = json!({ "id": id(9), "name": "session", "route": { "id": id(1) }, "config": {} });
        let others = others.iter().map(|other| {
            let mut other = other.clone();
            other["id"] = json!(id(8));
            entity(other)
        });
        gateway.document.plugins = others.chain([entity(session)]).collect();
        gateway.document.routes = [(1, 3), (2, 4)]
            .map(|(route, service)| {
                entity(json!({ "id": id(route), "paths": ["/"], "service": { "id": id(service) } }))
            })
            .into();
        !without_anonymous(&gateway.document).is_empty()
    }

    #[test]
    fn sessions_need_an_authentication_plugin_with_anonymous() {
        let with = |scope: Value| {
            let mut plugin = json!({ "name": "key-auth", "config": { "anonymous": "guest" } });
            plugin.as_object_mut().unwrap().extend(scope.as_object().unwrap().clone());
            is_warned_about(&[plugin])
        };
        assert!(is_warned_about(&[]));
        assert!(is_warned_about(&[json!({ "name": "key-auth", "config": { "anonymous": null } })]));
        assert!(!with(json!({})));
        assert!(!with(json!({ "route": { "id": id(1) } })));
        assert!(!with(json!({ "service": { "id": id(3) } })));
        assert!(with(json!({ "route": { "id": id(2) } })));
        assert!(with(json!({ "service": { "id": id(4) } })));
        assert!(with(json!({ "enabled": false })));
    }

    /// That each session is compared with each other plugin, and these with each route, would take minutes.
    #[test]
    fn thousands_of_sessions_are_looked_at() {
        const COUNT: u128 = 4_000;
        let route = |number: u128| json!({ "id": id(number + 1), "paths": ["/"] });
        let plugin = |name: &str, number: u128, config: Value| {
            let place = id(number + 2 * COUNT + if name == "session" { COUNT } else { 0 });
            entity(json!({ "id": place, "name": name, "route": { "id": id(number + 1) }, "config": config }))
        };
        let sessions = (0..COUNT).map(|number| plugin("session", number, json!({})));
        // The last has none.
        let others = (0..COUNT - 1).map(|number| plugin("key-auth", number, json!({ "anonymous": "guest" })));
        let document = Document {
            routes: (0..2 * COUNT).map(|number| entity(route(number))).collect(),
            plugins: sessions.chain(others).collect(),
            ..Document::default()
        };
        let found = without_anonymous(&document);
        assert_eq!(found.iter().map(|warning| warning.entity.1).collect::<Vec<_>>(), [COUNT as usize - 1]);
    }
}
