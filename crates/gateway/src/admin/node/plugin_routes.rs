//! The routes that plugins add.
use crate::admin::request::ApiRequest;
use crate::admin::response::{ApiError, json_response};
use crate::control::Control;
use crate::plugins::Definitions;
use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use std::sync::Arc;
use weir_plugin::{AdminMethod, AdminRequest, AdminRoute};

pub(super) fn router(definitions: Definitions) -> Router<Arc<Control>> {
    routes(definitions).fold(Router::new(), |router, route| {
        router.route(
            route.path,
            on(method(route.method), move |call: ApiRequest| async move { serve(route, &call) }),
        )
    })
}

/// All of them.
pub(super) fn routes(definitions: Definitions) -> impl Iterator<Item = &'static AdminRoute> {
    definitions.iter().flat_map(|definition| definition.admin_routes)
}

/// The path as `/endpoints` and OpenAPI show it: `/x/{rest}` for `/x/{*rest}`.
pub(super) fn documented_path(route: &AdminRoute) -> String {
    route.path.replace("{*", "{")
}

fn method(method: AdminMethod) -> MethodFilter {
    match method {
        AdminMethod::Get => MethodFilter::GET,
        AdminMethod::Post => MethodFilter::POST,
        AdminMethod::Put => MethodFilter::PUT,
        AdminMethod::Patch => MethodFilter::PATCH,
        AdminMethod::Delete => MethodFilter::DELETE,
    }
}

fn serve(route: &AdminRoute, call: &ApiRequest) -> Result<Response, ApiError> {
    let names = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let names = names.map(|name| name.trim_start_matches('*'));
    let parameters: Vec<_> = names.map(str::to_owned).zip(call.ids.iter().cloned()).collect();
    let entities = call.control.registry().entities();
    let of_node = (call.control.retained(), &*entities);
    let response =
        (route.handle)(&AdminRequest::new(of_node, (&parameters, call.query()), &call.body.members));
    let status = StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Ok(match response.body {
        Some(body) => json_response(status, &body),
        None if status == StatusCode::NOT_FOUND => return Err(ApiError::NotFound),
        None => status.into_response(),
    })
}
