//! `/proxy-cache`: the responses that this node keeps.
use crate::admin::request::Call;
use crate::admin::response::{Denied, json_answer};
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

/// The key in the path. Where a plugin is in the path too, it is one that keeps responses: all of them share one memory.
fn key(call: &Call) -> Result<&str, Denied> {
    match call.ids.as_slice() {
        [key] => Ok(key),
        [plugin, key] => {
            let entities = call.control.registry().entities();
            let is_cache =
                |entity: &Entity| matches!(entity, Entity::Plugins(plugin) if plugin.name == "proxy-cache");
            let found = entities.find(EntityKind::Plugins, plugin).filter(|entity| is_cache(entity));
            found.map(|_| key.as_str()).ok_or(Denied::NotFound)
        }
        _ => Err(Denied::NotFound),
    }
}

async fn show(call: Call) -> Result<Response, Denied> {
    let kept = shown(call.control.retained(), key(&call)?).ok_or(Denied::NotFound)?;
    Ok(json_answer(StatusCode::OK, &kept))
}

async fn remove(call: Call) -> Result<StatusCode, Denied> {
    purge(call.control.retained(), key(&call)?).then_some(StatusCode::NO_CONTENT).ok_or(Denied::NotFound)
}

async fn remove_all(call: Call) -> Response {
    purge_all(call.control.retained());
    StatusCode::NO_CONTENT.into_response()
}
