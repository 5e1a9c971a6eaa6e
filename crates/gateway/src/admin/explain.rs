//! `POST /explain`: what would become of a request, and why.
use crate::aside::aside;
use crate::control::Control;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use weir_proxy::explain::{Asked, BadQuestion};

/// The route of this part.
pub(super) fn router() -> Router<Arc<Control>> {
    Router::new().route("/explain", post(explain))
}

async fn explain(State(control): State<Arc<Control>>, body: Bytes) -> Response {
    let Ok(question) = serde_json::from_slice::<Value>(&body) else {
        return answer(StatusCode::BAD_REQUEST, &json!({ "message": "Cannot parse JSON body" }));
    };
    let explained = match Asked::read(&question) {
        Ok(asked) => aside("weir-explain", move || Ok(serde_json::to_value(control.explain(&asked)?))).await,
        Err(refusal) => Ok(Err(refusal)),
    };
    match explained {
        Ok(Ok(Ok(explained))) => answer(StatusCode::OK, &explained),
        Ok(Err(refusal)) => answer(StatusCode::BAD_REQUEST, &violation(&refusal)),
        Ok(Ok(Err(_))) | Err(_) => {
            let message = json!({ "message": "An unexpected error occurred" });
            answer(StatusCode::INTERNAL_SERVER_ERROR, &message)
        }
    }
}

/// As Kong refuses an entity: code 2, the violations by field.
fn violation(BadQuestion(violations): &BadQuestion) -> Value {
    let named = |path: &str| if path.is_empty() { "@entity".to_owned() } else { path.to_owned() };
    let fields: Map<String, Value> = violations
        .iter()
        .map(|violation| (named(&violation.path), violation.message.as_str().into()))
        .collect();
    let told: Vec<_> = violations
        .iter()
        .map(|violation| format!("{}: {}", named(&violation.path), violation.message))
        .collect();
    let message = format!("schema violation ({})", told.join("; "));
    json!({ "code": 2, "name": "schema violation", "message": message, "fields": fields })
}

fn answer(status: StatusCode, body: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json; charset=utf-8")], body.to_string()).into_response()
}
