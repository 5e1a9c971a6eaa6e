//! An object of APISIX → entities. A pure function of the object and of those that it refers to.
mod checks;
mod consumer;
mod json_schema;
mod mistakes;
mod plugins;
mod proto;
mod references;
mod route;
mod schema;
mod secret;
mod ssl;
mod stream;
mod upstream;

pub(crate) use json_schema::{Described, schema_of, validate};
pub(crate) use mistakes::{mistakes, named_by, unknown_members};
pub(crate) use plugins::configured_fields;
pub(crate) use plugins::described as plugins_described;
pub(crate) use plugins::is_available as is_plugin_available;

use super::object::{Invalid, Key, Kind, Objects};
use schema::{PluginSet, read};
use serde_json::json;
use weir_model::entity::{Entity, EntityKind};
use weir_model::schema::{Json, Record};
use weir_model::{PluginSchema, ReadOptions, Uuid, find_kind};

/// The result of a translation.
pub(crate) struct Translated {
    /// The object with APISIX's defaults filled in.
    pub(crate) value: Json,
    /// The derived entities, referenced ones first.
    pub(crate) entities: Vec<Entity>,
}

/// Translates an object.
///
/// # Errors
/// When the object breaks a rule of its kind, refers to a missing object, or needs what is not supported here.
pub(crate) fn translate(
    key: &Key,
    written: &Json,
    objects: &dyn Objects,
    plugins: &[PluginSchema],
) -> Result<Translated, Invalid> {
    let mut into = Entities { key, written, objects, plugins, found: Vec::new() };
    let mut value = written.clone();
    match key.kind {
        Kind::Upstreams => upstream::translate(&mut into, &mut value)?,
        Kind::Services => upstream::translate_service(&mut into, &mut value, objects)?,
        Kind::Routes => route::translate(&mut into, &mut value, objects)?,
        Kind::Consumers => consumer::translate(&mut into, &mut value, objects)?,
        Kind::Credentials => consumer::translate_credential(&mut into, &mut value)?,
        Kind::Ssls => ssl::translate(&mut into, &mut value)?,
        Kind::Secrets => secret::translate(&mut into, &mut value)?,
        Kind::Protos => proto::check(&mut value)?,
        Kind::StreamRoutes => stream::translate(&mut into, &mut value, objects)?,
        Kind::ConsumerGroups => consumer::translate_group(&mut into, &mut value)?,
        Kind::PluginConfigs => {
            let set: PluginSet = fill(&mut value)?;
            plugins::check(&into, &set.plugins, &mut value)?;
        }
        Kind::PluginMetadata => metadata(key, plugins)?,
        Kind::Configs => {}
        Kind::GlobalRules => {
            let set: PluginSet = fill(&mut value)?;
            plugins::check(&into, &set.plugins, &mut value)?;
            plugins::translate(&mut into, "", &set.plugins, &[])?;
        }
    }
    Ok(Translated { value, entities: into.found })
}

/// What of an object is kept and has no effect here.
pub(crate) fn without_effect(key: &Key, value: &Json) -> Vec<String> {
    match key.kind {
        Kind::Upstreams => upstream::without_effect(value),
        Kind::Routes | Kind::Services | Kind::StreamRoutes => upstream::without_effect(&value["upstream"]),
        Kind::PluginMetadata if !plugins::is_served(&key.id) => {
            vec![format!("plugin_metadata: there is no plugin `{}` here, so that this has no effect", key.id)]
        }
        _ => Vec::new(),
    }
}

/// What is configured for all uses of a plugin is only kept; the objects that use the plugin depend on it.
fn metadata(key: &Key, plugins: &[PluginSchema]) -> Result<(), Invalid> {
    match plugins::may_have_metadata(&key.id, plugins) {
        true => Ok(()),
        false => Err(Invalid("invalid plugin name".to_owned())),
    }
}

/// Reads an object, and fills its defaults in.
fn fill<T: Record>(value: &mut Json) -> Result<T, Invalid> {
    let record: T = read(value)?;
    fill_in(value, &record.to_value());
    Ok(record)
}

/// Adds to a value the members of another that it lacks.
fn fill_in(value: &mut Json, defaults: &Json) {
    let (Json::Object(members), Json::Object(defaults)) = (value, defaults) else { return };
    for (name, default) in defaults.iter().filter(|(_, default)| !default.is_null()) {
        match members.get_mut(name) {
            Some(written) => fill_in(written, default),
            None => drop(members.insert(name.clone(), default.clone())),
        }
    }
}

/// Collects the entities of one object.
struct Entities<'t> {
    key: &'t Key,
    written: &'t Json,
    objects: &'t dyn Objects,
    plugins: &'t [PluginSchema],
    found: Vec<Entity>,
}

impl Entities<'_> {
    /// Adds an entity; its id derives from the part of the object that it stands for.
    fn add(&mut self, kind: EntityKind, part: &str, entity: Json) -> Result<Uuid, Invalid> {
        self.add_as(kind, self.key.uuid(part), entity)
    }

    /// Adds an entity of a kind that a plugin declares.
    fn add_of_plugin(&mut self, kind: &str, plugin: &str, entity: Json) -> Result<(), Invalid> {
        let unknown = || Invalid(format!("unknown plugin [{plugin}]"));
        let kind = find_kind(self.plugins, kind).ok_or_else(unknown)?;
        self.add(kind, plugin, entity).map(drop)
    }

    /// Takes the service back that was added last, where another one stands for it.
    fn forget_service(&mut self) {
        self.found.pop_if(|entity| entity.kind() == EntityKind::Services);
    }

    fn add_as(&mut self, kind: EntityKind, id: Uuid, mut entity: Json) -> Result<Uuid, Invalid> {
        entity["tags"] = json!([self.key.tag()]);
        for (field, of) in [("created_at", "create_time"), ("updated_at", "update_time")] {
            if kind.schema().field(field).is_some() && !self.written[of].is_null() {
                entity[field] = self.written[of].clone();
            }
        }
        let reading = ReadOptions { plugins: self.plugins, references: &(), hash_passwords: true };
        match Entity::read(kind, &entity, &[("id", id)], reading) {
            Ok(entity) => self.found.push(entity),
            Err(found) => return Err(schema::invalid(&found)),
        }
        Ok(id)
    }
}

/// The object that another refers to.
fn named<'o>(objects: &'o dyn Objects, kind: Kind, id: &Json) -> Result<(Key, &'o Json), Invalid> {
    let what = kind.singular();
    let id = super::object::id_text(id)
        .ok_or_else(|| Invalid::configuration(format!("the id of a {what} is a text or a whole number")))?;
    let key = Key::new(kind, id)?;
    match objects.value(&key) {
        Some(value) => Ok((key, value)),
        None => {
            let id = &key.id;
            Err(Invalid(format!("failed to fetch {what} info by {what} id [{id}], response code: 404")))
        }
    }
}

#[cfg(test)]
mod tests;
