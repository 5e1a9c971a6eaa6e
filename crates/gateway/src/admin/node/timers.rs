//! `/timers`: Kong's own timers, of which there are none: those of Lua code are not among them. Tools read the shape.
use crate::admin::response::json_response;
use crate::control::Control;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;
use std::sync::Arc;

pub(super) async fn show(State(control): State<Arc<Control>>) -> Response {
    let none = json!({ "total": 0, "runs": 0, "running": 0, "pending": 0, "waiting": 0 });
    let flamegraph = json!({ "running": "", "pending": "", "elapsed_time": "" });
    let body = json!({
        "worker": { "id": 0, "count": control.settings().workers.0 },
        "stats": { "sys": none, "timers": {}, "flamegraph": flamegraph },
    });
    json_response(StatusCode::OK, &body)
}
