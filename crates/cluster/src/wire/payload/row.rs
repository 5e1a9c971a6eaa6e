//! One entity as Kong stores it.
use serde_json::{Value, json};
use weir_model::entity::Entity;
use weir_model::kong_schema::take_unknown;
use weir_model::schema::{FieldSchema, Kind};
use weir_model::{PluginSchema, entity::EntityKind};

/// How foreign keys are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignKeys {
    /// As an id: in a configuration that is sent whole.
    Bare,
    /// As `{"id": …}`: in the increments of `/v2/outlet`.
    Objects,
}

/// The entity with Kong's fields alone, and the paths of those that had an effect and are not among them.
pub fn row(entity: &Entity, foreign_keys: ForeignKeys, plugins: &[PluginSchema]) -> (Value, Vec<String>) {
    let kind = entity.kind();
    let mut row = entity.to_value();
    let taken = take_unknown(kind, &mut row, plugins);
    if foreign_keys == ForeignKeys::Objects {
        for field in kind.schema().fields.iter().filter(|field| is_foreign_key(field)) {
            if let Some(id) = row.get_mut(field.name).filter(|id| id.is_string()) {
                *id = json!({ "id": id.take() });
            }
        }
    }
    if let Some(ttl) = ttl_field(kind).and_then(|ttl| row.get_mut(ttl)) {
        // Data planes subtract their clock.
        *ttl = entity.expires().map_or(Value::Null, Value::from);
    }
    if let (Entity::Routes(route), Value::Object(members)) = (entity, &mut row)
        && route.expression.is_none()
    {
        // Kong has them where its router takes expressions.
        ["expression", "priority"].iter().for_each(|field| drop(members.remove(*field)));
    }
    (row, taken)
}

/// The field that says when entities of a kind expire.
pub(super) fn ttl_field(kind: EntityKind) -> Option<&'static str> {
    match kind {
        EntityKind::Custom(kind) => kind.schema().ttl,
        _ => None,
    }
}

fn is_foreign_key(field: &FieldSchema) -> bool {
    field.foreign.is_some() && matches!(field.kind, Kind::Uuid)
}
