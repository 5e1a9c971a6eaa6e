//! Custom entities: those that plugins declare, such as the credentials of an authentication plugin. The model knows
//! them by their declarations alone and keeps each as the plugin's own struct, so that nothing is read twice.
mod declared;
mod schema;

pub use schema::{CustomEntity, CustomEntitySchema, DerivedId};

use super::{OnDelete, Reference, Unique, reference_value};
use crate::node::Node;
use crate::schema::{FieldValue, Json, Reader, Record, RecordContext};
use std::any::Any;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use uuid::Uuid;

/// A kind of entity that a plugin declares. Two are the same if they have the same name.
#[derive(Clone, Copy)]
pub struct CustomKind(&'static CustomEntitySchema);

impl CustomKind {
    /// The kind of a declaration.
    pub const fn new(schema: &'static CustomEntitySchema) -> Self {
        CustomKind(schema)
    }

    /// The kind of a struct.
    pub const fn of<T: CustomEntity>() -> Self {
        CustomKind(T::ENTITY)
    }

    /// Its declaration.
    pub const fn schema(self) -> &'static CustomEntitySchema {
        self.0
    }
}

impl PartialEq for CustomKind {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0) || self.0.name == other.0.name
    }
}

impl Eq for CustomKind {}

impl Hash for CustomKind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl PartialOrd for CustomKind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for CustomKind {
    fn cmp(&self, other: &Self) -> Ordering {
        if std::ptr::eq(self.0, other.0) { Ordering::Equal } else { self.0.name.cmp(other.0.name) }
    }
}

impl fmt::Debug for CustomKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

/// A custom entity, its type erased. A clone shares it. `Debug` shows the id alone, because fields may be secret.
#[derive(Clone)]
pub struct CustomRecord(Arc<dyn AnyEntity>);

/// What of a custom entity does not depend on its type.
trait AnyEntity: Send + Sync {
    fn schema(&self) -> &'static CustomEntitySchema;
    fn field_value(&self, name: &str) -> FieldValue<'_>;
    fn to_value(&self) -> Json;
    fn equals(&self, other: &dyn AnyEntity) -> bool;
    fn as_any(&self) -> &dyn Any;
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl<T: CustomEntity> AnyEntity for T {
    fn schema(&self) -> &'static CustomEntitySchema {
        T::ENTITY
    }

    fn field_value(&self, name: &str) -> FieldValue<'_> {
        Record::field_value(self, name)
    }

    fn to_value(&self) -> Json {
        Record::to_value(self)
    }

    fn equals(&self, other: &dyn AnyEntity) -> bool {
        other.as_any().downcast_ref::<T>().is_some_and(|other| self == other)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl CustomRecord {
    /// Erases the type of an entity.
    pub fn new<T: CustomEntity>(entity: T) -> Self {
        CustomRecord(Arc::new(entity))
    }

    /// An entity without a struct, as it was read by its declaration.
    pub(crate) fn declared(schema: &'static CustomEntitySchema, value: Json) -> Self {
        CustomRecord(Arc::new(declared::DeclaredEntity::new(schema, value)))
    }

    /// Its kind.
    pub fn kind(&self) -> CustomKind {
        CustomKind(self.0.schema())
    }

    /// Its id.
    pub fn id(&self) -> Uuid {
        self.reference("id").unwrap_or_default()
    }

    /// Its tags.
    pub fn tags(&self) -> &[String] {
        match self.0.field_value("tags") {
            FieldValue::Texts(tags) => tags,
            _ => &[],
        }
    }

    /// The value of a field.
    pub fn field_value(&self, name: &str) -> FieldValue<'_> {
        self.0.field_value(name)
    }

    /// The text of a field.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.0.field_value(name) {
            FieldValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// As JSON, every field present, null when unset.
    pub fn to_value(&self) -> Json {
        self.0.to_value()
    }

    /// The plugin's own struct, if it is of that type.
    pub fn get<T: CustomEntity>(&self) -> Option<&T> {
        self.0.as_any().downcast_ref()
    }

    /// The same, shared.
    pub fn share<T: CustomEntity>(&self) -> Option<Arc<T>> {
        self.0.clone().into_any().downcast().ok()
    }

    /// The same entity with another value of a field, unless that value is not valid.
    pub fn with(&self, field: &str, value: Json) -> Option<Self> {
        let mut written = self.to_value();
        *written.get_mut(field)? = value;
        let mut reader = Reader::new(&());
        let entity = self.0.schema().read(&Node::from(&written), &RecordContext::NONE, false, &mut reader)?;
        reader.into_errors().is_empty().then_some(entity)
    }

    /// Whether it is the very same entity, not one that is equal.
    pub fn is_same(&self, other: &Self) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.0), Arc::as_ptr(&other.0))
    }

    /// When it ends by itself, in seconds since 1970; none where it lasts, or where it is unknown when it began.
    pub fn expires(&self) -> Option<i64> {
        match (self.0.field_value(self.0.schema().ttl?), self.0.field_value("created_at")) {
            (FieldValue::Integer(ttl), FieldValue::Integer(created)) if ttl > 0 => {
                Some(created.saturating_add(ttl))
            }
            _ => None,
        }
    }

    /// The entities that it references.
    pub(super) fn references(&self) -> Vec<Reference> {
        let on_delete = OnDelete::Cascade;
        let references = self.0.schema().references();
        references
            .filter_map(|(field, kind)| {
                Some(Reference { field, kind, id: self.reference(field)?, on_delete })
            })
            .collect()
    }

    fn reference(&self, field: &str) -> Option<Uuid> {
        match self.0.field_value(field) {
            FieldValue::Uuid(id) => Some(id),
            _ => None,
        }
    }

    /// The values that no other entity of the kind may have.
    pub(crate) fn unique_values(&self) -> Vec<Unique> {
        let schema = self.0.schema();
        let single = schema.unique_fields().map(|field| Unique(vec![(field.name, self.json_of(field.name))]));
        let single = single.filter(|unique| !unique.0[0].1.is_null());
        let together = schema.unique_together.iter().map(|field| (*field, self.json_of(field)));
        let together = Unique(together.collect());
        single.chain((!together.0.is_empty()).then_some(together)).collect()
    }

    fn json_of(&self, field: &str) -> Json {
        let is_reference =
            || self.0.schema().record.field(field).is_some_and(|field| field.foreign.is_some());
        match self.0.field_value(field) {
            FieldValue::Uuid(id) if is_reference() => reference_value(Some(id)),
            FieldValue::Uuid(id) => id.to_string().into(),
            FieldValue::Text(text) => text.into(),
            FieldValue::Integer(number) => number.into(),
            FieldValue::Texts(texts) => texts.into(),
            FieldValue::Unset => Json::Null,
            FieldValue::Other => self.to_value().get_mut(field).map(Json::take).unwrap_or_default(),
        }
    }
}

impl PartialEq for CustomRecord {
    fn eq(&self, other: &Self) -> bool {
        self.0.equals(&*other.0)
    }
}

impl fmt::Debug for CustomRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.0.schema().name, self.id())
    }
}

/// The custom entities of a document, kind by kind. A clone shares them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CustomEntities(BTreeMap<CustomKind, Vec<CustomRecord>>);

impl CustomEntities {
    /// Every list that is not empty, with its kind.
    pub fn iter(&self) -> impl Iterator<Item = (CustomKind, &[CustomRecord])> {
        self.0.iter().map(|(kind, list)| (*kind, list.as_slice()))
    }

    /// Those of a kind.
    pub fn list(&self, kind: CustomKind) -> &[CustomRecord] {
        self.0.get(&kind).map(Vec::as_slice).unwrap_or_default()
    }

    /// Those of a plugin's own struct.
    pub fn of<T: CustomEntity>(&self) -> impl Iterator<Item = &T> {
        self.list(CustomKind::of::<T>()).iter().filter_map(CustomRecord::get)
    }

    /// The same, shared.
    pub fn shared<T: CustomEntity>(&self) -> impl Iterator<Item = Arc<T>> {
        self.list(CustomKind::of::<T>()).iter().filter_map(CustomRecord::share)
    }

    /// Puts these entities in the place of all of their kind.
    pub fn set<T: CustomEntity>(&mut self, entities: impl IntoIterator<Item = T>) {
        let list: Vec<_> = entities.into_iter().map(CustomRecord::new).collect();
        match list.is_empty() {
            true => drop(self.0.remove(&CustomKind::of::<T>())),
            false => drop(self.0.insert(CustomKind::of::<T>(), list)),
        }
    }

    /// Adds an entity behind those of its kind.
    pub fn push(&mut self, entity: CustomRecord) {
        self.0.entry(entity.kind()).or_default().push(entity);
    }

    /// Replaces the entities of which `replace` gives another.
    pub fn replace(&mut self, replace: impl Fn(&CustomRecord) -> Option<CustomRecord>) {
        for entity in self.0.values_mut().flatten() {
            if let Some(other) = replace(entity) {
                *entity = other;
            }
        }
    }

    /// Whether these are the very same entities.
    pub fn are_same(&self, other: &Self) -> bool {
        let is_same = |(one, other): (&CustomRecord, &CustomRecord)| one.is_same(other);
        self.0.len() == other.0.len()
            && self.0.iter().zip(&other.0).all(|((kind, list), (other_kind, others))| {
                kind == other_kind && list.len() == others.len() && list.iter().zip(others).all(is_same)
            })
    }

    /// Puts or removes an entity; those of a kind stand in the order of their ids.
    pub(crate) fn apply(&mut self, kind: CustomKind, id: Uuid, entity: Option<CustomRecord>) {
        let list = self.0.entry(kind).or_default();
        match (entity, list.binary_search_by_key(&id, CustomRecord::id)) {
            (Some(entity), Ok(at)) => list[at] = entity,
            (Some(entity), Err(at)) => list.insert(at, entity),
            (None, Ok(at)) => drop(list.remove(at)),
            (None, Err(_)) => {}
        }
        if list.is_empty() {
            self.0.remove(&kind);
        }
    }

    /// All of them, those that others refer to before these.
    pub(crate) fn entities(&self) -> impl Iterator<Item = &CustomRecord> {
        let mut lists: Vec<_> = self.0.iter().collect();
        lists.sort_by_key(|(kind, _)| kind.schema().depth());
        lists.into_iter().flat_map(|(_, list)| list)
    }

    /// Puts those of each kind in the order of their ids.
    pub(crate) fn sort(&mut self) {
        self.0.values_mut().for_each(|list| list.sort_by_key(CustomRecord::id));
    }

    /// All of them by value, those that others refer to before these.
    pub(crate) fn into_entities(self) -> impl Iterator<Item = CustomRecord> {
        let mut lists: Vec<_> = self.0.into_iter().collect();
        lists.sort_by_key(|(kind, _)| kind.schema().depth());
        lists.into_iter().flat_map(|(_, list)| list)
    }
}
