//! Warnings about logins that cannot end.

use super::OpenIdConnect;
use crate::shared::scopes::Routes;
use regex::Regex;
use weir_plugin::entity::{EntityKind, Plugin as Entity, Route};
use weir_plugin::schema::quoted;
use weir_plugin::{Document, EntityWarning, Plugin, is_reference};

/// Warns about each plugin none of whose routes receives the requests by which browsers come back from the provider. A plugin
/// without routes is left out, because it is configured before them.
pub(super) fn lost_callbacks(document: &Document) -> Vec<EntityWarning> {
    let (all_routes, mut found) = (Routes::of(document), Vec::new());
    for (index, plugin) in document.plugins.iter().enumerate() {
        let Some(uri) = callback(plugin) else { continue };
        let (host, path) = host_and_path(uri);
        let routes = all_routes.met_by(plugin);
        if routes.is_empty() || routes.iter().any(|route| receives(route, host, path)) {
            continue;
        }
        let at = host.map(|host| format!(" at host `{}`", quoted(host))).unwrap_or_default();
        let message = format!(
            "no login can end, because no route of this plugin receives `GET {}`{at}: add this path to one of its routes, or \
             give another route that receives it this plugin, with the same configuration",
            quoted(path)
        );
        found.push(EntityWarning::new((EntityKind::Plugins, index), "config.redirect_uri", message));
    }
    found
}

/// Where browsers come back to a plugin that sends them to the provider.
fn callback(plugin: &Entity) -> Option<&str> {
    let config = &plugin.config;
    let logs_in = plugin.enabled && plugin.name == OpenIdConnect::NAME && config["bearer_only"] != true;
    let uri = config["redirect_uri"].as_str().filter(|uri| logs_in && !is_reference(uri))?;
    (config["unauth_action"] == "auth").then_some(uri)
}

/// The host of a URL, without its port, and the path.
fn host_and_path(uri: &str) -> (Option<&str>, &str) {
    let (authority, path) = match uri.split_once("://") {
        Some((_, rest)) => {
            let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            (Some(&rest[..at]), &rest[at..])
        }
        None => (None, uri),
    };
    let path = &path[..path.find(['?', '#']).unwrap_or(path.len())];
    let host = authority.map(|it| it.rsplit_once('@').map_or(it, |(_, host)| host));
    let host = host.map(|it| match it.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => it,
    });
    (host, if path.is_empty() { "/" } else { path })
}

/// Whether a route may receive a GET of this path; an expression may always.
fn receives(route: &Route, host: Option<&str>, path: &str) -> bool {
    let is_host = |known: &String| host.is_none_or(|host| matches_host(known, host));
    route.expression.is_some()
        || route.methods.as_ref().is_none_or(|all| all.iter().any(|it| it == "GET"))
            && route.hosts.as_ref().is_none_or(|all| all.is_empty() || all.iter().any(is_host))
            && route
                .paths
                .as_ref()
                .is_none_or(|all| all.is_empty() || all.iter().any(|it| matches_path(it, path)))
}

/// Whether a path begins with one of a route, or with what a regex of it matches.
fn matches_path(known: &str, path: &str) -> bool {
    match known.strip_prefix('~') {
        Some(regex) => Regex::new(&format!("^(?:{regex})")).map_or(true, |regex| regex.is_match(path)),
        None => path.starts_with(known),
    }
}

/// Whether a host of a route, with or without a port, is this one.
fn matches_host(known: &str, host: &str) -> bool {
    let (known, host) = (
        host_and_path(&format!("://{known}")).0.unwrap_or_default().to_ascii_lowercase(),
        host.to_ascii_lowercase(),
    );
    match known.split_once('*') {
        Some((start, end)) => {
            host.len() > start.len() + end.len() && host.starts_with(start) && host.ends_with(end)
        }
        None => host == known,
    }
}

#[cfg(test)]
mod tests {
    use super::lost_callbacks;
    use crate::PLUGINS;
    use serde_json::{Value, json};
    use weir_plugin::testing::{Gateway, entity, id};

    fn is_lost(uri: &str, route: Value) -> bool {
        let mut gateway = Gateway::new(PLUGINS);
        let config = json!({
            "client_id": "a", "client_secret": "b", "discovery": "https://idp.test/x", "redirect_uri": uri, "unauth_action": "auth",
        });
        let plugin =
            json!({ "id": id(9), "name": "openid-connect", "route": { "id": id(1) }, "config": config });
        gateway.document.plugins = vec![entity(plugin)];
        let mut route = route;
        route["id"] = json!(id(1));
        let other = json!({ "id": id(2), "paths": ["/"] });
        gateway.document.routes = vec![entity(route), entity(other)];
        !lost_callbacks(&gateway.document).is_empty()
    }

    #[test]
    fn a_route_of_the_plugin_has_to_receive_the_callback() {
        for (uri, route, expected) in [
            ("https://shop.test/callback", json!({ "paths": ["/shop"] }), true),
            ("https://shop.test/callback?x=/shop", json!({ "paths": ["/shop"] }), true),
            ("/callback", json!({ "paths": ["/shop"] }), true),
            ("/callback", json!({ "paths": ["/shop", "/call"] }), false),
            ("https://shop.test:8443/shop/callback", json!({ "paths": ["/shop"] }), false),
            ("https://shop.test", json!({ "paths": ["/"] }), false),
            ("/shop/7/cb", json!({ "paths": ["~/shop/[0-9]+/cb$"] }), false),
            ("/shop/x/cb", json!({ "paths": ["~/shop/[0-9]+/cb$"] }), true),
            ("/callback", json!({ "paths": ["/"], "methods": ["POST"] }), true),
            ("/callback", json!({ "paths": ["/"], "methods": ["GET"] }), false),
            ("https://shop.test/callback", json!({ "hosts": ["other.test"] }), true),
            ("https://Shop.test:8443/callback", json!({ "hosts": ["other.test", "shop.test:8443"] }), false),
            ("https://shop.test/callback", json!({ "hosts": ["*.test"] }), false),
            ("/callback", json!({ "hosts": ["other.test"] }), false),
        ] {
            assert_eq!(is_lost(uri, route.clone()), expected, "{uri} {route}");
        }
    }
}
