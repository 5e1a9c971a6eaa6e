//! Kinds of APISIX's objects that are not supported: their lists are empty, and writes fail.
use super::response::ApiResponse;
use axum::body::Bytes;
use axum::http::{Method, Request};
use serde_json::json;

/// The names of such kinds, and why they are not supported.
const OTHERS: [(&str, &str); 1] = [("protos", "no plugin here reads protobuf")];

/// Whether a kind is one of these.
pub(super) fn has(name: &str) -> bool {
    why_not(name).is_some()
}

/// Why objects of a kind cannot be.
pub(super) fn why_not(name: &str) -> Option<&'static str> {
    OTHERS.iter().find(|(other, _)| *other == name).map(|(_, why)| *why)
}

/// The answer about routes of connections while the node has no listeners for them, as in APISIX.
pub(super) fn streams_are_off() -> ApiResponse {
    ApiResponse::bad("stream mode is disabled, can not add stream routes")
}

/// The answer to a request about such a kind.
pub(super) fn answer(
    request: &Request<Bytes>,
    name: &str,
    rest: &[&str],
) -> Result<ApiResponse, ApiResponse> {
    match (request.method(), rest) {
        (&Method::GET | &Method::HEAD, []) => Ok(ApiResponse::ok(json!({ "total": 0, "list": [] }))),
        (&Method::GET | &Method::HEAD | &Method::DELETE, [_, ..]) => Err(ApiResponse::not_found()),
        _ => {
            let why = why_not(name).unwrap_or_default();
            Err(ApiResponse::bad(format!("`{name}` are not available here: {why}")))
        }
    }
}
