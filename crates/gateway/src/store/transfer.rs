//! `weir config db_import` and `db_export`: a store and a declarative file.
mod kong;

use super::yaml::to_yaml;
use super::{Committed, Loaded, Store, StoreError};
use crate::depth::{MAX_DEPTH, is_too_deep};
use serde_json::{Map, Value, json};
use std::fmt;
use std::time::Duration;
use weir_model::entity::{Entity, EntityKind, Unique};
use weir_model::schema::{FieldSchema, Kind};
use weir_model::{Change, ConstraintError, Document, Entities, EntityKinds, PluginSchema, ReadOptions};

/// How often an import begins anew because another node has committed first.
const MAX_IMPORT_ATTEMPTS: u32 = 20;

/// Why an import stores nothing.
#[derive(Debug)]
pub(crate) enum ImportError {
    /// The store fails.
    Store(StoreError),
    /// An entity conflicts with stored ones.
    Refused(EntityKind, weir_model::Uuid, ConstraintError),
    /// An entity is nested too deep to be stored.
    TooDeep(EntityKind, weir_model::Uuid),
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImportError::Store(error) => error.fmt(f),
            ImportError::TooDeep(kind, id) => {
                write!(
                    f,
                    "{} {id}: it is nested deeper than {MAX_DEPTH} levels: make it flatter",
                    kind.as_str()
                )
            }
            ImportError::Refused(kind, id, refusal) => {
                write!(f, "{} {id}: ", kind.as_str())?;
                match refusal {
                    ConstraintError::NotUnique { unique, by } => write!(
                        f,
                        "{by} in the database has the same {}: delete that one, or give this one its id",
                        fields(unique)
                    ),
                    ConstraintError::MissingReference(to) => {
                        write!(
                            f,
                            "its `{}` names {} {}, which is not there",
                            to.field,
                            to.kind.as_str(),
                            to.id
                        )
                    }
                    ConstraintError::StillReferenced(by) => write!(f, "one of the {} names it", by.as_str()),
                }
            }
        }
    }
}

/// Adds a document's entities to a store; they replace those with the same ids. Returns how many.
pub(crate) async fn import(
    store: &dyn Store,
    document: Document,
    plugins: &[PluginSchema],
    now: Duration,
) -> Result<usize, ImportError> {
    let entities = document.into_entities();
    for _ in 0..MAX_IMPORT_ATTEMPTS {
        let Loaded { revision, entities: kept } = store.load().await.map_err(ImportError::Store)?;
        let mut all = Entities::from_iter(kept);
        // The unique values of expired entities, such as keys, are free.
        let expired = all.expire(now.as_secs().cast_signed());
        let mut changes: Vec<_> =
            expired.iter().map(|entity| Change::delete(entity.kind(), entity.id())).collect();
        for entity in &entities {
            let (kind, id) = (entity.kind(), entity.id());
            if is_too_deep(entity) {
                return Err(ImportError::TooDeep(kind, id));
            }
            let entity = dated(entity, all.get(kind, id), plugins, now);
            all.put(entity.clone()).map_err(|refusal| ImportError::Refused(kind, id, refusal))?;
            changes.push(Change::put(entity));
        }
        if let Committed::At(_) = store.commit(revision, &changes).await.map_err(ImportError::Store)? {
            return Ok(entities.len());
        }
    }
    let why = "other nodes commit first each time: import it again, or stop what writes to the Admin API";
    Err(ImportError::Store(StoreError::Unavailable(why.to_owned())))
}

/// The entity with its times: when it was created, and that it was changed now.
fn dated(entity: &Entity, before: Option<&Entity>, plugins: &[PluginSchema], now: Duration) -> Entity {
    let mut value = entity.to_value();
    let now = match entity.kind() {
        EntityKind::Targets => json!(now.as_secs_f64()),
        _ => json!(now.as_secs()),
    };
    if let Some(created) = value.get_mut("created_at").filter(|created| created.is_null()) {
        let before = before.map(|before| before.to_value()["created_at"].take());
        *created = before.filter(|before| !before.is_null()).unwrap_or_else(|| now.clone());
    }
    if let Some(updated) = value.get_mut("updated_at") {
        *updated = now;
    }
    // An entity that was read once can be read again; if not, it only lacks the times.
    read(entity.kind(), &value, plugins).unwrap_or_else(|| entity.clone())
}

fn read(kind: EntityKind, value: &Value, plugins: &[PluginSchema]) -> Option<Entity> {
    Entity::read(kind, value, &[], ReadOptions { plugins, references: &(), hash_passwords: false }).ok()
}

/// How fields without a value are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unset {
    /// They are null, as Kong shows them.
    Shown,
    /// They are left out where that reads as the same.
    LeftOut,
}

/// Everything, as a declarative file in YAML that imports as the same.
pub(crate) fn export(entities: &[Entity], plugins: &[PluginSchema], unset: Unset) -> String {
    to_yaml(&Value::Object(document(entities, plugins, unset)))
}

/// The same for Kong, and what of it Kong lacks, which is left out.
pub(crate) fn export_for_kong(entities: &[Entity], plugins: &[PluginSchema]) -> (String, Vec<String>) {
    let mut left_out = Vec::new();
    let known = kong::known(entities, plugins, &mut left_out);
    let mut document = document(&known, plugins, Unset::LeftOut);
    kong::leave_out(&mut document, plugins, &mut left_out);
    (to_yaml(&Value::Object(document)), left_out)
}

fn document(entities: &[Entity], plugins: &[PluginSchema], unset: Unset) -> Map<String, Value> {
    let mut document = Map::new();
    document.insert("_format_version".to_owned(), "3.0".into());
    // Passwords are hashed already.
    document.insert("_transform".to_owned(), false.into());
    for kind in EntityKinds::of(plugins).iter() {
        let mut of_kind: Vec<_> = entities.iter().filter(|entity| entity.kind() == kind).collect();
        of_kind.sort_unstable_by_key(|entity| entity.id());
        if !of_kind.is_empty() {
            let written = of_kind.into_iter().map(|entity| written(entity, plugins, unset)).collect();
            document.insert(kind.as_str().to_owned(), written);
        }
    }
    document
}

/// An entity as a file has it, without unset members where that reads as the same.
fn written(entity: &Entity, plugins: &[PluginSchema], unset: Unset) -> Value {
    let full = entity.to_value();
    let mut brief = full.clone();
    without_nulls(&mut brief);
    let is_same = || read(entity.kind(), &brief, plugins).is_some_and(|read| read == *entity);
    let mut value = if unset == Unset::LeftOut && is_same() { brief } else { full };
    for field in entity.kind().schema().fields.iter().filter(|field| is_reference(field)) {
        if let Some(reference) = value.get_mut(field.name)
            && let Some(id) = reference.get_mut("id")
        {
            *reference = id.take();
        }
    }
    if let (Entity::Routes(route), Value::Object(members)) = (entity, &mut value)
        && route.expression.is_none()
    {
        // Kong knows them where `router_flavor` is `expressions` alone.
        ["expression", "priority"].iter().for_each(|field| drop(members.remove(*field)));
    }
    literal(&mut value);
    value
}

fn is_reference(field: &FieldSchema) -> bool {
    field.foreign.is_some() && matches!(field.kind, Kind::Uuid)
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(without_nulls);
        }
        Value::Array(elements) => elements.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// Escapes `${NAME}` in values, so that it is not read from the environment.
fn literal(value: &mut Value) {
    match value {
        Value::String(text) => *text = text.replace("${", "$${"),
        Value::Array(elements) => elements.iter_mut().for_each(literal),
        Value::Object(members) => members.values_mut().for_each(literal),
        _ => {}
    }
}

fn fields(unique: &Unique) -> String {
    unique.0.iter().map(|(field, _)| format!("`{field}`")).collect::<Vec<_>>().join(", ")
}
