//! `/endpoints`: every path there is.
use super::plugin_routes;
use crate::admin::collection::{EntityPath, entity_paths};
use crate::admin::response::json_response;
use crate::control::Control;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;
use std::sync::Arc;

/// Paths that do not belong to a collection of entities.
pub(in crate::admin) const OTHER_PATHS: &[&str] = &[
    "/",
    "/analytics/changes",
    "/analytics/errors",
    "/analytics/nodes",
    "/analytics/requests",
    "/analytics/requests/tail",
    "/analytics/requests/{request}",
    "/analytics/series",
    "/analytics/top",
    "/clustering/data-planes",
    "/clustering/data-planes/{data_planes}",
    "/clustering/in-force",
    "/clustering/status",
    "/config",
    "/debug/node/log-level",
    "/debug/node/log-level/{log_level}",
    "/endpoints",
    "/explain",
    "/metrics",
    "/openapi.json",
    "/plugins/costs",
    "/plugins/enabled",
    "/plugins/schema/{name}",
    "/schemas/plugins/{name}",
    "/schemas/plugins/validate",
    "/schemas/vaults/validate",
    "/schemas/vaults/{name}",
    "/schemas/{entity}",
    "/schemas/{entity}/validate",
    "/status",
    "/status/dns",
    "/tags",
    "/tags/{tag}",
    "/timers",
    "/upstreams/{upstreams}/health",
    "/upstreams/{upstreams}/targets/{targets}/healthy",
    "/upstreams/{upstreams}/targets/{targets}/unhealthy",
    "/upstreams/{upstreams}/targets/{targets}/{address}/healthy",
    "/upstreams/{upstreams}/targets/{targets}/{address}/unhealthy",
    "/vitals",
    "/vitals/cluster",
    "/vitals/cluster/status_codes",
    "/vitals/consumers/{consumers}/cluster",
    "/vitals/nodes",
    "/vitals/nodes/{node}",
    "/vitals/status_code_classes",
    "/vitals/status_codes/by_consumer",
    "/vitals/status_codes/by_consumer_and_route",
    "/vitals/status_codes/by_route",
    "/vitals/status_codes/by_service",
];

pub(super) async fn list(State(control): State<Arc<Control>>) -> Response {
    let paths = entity_paths(control.plugins());
    let mut paths: Vec<_> = paths.into_iter().map(|(path, entity_path)| kongs(&path, entity_path)).collect();
    paths.extend(OTHER_PATHS.iter().map(|path| (*path).to_owned()));
    paths.extend(plugin_routes::routes(control.plugin_definitions()).map(plugin_routes::documented_path));
    paths.sort_unstable();
    paths.dedup();
    json_response(StatusCode::OK, &json!({ "data": paths }))
}

/// A path with its parameters called as Kong calls them: by the kinds of the entities.
pub(super) fn kongs(path: &str, entity_path: EntityPath) -> String {
    let (id, child) = match entity_path {
        EntityPath::Collection(kind) | EntityPath::Entity(kind) => (kind, kind),
        EntityPath::Children(nesting) | EntityPath::Child(nesting) => (nesting.parent, nesting.kind),
        EntityPath::Named(naming) => (naming.owner, naming.kind),
        EntityPath::Members(membership) | EntityPath::Member(membership) => {
            (membership.owner, membership.kind)
        }
    };
    path.replace("{id}", &format!("{{{}}}", id.as_str()))
        .replace("{child}", &format!("{{{}}}", child.as_str()))
}
