//! `/schemas`: what entities and plugins are made of, and whether something would be accepted as one.
use crate::admin::edit::no_ids;
use crate::admin::form;
use crate::admin::representation::EXPRESSION_FIELDS;
use crate::admin::request::{ApiRequest, PathParam};
use crate::admin::request_body::Body;
use crate::admin::response::{ApiError, json_response};
use crate::control::Control;
use crate::listener::message;
use crate::low_priority::spawn_low_priority;
use crate::settings::RouterFlavor;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use std::cell::OnceCell;
use std::sync::Arc;
use weir_model::entity::{Entity, EntityKind};
use weir_model::find_plugin;
use weir_model::schema::References;
use weir_model::{EntityKinds, PluginSchema, ReadOptions, Uuid, find_kind};

/// The kinds of entities that Kong has; its tools do not know the others.
pub(super) fn kinds(plugins: &[PluginSchema]) -> Vec<EntityKind> {
    EntityKinds::of(plugins).iter().filter(|kind| *kind != EntityKind::ApisixObjects).collect()
}

fn kind_of(name: &str, plugins: &[PluginSchema]) -> Option<EntityKind> {
    find_kind(plugins, name).filter(|kind| *kind != EntityKind::ApisixObjects)
}

pub(super) async fn of_entity(State(control): State<Arc<Control>>, PathParam(name): PathParam) -> Response {
    match kind_of(&name, control.plugins()) {
        Some(kind) => json_response(StatusCode::OK, &schema(kind, control.settings().router_flavor)),
        None => message(StatusCode::NOT_FOUND, &format!("No entity named '{name}'")),
    }
}

/// The schema of a kind. Routes have expressions in one flavor alone.
fn schema(kind: EntityKind, flavor: RouterFlavor) -> Value {
    let mut schema = kind.schema().to_json();
    let is_hidden = |field: &Value| EXPRESSION_FIELDS.iter().any(|name| field.get(name).is_some());
    if kind == EntityKind::Routes && flavor != RouterFlavor::Expressions {
        schema["fields"]
            .as_array_mut()
            .into_iter()
            .for_each(|fields| fields.retain(|field| !is_hidden(field)));
    }
    schema
}

pub(super) async fn of_plugin(State(control): State<Arc<Control>>, PathParam(name): PathParam) -> Response {
    plugin(&control, &name, PluginSchema::to_json)
}

/// As Kong before 2.0: the configuration alone.
pub(super) async fn of_plugin_config(
    State(control): State<Arc<Control>>,
    PathParam(name): PathParam,
) -> Response {
    plugin(&control, &name, |plugin| plugin.config.to_json())
}

fn plugin(control: &Control, name: &str, schema: fn(&PluginSchema) -> Value) -> Response {
    match find_plugin(control.plugins(), name).filter(|plugin| plugin.available) {
        Some(plugin) => json_response(StatusCode::OK, &schema(plugin)),
        None => message(StatusCode::NOT_FOUND, &format!("No plugin named '{name}'")),
    }
}

pub(super) async fn enabled_plugins(State(control): State<Arc<Control>>) -> Response {
    let names: Vec<_> =
        control.plugins().iter().filter(|plugin| plugin.available).map(|plugin| plugin.name).collect();
    json_response(StatusCode::OK, &json!({ "enabled_plugins": names }))
}

/// Whether an entity would be accepted on its own, without the rules across entities.
pub(super) async fn validate(call: ApiRequest) -> Result<Response, ApiError> {
    // Next to `/schemas/plugins/NAME`, plugins have a path of their own.
    let name = call.ids.first().map_or("plugins", String::as_str);
    let Some(kind) = kind_of(name, call.control.plugins()) else {
        return Ok(message(StatusCode::NOT_FOUND, &format!("No entity named '{name}'")));
    };
    let (control, body) = (call.control, call.body);
    // A long configuration takes long to read, and only the client waits for the response.
    let accepted = spawn_low_priority("weir-validate", move || accept(control, kind, body)).await;
    accepted.map_err(|error| ApiError::Unavailable(error.to_string()))??;
    Ok(message(StatusCode::OK, "schema validation successful"))
}

fn accept(control: Arc<Control>, kind: EntityKind, body: Body) -> Result<(), ApiError> {
    let plugins = control.plugins();
    let mut written = body.members;
    if body.untyped {
        let plugin = written.get("name").and_then(Value::as_str).and_then(|name| find_plugin(plugins, name));
        form::typed(kind, &mut written, plugin);
    }
    no_ids(kind, &written)?;
    let references = AnyId { control: &control, names: OnceCell::new() };
    let reading = ReadOptions { plugins, references: &references, hash_passwords: true };
    let entity = Entity::read(kind, &written.into(), &[], reading).map_err(ApiError::Schema)?;
    // Expressions are compiled by the router, which alone knows what is wrong with one.
    match entity {
        Entity::Routes(_) => control.check(&entity).map_err(ApiError::of_entity),
        _ => Ok(()),
    }
}

/// Finds entities by name, and accepts any id, because a client may validate before it creates the other entity. Takes
/// the lock for each name alone, so that writes need not wait.
struct AnyId<'c> {
    control: &'c Control,
    /// Every name with its kind, once names are asked for.
    names: OnceCell<Vec<(&'static str, String)>>,
}

impl AnyId<'_> {
    fn all_names(&self) -> Vec<(&'static str, String)> {
        let entities = self.control.registry().entities();
        let of = |kind: EntityKind| {
            let kind = kind.as_str();
            entities.names(kind).into_iter().map(|name| (kind, name.to_owned())).collect::<Vec<_>>()
        };
        EntityKind::BUILT_IN.iter().copied().flat_map(of).collect()
    }
}

impl References for AnyId<'_> {
    fn resolve(&self, kind: &str, name: &str) -> Option<Uuid> {
        let found = self.control.registry().entities().resolve(kind, name);
        found.or_else(|| weir_model::rule::id(name))
    }

    fn names(&self, kind: &str) -> Vec<&str> {
        let all = self.names.get_or_init(|| self.all_names());
        all.iter().filter(|(of, _)| *of == kind).map(|(_, name)| name.as_str()).collect()
    }
}
