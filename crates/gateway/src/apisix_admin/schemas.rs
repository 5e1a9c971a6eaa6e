//! The lists of plugins, the schemas of objects, and the validation of objects.
use super::request::{argument, body, unsupported};
use super::response::ApiResponse;
use crate::apisix::object::Kind;
use crate::apisix::translate::{Described, plugins_described, schema_of, validate};
use axum::body::Bytes;
use axum::http::{Method, Request, StatusCode};
use serde_json::{Map, Value as Json, json};
use weir_model::PluginSchema;

/// Answers about plugins, each by its schema.
pub(super) fn plugins(
    request: &Request<Bytes>,
    path: &[&str],
    schemas: &[PluginSchema],
) -> Result<ApiResponse, ApiResponse> {
    let method = request.method();
    match path {
        // The plugins stay the same until the node restarts.
        ["reload"] if *method == Method::PUT => return Ok(ApiResponse::ok("done".into())),
        ["reload"] => {
            let message =
                format!("please use PUT method to reload the plugins, {method} method is not allowed.");
            return Err(ApiResponse::error(StatusCode::METHOD_NOT_ALLOWED, message));
        }
        _ if *method != Method::GET => return Err(not_found()),
        _ => {}
    }
    let subsystem = argument(request, "subsystem").unwrap_or_else(|| "http".to_owned());
    let described = match subsystem.as_str() {
        "http" => plugins_described(schemas),
        "stream" => Vec::new(),
        _ if path == ["list"] => {
            return Err(ApiResponse::new(StatusCode::BAD_REQUEST, "invalid subsystem passed".into()));
        }
        other => return Err(ApiResponse::bad(format!("unsupported subsystem: {other}"))),
    };
    match path {
        ["list"] => Ok(ApiResponse::ok(described.iter().map(|plugin| plugin.name).collect())),
        _ if argument(request, "all").is_some_and(|all| all == "true") => {
            let entry = |plugin: &Described| (plugin.name.to_owned(), plugin.to_json());
            Ok(ApiResponse::ok(described.iter().map(entry).collect::<Map<_, _>>().into()))
        }
        [name] => one(request, described.iter().find(|plugin| plugin.name == *name)),
        _ => Err(ApiResponse::bad("not found plugin name")),
    }
}

fn one(request: &Request<Bytes>, plugin: Option<&Described>) -> Result<ApiResponse, ApiResponse> {
    let not_found = || ApiResponse::error(StatusCode::NOT_FOUND, "plugin not found");
    let plugin = plugin.ok_or_else(not_found)?;
    let schema = match argument(request, "schema_type").as_deref() {
        Some("consumer") => plugin.consumer_schema.clone(),
        Some("metadata") => Some(json!({ "type": "object" })),
        _ => Some(plugin.schema.clone()),
    };
    schema.map(ApiResponse::ok).ok_or_else(|| ApiResponse::bad("not found schema"))
}

/// Answers about the schemas of kinds.
pub(super) fn schema(
    request: &Request<Bytes>,
    path: &[&str],
    schemas: &[PluginSchema],
) -> Result<ApiResponse, ApiResponse> {
    match (request.method(), path) {
        (&Method::POST, ["validate", name]) => check(request, name),
        (&Method::GET, [name]) => match Kind::ALL.into_iter().find(|kind| called(*kind) == *name) {
            Some(kind) => Ok(ApiResponse::ok(schema_of(kind))),
            None => plugins(request, path, schemas),
        },
        _ => Err(not_found()),
    }
}

/// What APISIX calls the schema of a kind.
fn called(kind: Kind) -> String {
    kind.singular().replace(' ', "_")
}

fn check(request: &Request<Bytes>, name: &str) -> Result<ApiResponse, ApiResponse> {
    let kind = Kind::from_name(name).ok_or_else(|| unsupported(name))?;
    let value = body(request)?.ok_or_else(|| ApiResponse::bad("missing configurations"))?;
    match validate(kind, &value) {
        Ok(()) => Ok(ApiResponse::ok(Json::Null)),
        Err(invalid) => Err(ApiResponse::bad(invalid.reason())),
    }
}

fn not_found() -> ApiResponse {
    ApiResponse::error(StatusCode::NOT_FOUND, "not found")
}
