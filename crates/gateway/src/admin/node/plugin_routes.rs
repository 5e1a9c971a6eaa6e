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
use weir_plugin::{AdminHandler, AdminMethod, AdminRequest, AdminResponse, AdminRoute, PendingResponse};

pub(super) fn router(definitions: Definitions) -> Router<Arc<Control>> {
    routes(definitions).fold(Router::new(), |router, route| {
        router.route(
            route.path,
            on(method(route.method), move |call: ApiRequest| async move { serve(route, &call).await }),
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

async fn serve(route: &AdminRoute, call: &ApiRequest) -> Result<Response, ApiError> {
    let response = match begin(route, call) {
        Begun::Done(response) => response,
        Begun::Pending(response) => response.await,
    };
    let status = StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Ok(match response.body {
        Some(body) => json_response(status, &body),
        None if status == StatusCode::NOT_FOUND => return Err(ApiError::NotFound),
        None => status.into_response(),
    })
}

/// A response, or what it is to be waited for with.
enum Begun {
    Done(AdminResponse),
    Pending(PendingResponse),
}

/// Holds the entities for as long as the handler runs, but not while its response is pending.
fn begin(route: &AdminRoute, call: &ApiRequest) -> Begun {
    let names = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let names = names.map(|name| name.trim_start_matches('*'));
    let parameters: Vec<_> = names.map(str::to_owned).zip(call.ids.iter().cloned()).collect();
    let entities = call.control.registry().entities();
    let of_node = (call.control.retained(), &*entities);
    let request = AdminRequest::new(of_node, (&parameters, call.query()), &call.body.members);
    match route.handle {
        AdminHandler::Now(handle) => Begun::Done(handle(&request)),
        AdminHandler::Later(handle) => Begun::Pending(handle(&request)),
    }
}
