//! `/schemas`: what entities and plugins are made of, and whether something would be accepted as one.
use crate::admin::edit::no_ids;
use crate::admin::form;
use crate::admin::kong_words::{WrittenEntity, entity_checks};
use crate::admin::representation::EXPRESSION_FIELDS;
use crate::admin::request::{ApiRequest, PathParam};
use crate::admin::request_body::Body;
use crate::admin::response::{ApiError, json_response};
use crate::admin::snis;
use crate::control::Control;
use crate::listener::message;
use crate::settings::RouterFlavor;
use crate::threads::spawn_low_priority;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use std::cell::OnceCell;
use std::sync::Arc;
use weir_model::entity::{Entity, EntityKind, find_vault};
use weir_model::find_plugin;
use weir_model::schema::References;
use weir_model::{EntityKinds, PluginSchema, ReadOptions, Uuid, config_schema, find_kind};

/// The kinds of entities that Kong has; its tools do not know the others.
pub(super) fn kinds(plugins: &[PluginSchema]) -> Vec<EntityKind> {
    EntityKinds::of(plugins).iter().filter(|kind| *kind != EntityKind::ApisixObjects).collect()
}

fn kind_of(name: &str, plugins: &[PluginSchema]) -> Option<EntityKind> {
    find_kind(plugins, name).filter(|kind| *kind != EntityKind::ApisixObjects)
}

pub(super) async fn of_entity(State(control): State<Arc<Control>>, PathParam(name): PathParam) -> Response {
    match kind_of(&name, control.plugins()) {
        None if name == "tags" => json_response(StatusCode::OK, &of_tags()),
        Some(kind) => json_response(StatusCode::OK, &schema(kind, control.settings().router_flavor)),
        None => message(StatusCode::NOT_FOUND, &format!("No entity named '{name}'")),
    }
}

/// Of what `/tags` lists.
fn of_tags() -> Value {
    let text = |description: &str| json!({ "type": "string", "required": true, "description": description });
    json!({ "fields": [
        { "tag": text("The tag.") },
        { "entity_name": text("The collection of the entity that has it.") },
        { "entity_id": { "type": "string", "required": true, "uuid": true, "description": "The id of the entity." } },
    ] })
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
    entity_checks::add_of_entity(kind, &mut schema);
    schema
}

pub(super) async fn of_plugin(State(control): State<Arc<Control>>, PathParam(name): PathParam) -> Response {
    plugin(&control, &name, |plugin| {
        let mut schema = plugin.to_json();
        entity_checks::add_of_plugin(plugin.name, &mut schema);
        schema
    })
}

/// As Kong before 2.0: the configuration alone.
pub(super) async fn of_plugin_config(
    State(control): State<Arc<Control>>,
    PathParam(name): PathParam,
) -> Response {
    plugin(&control, &name, |plugin| plugin.config.to_json())
}

pub(super) async fn of_vault(PathParam(name): PathParam) -> Response {
    match find_vault(&name) {
        Some(vault) => json_response(StatusCode::OK, &vault.to_json()),
        None => message(StatusCode::NOT_FOUND, &format!("No vault named '{name}'")),
    }
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
    let name = call.ids.first().map_or("", String::as_str);
    match kind_of(name, call.control.plugins()) {
        Some(kind) => validate_as(kind, call).await,
        None => Ok(message(StatusCode::NOT_FOUND, &format!("No entity named '{name}'"))),
    }
}

/// The same of plugins, whose path is next to `/schemas/plugins/NAME`.
pub(super) async fn validate_plugin(call: ApiRequest) -> Result<Response, ApiError> {
    validate_as(EntityKind::Plugins, call).await
}

/// The same of vaults, whose path is next to `/schemas/vaults/NAME`.
pub(super) async fn validate_vault(call: ApiRequest) -> Result<Response, ApiError> {
    validate_as(EntityKind::Vaults, call).await
}

async fn validate_as(kind: EntityKind, call: ApiRequest) -> Result<Response, ApiError> {
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
        let name = written.get("name").and_then(Value::as_str);
        let config_schema = name.and_then(|name| config_schema(plugins, kind, name));
        form::typed(kind, &mut written, config_schema);
    }
    snis::check(kind, &mut written)?;
    no_ids(kind, &written)?;
    let references = AnyId { control: &control, names: OnceCell::new() };
    let reading = ReadOptions { plugins, references: &references, hash_passwords: true };
    let members = written.into();
    let read = Entity::read(kind, &members, &[], reading);
    let written = WrittenEntity { kind, members: &members, plugins };
    let entity = read.map_err(|errors| ApiError::Schema(written.violations(&errors)))?;
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
