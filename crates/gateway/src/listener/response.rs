//! Responses in JSON, which all of the node's own APIs give.
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// A response that is a message alone.
pub(crate) fn message(status: StatusCode, text: &str) -> Response {
    json_response(status, &json!({ "message": text }))
}

/// A response in JSON.
pub(crate) fn json_response(status: StatusCode, body: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json; charset=utf-8")], body.to_string()).into_response()
}
