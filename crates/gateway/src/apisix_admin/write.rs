//! A client's write → the changes of entities: the object, the entities derived from it, and those derived from objects
//! that refer to it. Pure, so that it can be decided again after a conflict.
mod configs;

pub(crate) use configs::{Configs, MODIFIED_INDEX, kinds, state_key, take_modified_index, version_field};

use crate::apisix::object::{Invalid, Key, Kind, Objects, all, id_text, naming, stored, to_entity};
use crate::apisix::translate::translate;
use crate::depth::{self, is_deeper};
use crate::registry::Op;
use serde_json::json;
use std::collections::HashSet;
use std::iter;
use weir_model::entity::{ApisixObject, Entity, EntityKind};
use weir_model::schema::Json;
use weir_model::{Entities, PluginSchema, Uuid};

/// How deep an object may be nested. It is stored as a field of an entity, one level down.
const MAX_OBJECT_DEPTH: usize = depth::MAX_DEPTH - 1;
/// How many steps a path below an object may have.
const MAX_PATH_STEPS: usize = 16;

/// A client's write.
#[derive(Clone)]
pub(crate) enum Write {
    /// Create or replace the object.
    Put(Key, Json),
    /// Create an object with a generated id.
    Post(Kind, Json),
    /// Change the object, at a path below it.
    Patch(Key, Vec<String>, Json),
    /// Delete the object.
    Delete(Key),
    /// Replace everything.
    Replace(Configs),
}

/// Why a write fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ObjectWriteError {
    /// The object is invalid.
    Invalid(Invalid),
    /// There is no such object.
    NotFound,
    /// The consumer of the credential does not exist.
    NoConsumer,
}

impl From<Invalid> for ObjectWriteError {
    fn from(invalid: Invalid) -> Self {
        ObjectWriteError::Invalid(invalid)
    }
}

/// What a write depends on besides the entities.
#[derive(Debug, Clone)]
pub(crate) struct WriteContext {
    /// Seconds since 1970.
    pub(crate) now: i64,
    /// Greater than that of any write before.
    pub(crate) index: i64,
    /// The plugins there are.
    pub(crate) plugins: Vec<PluginSchema>,
}

/// Decides a write.
pub(crate) fn decide(
    entities: &Entities,
    write: Write,
    context: &WriteContext,
) -> Result<Vec<Op>, ObjectWriteError> {
    match write {
        Write::Put(key, value) => {
            no_times(&value)?;
            let before = stored(entities, &key);
            put(entities, &key, stamped(&key, value, before, context)?, context)
        }
        Write::Post(kind, value) => {
            if !value[kind.id_field()].is_null() {
                let what = kind.singular();
                return Err(Invalid(format!("wrong {what} id, do not need it")).into());
            }
            no_times(&value)?;
            let mut keys =
                (context.index..).map(|index| Key { kind, owner: None, id: format!("{index:020}") });
            let key = keys.find(|key| stored(entities, key).is_none()).ok_or(ObjectWriteError::NotFound)?;
            put(entities, &key, stamped(&key, value, None, context)?, context)
        }
        Write::Patch(key, path, patch) => {
            let before = stored(entities, &key).ok_or(ObjectWriteError::NotFound)?;
            let mut value = before.value.clone();
            if path.is_empty() {
                merge(&mut value, &patch);
            } else {
                set(&mut value, &path, patch.clone())?;
            }
            if !path.is_empty() || patch["update_time"].is_null() {
                value["update_time"] = context.now.into();
            }
            put(entities, &key, stamped(&key, value, Some(before), context)?, context)
        }
        Write::Delete(key) => delete(entities, &key, context),
        Write::Replace(configs) => configs::decide(entities, &configs, context),
    }
}

/// Clients must not set the times of an object, except by a patch.
fn no_times(value: &Json) -> Result<(), Invalid> {
    for (within, path) in [(value, ""), (&value["upstream"], "upstream."), (&value["plugins"], "plugins.")] {
        if let Some(time) = ["create_time", "update_time"].iter().find(|time| !within[**time].is_null()) {
            return Err(Invalid(format!("the property is forbidden:  {path}{time}")));
        }
    }
    Ok(())
}

/// An object with its id and its times.
fn stamped(
    key: &Key,
    mut value: Json,
    before: Option<&ApisixObject>,
    context: &WriteContext,
) -> Result<Json, Invalid> {
    if !value.is_object() {
        return Err(Invalid::configuration("wrong type: expected object"));
    }
    if is_deeper(&value, MAX_OBJECT_DEPTH) {
        return Err(Invalid::configuration(format!("it is nested deeper than {MAX_OBJECT_DEPTH} levels")));
    }
    if key.kind == Kind::PluginMetadata {
        return Ok(value);
    }
    let field = key.kind.id_field();
    match &value[field] {
        Json::Null => value[field] = key.id.as_str().into(),
        written if id_text(written).as_deref() == Some(&key.id) => {}
        _ if key.kind == Kind::Consumers => return Err(Invalid("wrong username".to_owned())),
        _ => return Err(Invalid(format!("wrong {} id", key.kind.singular()))),
    }
    if value["create_time"].is_null() {
        let created = before.map(|before| before.value["create_time"].clone()).filter(|time| !time.is_null());
        value["create_time"] = created.unwrap_or_else(|| context.now.into());
    }
    if value["update_time"].is_null() {
        value["update_time"] = context.now.into();
    }
    Ok(value)
}

/// RFC 7386: null removes a member.
fn merge(value: &mut Json, patch: &Json) {
    let Json::Object(members) = patch else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    for (name, member) in members {
        match member {
            Json::Null => drop(value.as_object_mut().and_then(|object| object.remove(name))),
            _ => merge(&mut value[name], member),
        }
    }
}

/// Replaces the value at a path, or removes it.
fn set(value: &mut Json, path: &[String], by: Json) -> Result<(), Invalid> {
    let no_such = || Invalid("invalid sub-path: it leads nowhere".to_owned());
    let [parents @ .., last] = path else { return Err(no_such()) };
    if path.len() > MAX_PATH_STEPS {
        return Err(Invalid(format!("invalid sub-path: it has more than {MAX_PATH_STEPS} steps")));
    }
    let mut at = value;
    for name in parents {
        at = match at {
            Json::Object(members) => members.get_mut(name),
            Json::Array(elements) => name.parse().ok().and_then(|index: usize| elements.get_mut(index)),
            _ => None,
        }
        .ok_or_else(no_such)?;
    }
    match (at, by) {
        (Json::Object(members), Json::Null) => drop(members.remove(last)),
        (Json::Object(members), by) => drop(members.insert(last.clone(), by)),
        (Json::Array(elements), by) => {
            let index = last.parse().ok().and_then(|index: usize| elements.get_mut(index));
            *index.ok_or_else(no_such)? = by;
        }
        _ => return Err(no_such()),
    }
    Ok(())
}

/// All objects, with one of them as the write leaves it.
struct PendingObjects<'e> {
    entities: &'e Entities,
    key: &'e Key,
    /// None if it is deleted.
    value: Option<&'e Json>,
}

impl Objects for PendingObjects<'_> {
    fn value(&self, key: &Key) -> Option<&Json> {
        if key == self.key { self.value } else { self.entities.value(key) }
    }
}

fn put(
    entities: &Entities,
    key: &Key,
    value: Json,
    context: &WriteContext,
) -> Result<Vec<Op>, ObjectWriteError> {
    let consumer = key.owner.as_ref().filter(|_| key.kind == Kind::Credentials);
    if consumer.is_some_and(|consumer| !is_there(entities, consumer)) {
        return Err(ObjectWriteError::NoConsumer);
    }
    let objects = PendingObjects { entities, key, value: Some(&value) };
    let translated = translate(key, &value, &objects, &context.plugins)?;
    let mut changes = Changes { entities, put: Vec::new(), gone: Vec::new() };
    changes.put.push(to_entity(key, &translated.value, stored(entities, key), context.index)?);
    changes.replace(owned(entities, key, &context.plugins), translated.entities);
    changes.follow(&objects, context)?;
    Ok(changes.into_ops())
}

fn is_there(entities: &Entities, consumer: &str) -> bool {
    Key::new(Kind::Consumers, consumer).is_ok_and(|consumer| stored(entities, &consumer).is_some())
}

fn delete(entities: &Entities, key: &Key, context: &WriteContext) -> Result<Vec<Op>, ObjectWriteError> {
    stored(entities, key).ok_or(ObjectWriteError::NotFound)?;
    let is_needed = key.kind != Kind::PluginMetadata;
    if let Some((user, _)) = naming(entities, key).first().filter(|_| is_needed) {
        let (what, by) = (key.kind.singular(), user.kind.singular());
        let directly = if key.kind == Kind::Services { " directly" } else { "" };
        let message =
            format!("can not delete this {what}{directly}, {by} [{}] is still using it now", user.id);
        return Err(Invalid(message).into());
    }
    let mut changes = Changes { entities, put: Vec::new(), gone: Vec::new() };
    for key in iter::once(key.clone()).chain(credentials(entities, key)) {
        changes.gone.push((EntityKind::ApisixObjects, key.object_uuid()));
        changes.replace(owned(entities, &key, &context.plugins), Vec::new());
    }
    changes.follow(&PendingObjects { entities, key, value: None }, context)?;
    Ok(changes.into_ops())
}

/// The credentials of a consumer, which are deleted with it.
fn credentials(entities: &Entities, consumer: &Key) -> Vec<Key> {
    if consumer.kind != Kind::Consumers {
        return Vec::new();
    }
    let keys = all(entities, Kind::Credentials).map(|(key, _)| key);
    keys.filter(|key| key.owner.as_ref() == Some(&consumer.id)).collect()
}

/// The objects whose translation depends on this one, referenced ones first.
fn dependents<'e>(entities: &'e Entities, key: &Key) -> Vec<(Key, &'e ApisixObject)> {
    let mut all = naming(entities, key);
    for at in 0..all.len() {
        let further = naming(entities, &all[at].0);
        all.extend(further);
    }
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all.dedup_by(|(a, _), (b, _)| a == b);
    all
}

/// The entities derived from an object as it is now.
fn owned(entities: &Entities, key: &Key, plugins: &[PluginSchema]) -> Vec<(EntityKind, Uuid)> {
    let Some(object) = stored(entities, key) else { return Vec::new() };
    let of = |entity: &Entity| (entity.kind(), entity.id());
    match translate(key, &object.value, entities, plugins) {
        Ok(translated) => translated.entities.iter().map(of).collect(),
        // An object that no longer translates: its entities are found by their tags, which takes longer.
        Err(_) => {
            let tag = key.tag();
            entities.iter().filter(|entity| entity.tags().contains(&tag)).map(of).collect()
        }
    }
}

/// The changes of a write, in an order in which every referenced entity exists.
struct Changes<'e> {
    entities: &'e Entities,
    put: Vec<Entity>,
    gone: Vec<(EntityKind, Uuid)>,
}

impl Changes<'_> {
    fn replace(&mut self, before: Vec<(EntityKind, Uuid)>, after: Vec<Entity>) {
        let kept: HashSet<_> = after.iter().map(|entity| (entity.kind(), entity.id())).collect();
        self.gone.extend(before.into_iter().filter(|entity| !kept.contains(entity)));
        let entities = self.entities;
        let differs = |entity: &Entity| entities.get(entity.kind(), entity.id()) != Some(entity);
        self.put.extend(after.into_iter().filter(differs));
    }

    /// Translates the objects again that depend on the one that is written.
    fn follow(
        &mut self,
        objects: &PendingObjects<'_>,
        context: &WriteContext,
    ) -> Result<(), ObjectWriteError> {
        let entities = self.entities;
        for (dependent, object) in dependents(entities, objects.key) {
            let after = translate(&dependent, &object.value, objects, &context.plugins).map_err(
                |Invalid(message)| {
                    Invalid(format!("{} {}: {message}", dependent.kind.singular(), dependent.id))
                },
            )?;
            self.replace(owned(entities, &dependent, &context.plugins), after.entities);
        }
        Ok(())
    }

    fn into_ops(self) -> Vec<Op> {
        let entities = self.entities;
        let present = self.gone.into_iter().rev().filter(|(kind, id)| entities.get(*kind, *id).is_some());
        let gone = present.map(|(kind, id)| Op::Delete(kind, id));
        self.put.into_iter().map(Op::Put).chain(gone).collect()
    }
}

#[cfg(test)]
mod tests;
