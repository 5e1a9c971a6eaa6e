//! `/endpoints`: every path there is.
use super::plugin_routes;
use crate::admin::collection::{Place, places};
use crate::admin::response::json_answer;
use crate::control::Control;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;
use std::sync::Arc;
use weir_model::schema::Choice;

/// Paths that are about no collection of entities.
const OTHERS: &[&str] = &[
    "/",
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
    "/schemas/{entity}",
    "/schemas/{entity}/validate",
    "/status",
    "/tags",
    "/tags/{tag}",
    "/upstreams/{upstreams}/health",
    "/upstreams/{upstreams}/targets/{targets}/healthy",
    "/upstreams/{upstreams}/targets/{targets}/unhealthy",
    "/upstreams/{upstreams}/targets/{targets}/{address}/healthy",
    "/upstreams/{upstreams}/targets/{targets}/{address}/unhealthy",
];

pub(super) async fn list(State(control): State<Arc<Control>>) -> Response {
    let mut paths: Vec<_> = places().into_iter().map(|(path, place)| kongs(&path, place)).collect();
    paths.extend(OTHERS.iter().map(|path| (*path).to_owned()));
    paths.extend(plugin_routes::routes(control.plugin_definitions()).map(|route| route.path.to_owned()));
    paths.sort_unstable();
    paths.dedup();
    json_answer(StatusCode::OK, &json!({ "data": paths }))
}

/// A path with its parameters called as Kong calls them: by the kinds of the entities.
pub(super) fn kongs(path: &str, place: Place) -> String {
    let (id, child) = match place {
        Place::Collection(kind) | Place::Entity(kind) => (kind, kind),
        Place::Children(nesting) | Place::Child(nesting) => (nesting.parent, nesting.kind),
        Place::Named(naming) => (naming.owner, naming.kind),
        Place::Members(membership) | Place::Member(membership) => (membership.owner, membership.kind),
    };
    path.replace("{id}", &format!("{{{}}}", id.as_str()))
        .replace("{child}", &format!("{{{}}}", child.as_str()))
}
