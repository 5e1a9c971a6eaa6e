//! APISIX's Admin API. Objects that clients write are translated into entities, and are stored themselves as entities
//! too, so that clients can read them back.
//!
//! ```text
//! request ─► api: key, path ─► write: the object, and those that refer to it ─► translate ─► registry
//! ```
mod api;
mod configs;
mod list;
mod listeners;
mod metrics;
mod on_proxy;
mod request;
mod response;
mod schemas;
mod validate;
mod write;

pub(crate) use listeners::ApisixListeners;

use crate::listener::{BodyError, Client};
use api::Api;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, DefaultBodyLimit, FromRequest, Request, State};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// Everything that the Admin API's own listeners serve.
fn router(api: Arc<Api>) -> Router {
    Router::new().fallback(answer).layer(DefaultBodyLimit::max(api::MAX_BODY_LEN)).with_state(api)
}

async fn answer(
    State(api): State<Arc<Api>>,
    ConnectInfo(client): ConnectInfo<Client>,
    request: Request,
) -> Response {
    let peer = client.address.ip();
    let (parts, body) = request.into_parts();
    match Bytes::from_request(Request::from_parts(parts.clone(), body), &()).await {
        Ok(body) => api.answer(peer, Request::from_parts(parts, body)).await.into_response(),
        Err(rejection) => {
            let status = BodyError::of(&rejection).status();
            api::audit(peer, &parts.method, parts.uri.path(), status, None);
            status.into_response()
        }
    }
}
