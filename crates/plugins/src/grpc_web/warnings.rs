//! Warnings about grpc-web beside cors.

use super::GrpcWeb;
use crate::shared::scopes::{ByScope, Routes};
use weir_plugin::entity::{EntityKind, Plugin as Entity};
use weir_plugin::{Document, EntityWarning, Plugin};

/// Warns about each plugin that sends `*` where cors lets pages send their cookies: browsers accept no such response.
pub(super) fn any_origin_with_credentials(document: &Document) -> Vec<EntityWarning> {
    let is_open = |plugin: &Entity| {
        let origin = plugin.config["allow_origin_header"].as_str().unwrap_or("*");
        plugin.enabled && plugin.name == GrpcWeb::NAME && origin == "*"
    };
    let open: Vec<_> = document.plugins.iter().enumerate().filter(|(_, plugin)| is_open(plugin)).collect();
    if open.is_empty() {
        return Vec::new();
    }
    let routes = Routes::of(document);
    let with_credentials = document
        .plugins
        .iter()
        .filter(|it| it.enabled && it.name == "cors" && it.config["credentials"] == true);
    let with_credentials = ByScope::of(&routes, with_credentials.map(|plugin| (&**plugin, ())));
    let refused = open.into_iter().filter(|(_, plugin)| !with_credentials.met_by(&routes, plugin).is_empty());
    let message = "browsers refuse responses to pages that send cookies, which cors lets them by `credentials`, because grpc-web \
                   sends `Access-Control-Allow-Origin: *`; write the origin of the pages as `allow_origin_header`";
    refused.map(|(index, _)| EntityWarning::new((EntityKind::Plugins, index), "", message)).collect()
}

#[cfg(test)]
mod tests {
    use super::any_origin_with_credentials;
    use crate::PLUGINS;
    use serde_json::{Value, json};
    use weir_plugin::testing::{Gateway, entity, id};

    fn is_warned_about(grpc_web: &Value, cors: &Value, route: u128) -> bool {
        let mut gateway = Gateway::new(PLUGINS);
        let plugin = |number: u128, name: &str, config: &Value, route: u128| {
            entity(json!({ "id": id(number), "name": name, "route": { "id": id(route) }, "config": config }))
        };
        gateway.document.plugins = vec![plugin(8, "cors", cors, route), plugin(9, "grpc-web", grpc_web, 1)];
        let route = |number: u128| entity(json!({ "id": id(number), "paths": ["/"] }));
        gateway.document.routes = vec![route(1), route(2)];
        !any_origin_with_credentials(&gateway.document).is_empty()
    }

    #[test]
    fn cookies_need_an_origin() {
        let (open, one) = (json!({}), json!({ "allow_origin_header": "https://a.test" }));
        let credentials = json!({ "credentials": true });
        assert!(is_warned_about(&open, &credentials, 1));
        assert!(is_warned_about(&json!({ "allow_origin_header": "*" }), &credentials, 1));
        assert!(!is_warned_about(&one, &credentials, 1));
        assert!(!is_warned_about(&open, &json!({}), 1));
        assert!(!is_warned_about(&open, &credentials, 2));
    }
}
