//! Every entity, with its rules across entities kept at each change.
use crate::document::Document;
use crate::entity::{Change, CustomKind, Entity, EntityKind, OnDelete, Reference, Unique};
use crate::schema::References;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use uuid::Uuid;

/// A change that breaks a rule across entities.
#[derive(Debug, Clone, PartialEq)]
pub enum ConstraintError {
    /// Another entity has the unique value already.
    NotUnique {
        /// The value.
        unique: Unique,
        /// Who has it.
        by: Uuid,
    },
    /// The entity references one that does not exist.
    MissingReference(Reference),
    /// An entity of this kind references the one to be deleted.
    StillReferenced(EntityKind),
}

/// Every entity, found by id, by name, and by what names it.
#[derive(Debug, Clone, Default)]
pub struct Entities {
    by_id: BTreeMap<(EntityKind, Uuid), Entity>,
    by_value: HashMap<(EntityKind, Unique), Uuid>,
    /// Who is named, and by whom.
    referenced_by: BTreeSet<(EntityKind, Uuid, OnDelete, EntityKind, Uuid)>,
    /// Those that end by themselves, by when, in seconds since 1970.
    expiring: BTreeSet<(i64, EntityKind, Uuid)>,
    /// The kinds of plugins of which there are, or were, entities.
    custom_kinds: BTreeSet<CustomKind>,
}

impl Entities {
    /// Those of a document, which breaks no rule.
    pub fn of(document: Document) -> Entities {
        document.into_entities().into_iter().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The entity of this id.
    pub fn get(&self, kind: EntityKind, id: Uuid) -> Option<&Entity> {
        self.by_id.get(&(kind, id))
    }

    /// The entity with this id, or this name.
    pub fn find(&self, kind: EntityKind, id_or_name: &str) -> Option<&Entity> {
        let by_id = crate::rule::id(id_or_name).and_then(|id| self.get(kind, id));
        by_id.or_else(|| self.by_value(kind, kind.key()?, id_or_name))
    }

    /// The entity of which this field, which is unique, has this value.
    pub fn by_value(&self, kind: EntityKind, field: &'static str, value: &str) -> Option<&Entity> {
        let id = self.by_value.get(&(kind, Unique(vec![(field, value.into())])))?;
        self.get(kind, *id)
    }

    /// Entities of a kind, by id, from the one after this id.
    pub fn after(&self, kind: EntityKind, id: Option<Uuid>) -> impl Iterator<Item = &Entity> {
        let from = id.map_or(Bound::Included((kind, Uuid::nil())), |id| Bound::Excluded((kind, id)));
        self.by_id.range((from, Bound::Included((kind, Uuid::max())))).map(|(_, entity)| entity)
    }

    /// Every entity, those of a kind together.
    pub fn iter(&self) -> impl Iterator<Item = &Entity> {
        self.by_id.values()
    }

    /// Entities of a kind that name another, by id, from the one after this id.
    pub fn referencing(
        &self,
        named: (EntityKind, Uuid),
        kind: EntityKind,
        after: Option<Uuid>,
    ) -> impl Iterator<Item = &Entity> {
        let mut ids: Vec<Uuid> = self
            .references_to(named)
            .filter(|(of, id, _)| *of == kind && after.is_none_or(|after| *id > after))
            .map(|(_, id, _)| id)
            .collect();
        ids.sort_unstable();
        ids.into_iter().filter_map(move |id| self.get(kind, id))
    }

    fn references_to(
        &self,
        (kind, id): (EntityKind, Uuid),
    ) -> impl Iterator<Item = (EntityKind, Uuid, OnDelete)> {
        let first = (kind, id, OnDelete::Cascade, EntityKind::Services, Uuid::nil());
        let within = self.referenced_by.range(first..).take_while(move |of| (of.0, of.1) == (kind, id));
        within.map(|(_, _, on_delete, kind, id)| (*kind, *id, *on_delete))
    }

    /// Creates or replaces an entity; the one that was there before is returned.
    ///
    /// # Errors
    /// When it breaks a rule across entities; then nothing is changed.
    pub fn put(&mut self, entity: Entity) -> Result<Option<Entity>, ConstraintError> {
        let (kind, id) = (entity.kind(), entity.id());
        for unique in entity.unique_values() {
            match self.by_value.get(&(kind, unique.clone())) {
                Some(by) if *by != id => return Err(ConstraintError::NotUnique { unique, by: *by }),
                _ => {}
            }
        }
        let unknown = entity.references().into_iter().find(|to| self.get(to.kind, to.id).is_none());
        if let Some(reference) = unknown {
            return Err(ConstraintError::MissingReference(reference));
        }
        let before = self.remove(kind, id);
        self.insert(entity);
        Ok(before)
    }

    /// Deletes an entity, and with it those that are nothing without it. They are returned, in the order in which they
    /// went; none where there was none.
    ///
    /// # Errors
    /// When another names it that must stay; then nothing is changed.
    pub fn delete(&mut self, kind: EntityKind, id: Uuid) -> Result<Vec<Entity>, ConstraintError> {
        let (mut doomed, mut known) = (vec![(kind, id)], HashSet::from([(kind, id)]));
        let mut next = 0;
        while let Some(named) = doomed.get(next).copied() {
            for (kind, id, on_delete) in self.references_to(named) {
                match on_delete {
                    OnDelete::Restrict => return Err(ConstraintError::StillReferenced(kind)),
                    OnDelete::Cascade => doomed.extend(known.insert((kind, id)).then_some((kind, id))),
                }
            }
            next += 1;
        }
        Ok(doomed.into_iter().rev().filter_map(|(kind, id)| self.remove(kind, id)).collect())
    }

    /// Whether some have expired by this time, in seconds since 1970.
    pub fn have_expired(&self, now: i64) -> bool {
        self.expiring.first().is_some_and(|(expires, ..)| *expires <= now)
    }

    /// Deletes those that have expired by this time, in seconds since 1970, and with them those that are nothing without
    /// them. They are returned; one that another names that must stay is not among them.
    pub fn expire(&mut self, now: i64) -> Vec<Entity> {
        let expired: Vec<_> =
            self.expiring.iter().take_while(|(expires, ..)| *expires <= now).copied().collect();
        expired.into_iter().flat_map(|(_, kind, id)| self.delete(kind, id).unwrap_or_default()).collect()
    }

    /// Makes an entity what it was at another time, whatever the rules say: for changes that others have checked, in any
    /// order, and to undo one's own.
    pub fn restore(&mut self, change: Change) {
        self.remove(change.kind, change.id);
        if let Some(entity) = change.entity {
            self.insert(entity);
        }
    }

    /// The whole configuration, for compiling; entities of a kind stand in the order of their ids.
    pub fn document(&self) -> Document {
        let mut document = Document::default();
        self.by_id.values().for_each(|entity| document.push(entity.clone()));
        document
    }

    fn insert(&mut self, entity: Entity) {
        let (kind, id) = (entity.kind(), entity.id());
        if let EntityKind::Custom(kind) = kind {
            self.custom_kinds.insert(kind);
        }
        for unique in entity.unique_values() {
            self.by_value.insert((kind, unique), id);
        }
        for to in entity.references() {
            self.referenced_by.insert((to.kind, to.id, to.on_delete, kind, id));
        }
        self.expiring.extend(entity.expires().map(|expires| (expires, kind, id)));
        self.by_id.insert((kind, id), entity);
    }

    fn remove(&mut self, kind: EntityKind, id: Uuid) -> Option<Entity> {
        let entity = self.by_id.remove(&(kind, id))?;
        for unique in entity.unique_values() {
            // Where changes come in any order, another may have taken the value already.
            if let Entry::Occupied(holder) = self.by_value.entry((kind, unique))
                && *holder.get() == id
            {
                holder.remove();
            }
        }
        for to in entity.references() {
            self.referenced_by.remove(&(to.kind, to.id, to.on_delete, kind, id));
        }
        if let Some(expires) = entity.expires() {
            self.expiring.remove(&(expires, kind, id));
        }
        Some(entity)
    }
}

/// Of entities that break no rule together, in any order.
impl FromIterator<Entity> for Entities {
    fn from_iter<I: IntoIterator<Item = Entity>>(all: I) -> Entities {
        let mut entities = Entities::default();
        all.into_iter().for_each(|entity| entities.insert(entity));
        entities
    }
}

impl Entities {
    /// The kind of this name, unless it is a plugin's and there is no entity of it.
    fn kind_called(&self, name: &str) -> Option<EntityKind> {
        let custom = || self.custom_kinds.iter().find(|kind| kind.schema().name == name);
        EntityKind::from_name(name).or_else(|| custom().copied().map(EntityKind::Custom))
    }
}

impl References for Entities {
    fn resolve(&self, kind: &str, name: &str) -> Option<Uuid> {
        self.find(self.kind_called(kind)?, name).map(Entity::id)
    }

    fn names(&self, kind: &str) -> Vec<&str> {
        let Some(kind) = self.kind_called(kind) else { return Vec::new() };
        self.after(kind, None).filter_map(Entity::name).collect()
    }
}
