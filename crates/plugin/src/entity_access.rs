//! The entities of the node's configuration, for plugins that read and write them while the node runs.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use weir_model::Uuid;
use weir_model::entity::EntityKind;
use weir_model::schema::{Json, JsonMap};

/// What identifies one entity of a kind.
#[derive(Debug, Clone, PartialEq)]
pub enum EntityKey {
    /// Its id.
    Id(Uuid),
    /// The values of fields that no other entity has: references are ids as text, and null is a field without a value.
    Fields(Vec<(&'static str, Json)>),
}

/// A part of the entities of a kind, in the order of their ids.
#[derive(Debug, Clone, Default)]
pub struct EntityPage {
    /// How many at most.
    pub size: usize,
    /// The last one of the page before.
    pub after: Option<Uuid>,
    /// Only those whose field refers to this entity.
    pub foreign: Option<(&'static str, Uuid)>,
    /// Only those with all of these tags, or with `any_tag` one of them.
    pub tags: Vec<String>,
    /// Whether one of the tags is enough.
    pub any_tag: bool,
}

/// How an entity changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntityVerb {
    /// A new one is created.
    Insert,
    /// Some of its fields change.
    Update,
    /// It is replaced, or created.
    Upsert,
    /// It is deleted, with those that are nothing without it.
    Delete,
}

/// A change of one entity.
#[derive(Debug, Clone)]
pub struct EntityWrite {
    /// How it changes.
    pub verb: EntityVerb,
    /// Its kind.
    pub kind: EntityKind,
    /// Which one; none for one that is inserted.
    pub key: Option<EntityKey>,
    /// The fields that are written; references are `{"id": …}`.
    pub members: JsonMap,
}

/// Why a change was not made, in Kong's terms.
#[derive(Debug, Clone, PartialEq)]
pub struct EntityError {
    /// Kong's number of the error.
    pub code: u8,
    /// Its name.
    pub name: String,
    /// What is wrong.
    pub message: String,
    /// What is wrong with which field.
    pub fields: Option<Json>,
}

/// The outcome of a change: the entity as it is now, if there is one.
pub type EntityOutcome = Result<Option<Json>, EntityError>;

/// The entities of the node's configuration. What is returned of one is what the Admin API shows, secrets included.
pub trait EntityAccess: Send + Sync {
    /// Where entities are stored, in Kong's terms: `postgres`, `sqlite`, or `off` where they cannot be written.
    fn strategy(&self) -> &'static str;

    /// Every kind of entity.
    fn kinds(&self) -> Vec<EntityKind>;

    /// One entity.
    fn find(&self, kind: EntityKind, key: &EntityKey) -> Option<Json>;

    /// Some entities, and the id of the last one where more follow.
    fn page(&self, kind: EntityKind, page: &EntityPage) -> (Vec<Json>, Option<Uuid>);

    /// Makes a change, as the Admin API does.
    fn write(&self, write: EntityWrite) -> Pin<Box<dyn Future<Output = EntityOutcome> + Send>>;
}

/// Where plugins find [`EntityAccess`] once the node runs: a value of [`Retained`](super::Retained).
#[derive(Default)]
pub struct EntityDatabase(OnceLock<Arc<dyn EntityAccess>>);

impl EntityDatabase {
    /// Has plugins use this. The first one stays.
    pub fn provide(&self, access: Arc<dyn EntityAccess>) {
        // A node provides one.
        let _ = self.0.set(access);
    }

    /// None until the node serves its first configuration.
    pub fn access(&self) -> Option<&Arc<dyn EntityAccess>> {
        self.0.get()
    }
}
