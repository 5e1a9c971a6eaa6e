//! The endpoints about the node itself: its plugins and schemas, its configuration, its health.
mod analytics;
mod clustering;
mod config;
mod costs;
mod endpoints;
mod explain;
mod flattened;
mod health;
mod log_level;
mod openapi;
mod plugin_routes;
mod root;
mod schemas;
mod tags;
mod timers;

pub(super) use clustering::Wait;
pub(super) use endpoints::OTHER_PATHS;
pub(super) use health::of_upstream as health_of_upstream;

use super::response::ApiError;
use crate::control::Control;
use crate::plugins::Definitions;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post, put};
use std::sync::Arc;

/// The routes of the node itself.
pub(super) fn router(definitions: Definitions) -> Router<Arc<Control>> {
    Router::new()
        .route("/", get(root::root))
        .route(
            "/config",
            get(config::show).post(config::load).layer(DefaultBodyLimit::max(config::MAX_BODY_LEN)),
        )
        .route("/debug/node/log-level", get(log_level::show))
        .route("/debug/node/log-level/{level}", put(log_level::change))
        .route("/clustering/data-planes", get(clustering::list))
        .route("/clustering/data-planes/{id}", get(clustering::show))
        .route("/clustering/in-force", get(clustering::coverage))
        .route("/clustering/status", get(clustering::status))
        .route("/endpoints", get(endpoints::list))
        .route("/explain", post(explain::explain))
        .route("/openapi.json", get(openapi::document))
        .route("/plugins/costs", get(costs::list))
        .route("/plugins/enabled", get(schemas::enabled_plugins))
        .route("/plugins/schema/{plugin}", get(schemas::of_plugin_config))
        .route("/schemas/plugins/{plugin}", get(schemas::of_plugin))
        .route("/schemas/plugins/validate", post(schemas::validate_plugin))
        .route("/schemas/vaults/{vault}", get(schemas::of_vault))
        .route("/schemas/vaults/validate", post(schemas::validate_vault))
        .route("/schemas/{entity}", get(schemas::of_entity))
        .route("/schemas/{entity}/validate", post(schemas::validate))
        .route("/tags", get(tags::list))
        .route("/tags/{tag}", get(tags::list_one))
        .route("/timers", get(timers::show))
        .route("/upstreams/{upstream}/health", get(health::of_upstream))
        .merge(analytics::router())
        .merge(plugin_routes::router(definitions))
        .merge(health::of_targets())
        .method_not_allowed_fallback(|| async { ApiError::Method })
}
