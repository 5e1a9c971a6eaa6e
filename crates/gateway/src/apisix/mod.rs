//! APISIX's Admin API: a translation at the edge. What clients write becomes entities like any other, and is itself kept
//! among them, so that it can be read back.
//!
//! ```text
//! request ─► api: key, path ─► write: the object, and those that name it ─► translate ─► registry
//! ```
mod answer;
mod api;
mod described;
mod key;
mod list;
mod metrics;
mod object;
mod on_proxy;
mod opened;
mod others;
mod request;
pub(crate) mod standalone;
mod translate;
mod write;

pub(crate) use key::AdminKey;
pub(crate) use opened::Opened;

use crate::admin::client::Client;
use api::Api;
use axum::Router;
use axum::body::to_bytes;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// Everything that the Admin API's own listeners serve.
fn router(api: Arc<Api>) -> Router {
    Router::new().fallback(answer).with_state(api)
}

async fn answer(
    State(api): State<Arc<Api>>,
    ConnectInfo(client): ConnectInfo<Client>,
    request: Request,
) -> Response {
    let peer = client.address.ip();
    let (parts, body) = request.into_parts();
    match to_bytes(body, api::LONGEST_BODY).await {
        Ok(body) => api.answer(peer, Request::from_parts(parts, body)).await.into_response(),
        Err(_) => {
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            api::audit(peer, &parts.method, parts.uri.path(), status, None);
            status.into_response()
        }
    }
}
