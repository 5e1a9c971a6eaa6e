//! `/proxy-cache`: the responses that this node caches.
use crate::admin::request::ApiRequest;
use crate::admin::response::{ApiError, json_response};
use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get};
use std::sync::Arc;
use weir_model::entity::{Entity, EntityKind};
use weir_plugins::proxy_cache::{purge, purge_all, shown};

use crate::control::Control;

pub(super) fn router() -> Router<Arc<Control>> {
    Router::new()
        .route("/proxy-cache", delete(remove_all))
        .route("/proxy-cache/{key}", get(show).delete(remove))
        .route("/proxy-cache/{plugin}/caches/{key}", get(show).delete(remove))
}

/// The key in the path. A plugin in the path must be one that caches responses; all of them share one cache.
fn key(call: &ApiRequest) -> Result<&str, ApiError> {
    match call.ids.as_slice() {
        [key] => Ok(key),
        [plugin, key] => {
            let entities = call.control.registry().entities();
            let is_cache =
                |entity: &Entity| matches!(entity, Entity::Plugins(plugin) if plugin.name == "proxy-cache");
            let found = entities.find(EntityKind::Plugins, plugin).filter(|entity| is_cache(entity));
            found.map(|_| key.as_str()).ok_or(ApiError::NotFound)
        }
        _ => Err(ApiError::NotFound),
    }
}

async fn show(call: ApiRequest) -> Result<Response, ApiError> {
    let kept = shown(call.control.retained(), key(&call)?).ok_or(ApiError::NotFound)?;
    Ok(json_response(StatusCode::OK, &kept))
}

async fn remove(call: ApiRequest) -> Result<StatusCode, ApiError> {
    purge(call.control.retained(), key(&call)?).then_some(StatusCode::NO_CONTENT).ok_or(ApiError::NotFound)
}

async fn remove_all(call: ApiRequest) -> Response {
    purge_all(call.control.retained());
    StatusCode::NO_CONTENT.into_response()
}
