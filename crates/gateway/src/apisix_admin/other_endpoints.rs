//! Kinds of APISIX's objects that are not supported: their lists are empty, and writes fail.
use super::response::ApiResponse;
use axum::body::Bytes;
use axum::http::{Method, Request};
use serde_json::json;

/// The names of such kinds, and why they are not supported.
const OTHERS: [(&str, &str); 2] = [
    ("protos", "no plugin here reads protobuf"),
    ("secrets", "write the secret itself where it is needed, or name an environment variable in apisix.yaml"),
];
/// Routes of connections, which APISIX too refuses as long as it proxies requests alone.
const STREAM_ROUTES: &str = "stream_routes";

/// Whether a kind is one of these.
pub(super) fn has(name: &str) -> bool {
    name == STREAM_ROUTES || why_not(name).is_some()
}

/// Why objects of a kind cannot be.
pub(super) fn why_not(name: &str) -> Option<&'static str> {
    OTHERS.iter().find(|(other, _)| *other == name).map(|(_, why)| *why)
}

/// The answer to a request about such a kind.
pub(super) fn answer(
    request: &Request<Bytes>,
    name: &str,
    rest: &[&str],
) -> Result<ApiResponse, ApiResponse> {
    if name == STREAM_ROUTES {
        return Err(ApiResponse::bad("stream mode is disabled, can not add stream routes"));
    }
    match (request.method(), rest) {
        (&Method::GET | &Method::HEAD, []) => Ok(ApiResponse::ok(json!({ "total": 0, "list": [] }))),
        (&Method::GET | &Method::HEAD | &Method::DELETE, [_, ..]) => Err(ApiResponse::not_found()),
        _ => {
            let why = why_not(name).unwrap_or_default();
            Err(ApiResponse::bad(format!("`{name}` are not available here: {why}")))
        }
    }
}
