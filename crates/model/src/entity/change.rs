//! A change of one entity.
use super::{Entity, EntityKind};
use uuid::Uuid;

/// What a change leaves behind: the entity as it is now, or nothing of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The kind.
    pub kind: EntityKind,
    /// The id.
    pub id: Uuid,
    /// The entity; none once it is deleted.
    pub entity: Option<Entity>,
}

impl Change {
    /// An entity created or replaced.
    pub fn put(entity: Entity) -> Change {
        Change { kind: entity.kind(), id: entity.id(), entity: Some(entity) }
    }

    /// An entity deleted.
    pub fn delete(kind: EntityKind, id: Uuid) -> Change {
        Change { kind, id, entity: None }
    }
}
