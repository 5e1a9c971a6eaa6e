//! What of an entity a write cannot change.

use super::response::ApiError;
use crate::registry::Op;
use weir_model::entity::{CustomEntitySchema, Entity, EntityKind};
use weir_model::schema::{Json, JsonMap};

/// The id of an entity cannot change.
pub(super) fn keeps_id(change: &JsonMap, found: &Entity) -> Result<(), ApiError> {
    let Some(written) = change.get("id").filter(|id| !id.is_null()) else { return Ok(()) };
    let message = match written.as_str().and_then(weir_model::rule::id) {
        Some(id) if id == found.id() => return Ok(()),
        Some(_) => "immutable field cannot be updated",
        None => "expected a valid UUID",
    };
    Err(ApiError::violation("id", message))
}

/// The name of a plugin entity cannot change, because its configuration belongs to that name.
pub(super) fn keeps_plugin(change: &JsonMap, found: &Entity) -> Result<(), ApiError> {
    match (found, change.get("name").and_then(Json::as_str)) {
        (Entity::Plugins(plugin), Some(name)) if name != plugin.name => {
            let message = "a plugin's name cannot be changed: delete it and create another";
            Err(ApiError::violation("name", message))
        }
        _ => Ok(()),
    }
}

/// A field that is immutable keeps the value that it has.
pub(super) fn keeps_immutable(ops: &[Op], found: &Entity) -> Result<(), ApiError> {
    let mut immutable = found.kind().schema().fields.iter().filter(|field| field.immutable).peekable();
    let new = ops.iter().find_map(|op| match op {
        Op::Put(new) if new.id() == found.id() => Some(new),
        _ => None,
    });
    let Some(new) = new.filter(|_| immutable.peek().is_some()) else { return Ok(()) };
    let (before, after) = (found.to_value(), new.to_value());
    let is_changed = |name: &str| {
        let was = before.get(name).filter(|value| !value.is_null());
        was.is_some() && was != after.get(name)
    };
    match immutable.find(|field| is_changed(field.name)) {
        Some(field) => Err(ApiError::violation(field.name, "immutable field cannot be updated")),
        None => Ok(()),
    }
}

/// What a plugin declares of an entity.
pub(super) fn custom_schema(entity: &Entity) -> Option<&'static CustomEntitySchema> {
    match entity.kind() {
        EntityKind::Custom(kind) => Some(kind.schema()),
        _ => None,
    }
}

/// A hash is salted with the parent's id: it is wrong below another parent.
pub(super) fn keeps_parent(ops: &[Op], found: &Entity) -> Result<(), ApiError> {
    let schema =
        custom_schema(found).and_then(|schema| Some((schema.hashed?, schema.references().next()?.0)));
    let Some((hashed, parent)) = schema else { return Ok(()) };
    let moves = |op: &Op| match op {
        Op::Put(new) => new.id() == found.id() && new.references() != found.references(),
        Op::Delete(..) => false,
    };
    let message = format!("all or none of these fields must be set: '{hashed}', '{parent}.id'");
    if ops.iter().any(moves) { Err(ApiError::violation("", message)) } else { Ok(()) }
}
