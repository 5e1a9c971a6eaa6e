//! `POST /explain`: what would become of a request, and why.
use crate::admin::request::ApiRequest;
use crate::admin::response::{ApiError, json_response};
use crate::listener::message;
use crate::settings::Role;
use crate::threads::spawn_low_priority;
use axum::http::StatusCode;
use axum::response::Response;
use weir_proxy::explain::{Asked, BadQuestion};

pub(super) async fn explain(call: ApiRequest) -> Result<Response, ApiError> {
    if call.control.settings().role == Role::ControlPlane {
        let message = "a control plane routes nothing: ask `weir explain`, with its configuration in a file";
        return Err(ApiError::Malformed(message.to_owned()));
    }
    let asked = Asked::read(&call.body.members.into()).map_err(refused)?;
    let control = call.control;
    let explain = move || control.explain(&asked).map(serde_json::to_value);
    match spawn_low_priority("weir-explain", explain).await {
        Ok(Ok(Ok(explained))) => Ok(json_response(StatusCode::OK, &explained)),
        Ok(Err(refusal)) => Err(refused(refusal)),
        Ok(Ok(Err(_))) | Err(_) => {
            Ok(message(StatusCode::INTERNAL_SERVER_ERROR, "An unexpected error occurred"))
        }
    }
}

fn refused(BadQuestion(violations): BadQuestion) -> ApiError {
    ApiError::schema(&violations)
}
