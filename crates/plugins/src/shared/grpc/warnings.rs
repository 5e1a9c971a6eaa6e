//! Warnings about plugins that translate for a service that does not speak gRPC, or for clients that do.

use crate::shared::scopes::Routes;
use std::collections::HashSet;
use weir_plugin::entity::{EntityKind, Protocol, Service};
use weir_plugin::{Document, EntityWarning, Uuid};

/// The tag of services whose upstream gets HTTP/2, and with it gRPC, whatever their protocol is.
const UPSTREAM_HTTP2: &str = "weir-upstream-http2";

/// Warns about each plugin of this name that meets no service of gRPC, or no route of HTTP. What a plugin does not meet at all is
/// left out, because it is configured before its routes.
pub(crate) fn untranslatable(document: &Document, name: &str) -> Vec<EntityWarning> {
    let with_grpc: HashSet<Uuid> =
        document.services.iter().filter(|it| takes_grpc(it)).map(|service| service.id).collect();
    let (all_routes, mut found) = (Routes::of(document), Vec::new());
    let plugins = document.plugins.iter().enumerate();
    for (index, plugin) in plugins.filter(|(_, it)| it.enabled && it.name == name) {
        let mut warn = |message: String| {
            found.push(EntityWarning::new((EntityKind::Plugins, index), "", message));
        };
        let routes = all_routes.met_by(plugin);
        let takes_http = |protocols: &[Protocol]| {
            protocols.iter().any(|it| matches!(it, Protocol::Http | Protocol::Https))
        };
        if !routes.is_empty() && !routes.iter().any(|route| takes_http(&route.protocols)) {
            warn(format!(
                "no route of {name} takes requests that are not gRPC, so that there is nothing to translate; write \
                 `protocols: [http, https]` in the route"
            ));
        }
        let services: Vec<Uuid> =
            routes.iter().filter_map(|route| route.service).chain(plugin.service).collect();
        if !services.is_empty() && !services.iter().any(|service| with_grpc.contains(service)) {
            warn(format!(
                "no service of {name} gets gRPC, so that calls fail; write `grpc` or `grpcs` as the protocol of the service \
                 (in APISIX, the `scheme` of the upstream)"
            ));
        }
    }
    found
}

fn takes_grpc(service: &Service) -> bool {
    matches!(service.protocol, Protocol::Grpc | Protocol::Grpcs)
        || service.tags.iter().flatten().any(|tag| tag == UPSTREAM_HTTP2)
}

#[cfg(test)]
mod tests {
    use super::untranslatable;
    use crate::PLUGINS;
    use serde_json::{Value, json};
    use weir_plugin::testing::{Gateway, entity, id};

    /// How many warnings there are about a plugin of a route with these protocols, whose service is like this.
    fn warnings(protocols: &[&str], service: Value) -> usize {
        let mut gateway = Gateway::new(PLUGINS);
        let plugin = json!({ "id": id(9), "name": "grpc-transcode", "route": { "id": id(1) }, "config": {} });
        gateway.document.plugins = vec![entity(plugin)];
        let mut service = service;
        (service["id"], service["host"]) = (json!(id(3)), json!("a.test"));
        gateway.document.services = vec![entity(service)];
        let route =
            json!({ "id": id(1), "protocols": protocols, "paths": ["/"], "service": { "id": id(3) } });
        gateway.document.routes = vec![entity(route)];
        untranslatable(&gateway.document, "grpc-transcode").len()
    }

    #[test]
    fn routes_have_to_take_http_and_services_to_get_grpc() {
        let http = ["http", "https"];
        assert_eq!(warnings(&http, json!({ "protocol": "grpc" })), 0);
        assert_eq!(warnings(&["https"], json!({ "protocol": "grpcs" })), 0);
        assert_eq!(warnings(&http, json!({ "protocol": "http" })), 1);
        assert_eq!(warnings(&http, json!({ "protocol": "https" })), 1);
        assert_eq!(warnings(&http, json!({ "protocol": "http", "tags": ["weir-upstream-http2"] })), 0);
        assert_eq!(warnings(&["grpc"], json!({ "protocol": "grpc" })), 1);
        assert_eq!(warnings(&["grpc", "grpcs"], json!({ "protocol": "http" })), 2);
    }
}
