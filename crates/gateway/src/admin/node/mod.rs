//! What the Admin API tells of the node itself: what it can do, what it knows, and how it fares.
mod log_level;
mod root;

use crate::control::Control;
use axum::Router;
use axum::routing::{get, put};
use std::sync::Arc;

/// The routes of the node itself.
pub(super) fn router() -> Router<Arc<Control>> {
    Router::new()
        .route("/", get(root::root))
        .route("/debug/node/log-level", get(log_level::show))
        .route("/debug/node/log-level/{level}", put(log_level::change))
}
