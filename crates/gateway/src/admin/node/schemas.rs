//! `/schemas`: what entities and plugins are made of, and whether something would be accepted as one.
use crate::admin::answer::{Denied, json_answer};
use crate::admin::call::Call;
use crate::admin::form;
use crate::control::Control;
use crate::status::message;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;
use weir_model::entity::{Entity, EntityKind};
use weir_model::schema::{Choice, References, find_plugin};
use weir_model::{Entities, PluginSchema, Reading, Uuid};

/// The kinds of entities that Kong has: others are no business of its tools.
pub(super) fn kinds() -> impl Iterator<Item = EntityKind> {
    EntityKind::ALL.iter().copied().filter(|kind| *kind != EntityKind::ApisixObjects)
}

fn kind_of(name: &str) -> Option<EntityKind> {
    kinds().find(|kind| kind.as_str() == name)
}

pub(super) async fn of_entity(Path(name): Path<String>) -> Response {
    match kind_of(&name) {
        Some(kind) => json_answer(StatusCode::OK, &kind.schema().to_json()),
        None => message(StatusCode::NOT_FOUND, &format!("No entity named '{name}'")),
    }
}

pub(super) async fn of_plugin(State(control): State<Arc<Control>>, Path(name): Path<String>) -> Response {
    plugin(&control, &name, PluginSchema::to_json)
}

/// As Kong before 2.0: the configuration alone.
pub(super) async fn of_plugin_config(
    State(control): State<Arc<Control>>,
    Path(name): Path<String>,
) -> Response {
    plugin(&control, &name, |plugin| plugin.config.to_json())
}

fn plugin(control: &Control, name: &str, schema: fn(&PluginSchema) -> Value) -> Response {
    match find_plugin(control.plugins(), name).filter(|plugin| plugin.available) {
        Some(plugin) => json_answer(StatusCode::OK, &schema(plugin)),
        None => message(StatusCode::NOT_FOUND, &format!("No plugin named '{name}'")),
    }
}

pub(super) async fn enabled_plugins(State(control): State<Arc<Control>>) -> Response {
    let names: Vec<_> =
        control.plugins().iter().filter(|plugin| plugin.available).map(|plugin| plugin.name).collect();
    json_answer(StatusCode::OK, &json!({ "enabled_plugins": names }))
}

/// Whether an entity would be accepted, whatever else there is.
pub(super) async fn validate(call: Call) -> Result<Response, Denied> {
    // Next to `/schemas/plugins/NAME`, plugins have a path of their own.
    let name = call.ids.first().map_or("plugins", String::as_str);
    let Some(kind) = kind_of(name) else {
        return Ok(message(StatusCode::NOT_FOUND, &format!("No entity named '{name}'")));
    };
    let plugins = call.control.plugins();
    let mut written = call.body.members;
    if call.body.untyped {
        let plugin = written.get("name").and_then(Value::as_str).and_then(|name| find_plugin(plugins, name));
        form::typed(kind, &mut written, plugin);
    }
    let entities = call.control.registry().entities();
    let references = AnyId(&entities);
    let reading = Reading { plugins, references: &references, hash_passwords: true };
    Entity::read(kind, &written.into(), &[], reading).map_err(Denied::Schema)?;
    Ok(message(StatusCode::OK, "schema validation successful"))
}

/// Finds entities by name, and takes any id for one: who validates may not have created it yet.
struct AnyId<'e>(&'e Entities);

impl References for AnyId<'_> {
    fn resolve(&self, kind: &str, name: &str) -> Option<Uuid> {
        self.0.resolve(kind, name).or_else(|| weir_model::rule::id(name))
    }

    fn names(&self, kind: &str) -> Vec<&str> {
        self.0.names(kind)
    }
}
