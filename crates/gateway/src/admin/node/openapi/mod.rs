//! `/openapi.json`: the Admin API as OpenAPI 3.1, generated from the declarations that serve it.
mod entities;
mod others;

use super::schemas::kinds;
use crate::admin::response::json_response;
use crate::control::Control;
use crate::plugins::Definitions;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;
use weir_model::PluginSchema;
use weir_model::entity::EntityKind;
use weir_model::schema::Direction;

pub(super) async fn document(State(control): State<Arc<Control>>) -> Response {
    let open = control.settings().admin_auth.is_off();
    json_response(StatusCode::OK, &describe(open, control.plugins(), control.plugin_definitions()))
}

/// The whole document.
fn describe(open: bool, plugins: &[PluginSchema], definitions: Definitions) -> Value {
    let mut paths = entities::paths(plugins);
    paths.extend(others::paths(definitions));
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Weir's Admin API",
            "description": "Kong's Admin API, as Weir speaks it.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas(plugins),
            "responses": responses(),
            "parameters": parameters(),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    });
    if !open {
        document["security"] = json!([{ "token": [] }]);
    }
    document
}

/// What a kind of entity is called among the schemas.
fn name_of(kind: EntityKind, side: Direction) -> String {
    let name = kind.as_str();
    match side {
        Direction::Response => name.to_owned(),
        Direction::Request => format!("{name}_written"),
    }
}

fn schema_ref(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn response_ref(name: &str) -> Value {
    json!({ "$ref": format!("#/components/responses/{name}") })
}

/// A response with a JSON body.
fn answer(description: &str, schema: Value) -> Value {
    json!({ "description": description, "content": { "application/json": { "schema": schema } } })
}

fn schemas(plugins: &[PluginSchema]) -> Value {
    let mut schemas: Value = kinds(plugins)
        .into_iter()
        .flat_map(|kind| {
            [Direction::Response, Direction::Request]
                .map(|side| (name_of(kind, side), entities::schema(kind, side)))
        })
        .collect();
    schemas["message"] = json!({ "type": "object", "properties": { "message": { "type": "string" } }, "required": ["message"] });
    schemas["error"] = json!({
        "type": "object",
        "properties": {
            "code": { "type": "integer" },
            "name": { "type": "string" },
            "message": { "type": "string" },
            "fields": { "type": "object" },
            "hint": { "type": "string" },
        },
        "required": ["message"],
    });
    schemas
}

fn responses() -> Value {
    let responses = [
        ("Invalid", "The request breaks a rule", "error"),
        ("Unauthorized", "No valid token was shown", "message"),
        ("Forbidden", "A web page asked", "message"),
        ("NotFound", "There is nothing here", "message"),
        ("MethodNotAllowed", "This cannot be done here, or not without a database", "error"),
        ("Taken", "Another entity has a value that must be unique", "error"),
        ("Changed", "The entity is not the one that If-Match names", "message"),
        ("TooLarge", "The body is too long", "message"),
        ("TooSlow", "The body came too slowly", "message"),
        ("NotInForce", "It is stored, and cannot be served: only with `wait`", "message"),
        ("MediaType", "The body is of a type that is not read", "message"),
        ("Unavailable", "The database cannot be reached; nothing was changed", "message"),
    ];
    responses
        .into_iter()
        .map(|(name, description, schema)| (name.to_owned(), answer(description, schema_ref(schema))))
        .collect()
}

fn parameters() -> Value {
    let query = |name: &str, description: &str, schema: Value| json!({ "name": name, "in": "query", "description": description, "schema": schema });
    json!({
        "size": query("size", "How many a page holds.", json!({ "type": "integer", "minimum": 1, "maximum": 1000, "default": 100 })),
        "offset": query("offset", "Where a page starts: the `offset` of the page before.", json!({ "type": "string" })),
        "tags": query("tags", "Only entities with all of these tags, `a,b`, or with any of them, `a/b`.", json!({ "type": "string" })),
        "wait": query("wait", "Answers once every worker serves the change.", json!({ "type": "boolean", "default": false })),
        "if_match": json!({
            "name": "If-Match", "in": "header", "description": "Only if the entity's ETag is this.",
            "schema": { "type": "string" },
        }),
    })
}

/// The parameters that a path names.
fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let schema = json!({ "type": "string", "minLength": 1 });
    names.map(|name| json!({ "name": name, "in": "path", "required": true, "schema": schema })).collect()
}

/// One operation: its name, and its responses besides those that every operation has.
fn operation(id: &str, summary: &str, responses: Value) -> Value {
    let mut operation = json!({ "operationId": id, "summary": summary, "responses": responses });
    for (status, name) in [("401", "Unauthorized"), ("403", "Forbidden"), ("405", "MethodNotAllowed")] {
        operation["responses"][status] = response_ref(name);
    }
    operation
}
