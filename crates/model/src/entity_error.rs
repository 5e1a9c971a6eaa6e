//! Errors and warnings about entities of a document.
use crate::entity::EntityKind;

/// An entity of a document that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntityError {
    /// The entity: its kind, and its place in that kind's collection.
    pub entity: (EntityKind, usize),
    /// The field, or empty for the whole entity.
    pub path: String,
    /// What is wrong and how to fix it.
    pub message: String,
    /// The entity that was there first.
    pub earlier: Option<(EntityKind, usize)>,
}

impl EntityError {
    /// An error of one entity.
    pub fn new(entity: (EntityKind, usize), path: impl Into<String>, message: impl Into<String>) -> Self {
        EntityError { entity, path: path.into(), message: message.into(), earlier: None }
    }
}

/// An entity that is probably a mistake, or without effect. It has the form of an error.
pub type EntityWarning = EntityError;
