//! `/debug/node/log-level`: how much the node logs, while it runs.

use crate::admin::request::PathParam;
use crate::listener::message;
use crate::logger;
use crate::settings::{LogLevel, Value};
use axum::http::StatusCode;
use axum::response::Response;

pub(super) async fn show() -> Response {
    message(StatusCode::OK, &format!("log level: {}", logger::level()))
}

pub(super) async fn change(PathParam(level): PathParam) -> Response {
    match LogLevel::parse(&level) {
        Ok(level) => {
            logger::set_level(level);
            message(StatusCode::OK, "log level changed")
        }
        Err(error) => message(StatusCode::BAD_REQUEST, &format!("unknown log level: {error}")),
    }
}
