//! What plugins declare of their entities.
use super::{CustomKind, CustomRecord};
use crate::entity::EntityKind;
use crate::node::Node;
use crate::schema::{
    FieldSchema, Kind, Reader, Record, RecordCheck, RecordContext, RecordSchema, read_declared, read_record,
};
use std::fmt;

/// A struct that a plugin declares as an entity. It needs a field `id: Uuid`; the fields `tags: Option<Vec<String>>` and
/// `created_at: Option<i64>` have the meaning they have everywhere. A field that references an entity, such as
/// `#[field(foreign = "consumers")] consumer: Uuid`, nests it below that entity, and it is deleted with it. If that is an
/// entity of a plugin too, [`with_referenced`](CustomEntitySchema::with_referenced) names it.
pub trait CustomEntity: Record + PartialEq + Send + Sync + 'static {
    /// What is declared of it beside its fields.
    const ENTITY: &'static CustomEntitySchema;

    /// Replaces what is stored as a hash by its hash.
    fn hash_secrets(&mut self) {}
}

/// What a plugin declares of an entity. Files, Admin API, stores and OpenAPI derive from it.
#[derive(Debug, Clone)]
pub struct CustomEntitySchema {
    /// The collection's name in files, stores and schemas, as in `keyauth_credentials`.
    pub name: &'static str,
    /// The collection's name in the Admin API, as in `key-auths`.
    pub path: &'static str,
    /// The same below the entity that it references, as in `key-auth`.
    pub nested_path: &'static str,
    /// Its fields.
    pub record: &'static RecordSchema,
    /// The field that may stand for the id in paths. It must be unique, or unique below one parent.
    pub endpoint_key: Option<&'static str>,
    /// Fields whose values together must be unique.
    pub unique_together: &'static [&'static str],
    /// The fields that make the key by which plugins in Lua cache it; empty for those of the gateway's own plugins.
    pub cache_key: &'static [&'static str],
    /// What the id of an entity in a file derives from.
    pub derived_id: DerivedId,
    /// The field that says for how many seconds, counted from `created_at`, an entity lasts.
    pub ttl: Option<&'static str>,
    /// The field that is stored as a hash, salted with the parent's id.
    pub hashed: Option<&'static str>,
    /// What people write among the parent's fields when they mean this entity, and what to write instead.
    pub parent_hints: &'static [(&'static [&'static str], &'static str)],
    /// Other names that people give the collection.
    pub other_names: &'static [&'static str],
    /// The entities of plugins that its fields refer to.
    pub referenced: &'static [&'static CustomEntitySchema],
    read: ReadEntity,
}

/// How entities are read.
#[derive(Clone, Copy)]
enum ReadEntity {
    /// As a struct.
    Struct(fn(&Node<'_>, &RecordContext<'_>, bool, &mut Reader<'_>) -> Option<CustomRecord>),
    /// By the declaration alone, with this check of the whole.
    Declared(&'static RecordCheck),
}

impl fmt::Debug for ReadEntity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReadEntity::Struct(_) => "Struct",
            ReadEntity::Declared(_) => "Declared",
        })
    }
}

/// What an id derives from, by Kong's scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DerivedId {
    /// From the content.
    Content,
    /// From the value of this field.
    Field(&'static str),
    /// From the collection's name and the values of these fields.
    CacheKey(&'static [&'static str]),
}

impl CustomEntitySchema {
    /// Entities of a struct, in a collection of this name.
    pub const fn of<T: CustomEntity>(name: &'static str) -> Self {
        let id = field(T::SCHEMA, "id");
        assert!(
            matches!(id, Some(FieldSchema { kind: Kind::Uuid, .. })),
            "an entity needs the field `id: Uuid`"
        );
        CustomEntitySchema {
            name,
            path: name,
            nested_path: name,
            record: T::SCHEMA,
            endpoint_key: None,
            unique_together: &[],
            cache_key: &[],
            derived_id: DerivedId::Content,
            ttl: None,
            hashed: None,
            parent_hints: &[],
            other_names: &[],
            referenced: &[],
            read: ReadEntity::Struct(read::<T>),
        }
    }

    /// Entities without a struct, which a plugin declares while the program runs; `check` says what is wrong with one as a
    /// whole. The record needs the field `id`, whose type is that of ids.
    pub fn declared(name: &'static str, record: &'static RecordSchema, check: &'static RecordCheck) -> Self {
        CustomEntitySchema {
            name,
            path: name,
            nested_path: name,
            record,
            endpoint_key: None,
            unique_together: &[],
            cache_key: &[],
            derived_id: DerivedId::Content,
            ttl: None,
            hashed: None,
            parent_hints: &[],
            other_names: &[],
            referenced: &[],
            read: ReadEntity::Declared(check),
        }
    }

    /// With the fields that make the key by which plugins in Lua cache an entity.
    pub const fn with_cache_key(mut self, fields: &'static [&'static str]) -> Self {
        assert!(has_fields(self.record, fields), "what makes the cache key are fields of the entity");
        self.cache_key = fields;
        self
    }

    /// With these names in the Admin API: at the top, and below the entity that it references.
    pub const fn with_paths(mut self, path: &'static str, nested_path: &'static str) -> Self {
        (self.path, self.nested_path) = (path, nested_path);
        self
    }

    /// With a field that may stand for the id in paths. Its type is text.
    pub const fn with_endpoint_key(mut self, name: &'static str) -> Self {
        let is_text = matches!(field(self.record, name), Some(FieldSchema { kind: Kind::String, .. }));
        assert!(is_text, "the endpoint key of an entity is one of its fields, whose type is `String`");
        self.endpoint_key = Some(name);
        self
    }

    /// With fields whose values together must be unique.
    pub const fn with_unique_together(mut self, fields: &'static [&'static str]) -> Self {
        assert!(has_fields(self.record, fields), "what is unique together are fields of the entity");
        self.unique_together = fields;
        self
    }

    /// With ids that derive from this.
    pub const fn with_derived_id(mut self, from: DerivedId) -> Self {
        let is_known = match from {
            DerivedId::Content => true,
            DerivedId::Field(name) => has_fields(self.record, &[name]),
            DerivedId::CacheKey(names) => has_fields(self.record, names),
        };
        assert!(is_known, "what an id derives from are fields of the entity");
        self.derived_id = from;
        self
    }

    /// With a field that says for how many seconds an entity lasts: a whole number, such as `Option<i64>`. The entity also
    /// needs the field `created_at: Option<i64>`.
    pub const fn with_ttl(mut self, name: &'static str) -> Self {
        assert!(
            is_whole_number(self.record, name),
            "the ttl of an entity is one of its fields, a whole number"
        );
        let is_dated = is_whole_number(self.record, "created_at");
        assert!(is_dated, "an entity with a ttl needs the field `created_at: Option<i64>`");
        self.ttl = Some(name);
        self
    }

    /// With a field that [`CustomEntity::hash_secrets`] hashes.
    pub const fn with_hashed(mut self, name: &'static str) -> Self {
        assert!(has_fields(self.record, &[name]), "what is hashed is one of the entity's fields");
        self.hashed = Some(name);
        self
    }

    /// With hints for names that are written among the parent's fields.
    pub const fn with_parent_hints(
        mut self,
        hints: &'static [(&'static [&'static str], &'static str)],
    ) -> Self {
        self.parent_hints = hints;
        self
    }

    /// With other names that people give the collection.
    pub const fn with_other_names(mut self, names: &'static [&'static str]) -> Self {
        self.other_names = names;
        self
    }

    /// With the entities of plugins that its fields refer to, each by the name that stands in `foreign`. An entity cannot
    /// refer to one of its own kind.
    pub const fn with_referenced(mut self, schemas: &'static [&'static CustomEntitySchema]) -> Self {
        self.referenced = schemas;
        self
    }

    /// Panics unless each field that refers to others refers to one entity of a kind that exists.
    pub(crate) const fn check_references(&self) {
        let mut rest = self.record.fields;
        while let [field, others @ ..] = rest {
            if let Some(kind) = field.foreign {
                assert!(
                    matches!(field.kind, Kind::Uuid),
                    "a field of an entity refers to one other: its type is `Uuid` or `Option<Uuid>`"
                );
                assert!(
                    is_built_in(kind) || is_among(self.referenced, kind),
                    "`foreign` names a collection of the gateway or, with `with_referenced`, of another entity of a plugin"
                );
            }
            rest = others;
        }
    }

    /// The fields that reference an entity, and of which kind.
    pub fn references(&self) -> impl Iterator<Item = (&'static str, EntityKind)> + use<> {
        let (fields, referenced): (&'static [FieldSchema], _) = (self.record.fields, self.referenced);
        let references = fields.iter().filter(|field| matches!(field.kind, Kind::Uuid));
        references.filter_map(move |field| Some((field.name, kind_called(field.foreign?, referenced)?)))
    }

    /// The kind that `foreign` of one of its fields names.
    pub(crate) fn kind_called(&self, name: &str) -> Option<EntityKind> {
        kind_called(name, self.referenced)
    }

    /// How long the longest chain of references from it to entities of plugins is: those that have less come before it.
    pub(crate) fn depth(&self) -> usize {
        self.referenced.iter().map(|schema| schema.depth() + 1).max().unwrap_or_default()
    }

    /// The field by which others may name an entity, because it is unique and no secret.
    pub(crate) fn name_field(&self) -> Option<&'static str> {
        let field = self.record.field(self.endpoint_key?)?;
        (field.unique && !field.is_confidential()).then_some(field.name)
    }

    /// The fields whose value no two entities may share.
    pub(crate) fn unique_fields(&self) -> impl Iterator<Item = &'static FieldSchema> + use<> {
        let fields: &'static [FieldSchema] = self.record.fields;
        fields.iter().filter(|field| field.unique)
    }

    /// Reads an entity; `hash` says whether secrets are still to be hashed.
    pub(crate) fn read(
        &'static self,
        node: &Node<'_>,
        context: &RecordContext<'_>,
        hash: bool,
        reader: &mut Reader<'_>,
    ) -> Option<CustomRecord> {
        match self.read {
            ReadEntity::Struct(read) => read(node, context, hash, reader),
            ReadEntity::Declared(check) => {
                let value = read_declared((self.record, check), node, context, reader)?;
                Some(CustomRecord::declared(self, value))
            }
        }
    }
}

fn read<T: CustomEntity>(
    node: &Node<'_>,
    context: &RecordContext<'_>,
    hash: bool,
    reader: &mut Reader<'_>,
) -> Option<CustomRecord> {
    let mut entity: T = read_record(node, context, reader)?;
    if hash {
        entity.hash_secrets();
    }
    Some(CustomRecord::new(entity))
}

fn kind_called(name: &str, referenced: &'static [&'static CustomEntitySchema]) -> Option<EntityKind> {
    let of_plugin = || referenced.iter().find(|schema| schema.name == name);
    EntityKind::from_name(name).or_else(|| Some(EntityKind::Custom(CustomKind::new(of_plugin()?))))
}

const fn is_built_in(name: &str) -> bool {
    let mut rest = EntityKind::BUILT_IN;
    while let [kind, others @ ..] = rest {
        if is_same(kind.as_str(), name) {
            return true;
        }
        rest = others;
    }
    false
}

const fn is_among(mut schemas: &[&CustomEntitySchema], name: &str) -> bool {
    while let [schema, others @ ..] = schemas {
        if is_same(schema.name, name) {
            return true;
        }
        schemas = others;
    }
    false
}

const fn is_whole_number(record: &RecordSchema, name: &str) -> bool {
    matches!(field(record, name), Some(FieldSchema { kind: Kind::Integer(..), .. }))
}

const fn has_fields(record: &RecordSchema, mut names: &[&str]) -> bool {
    while let [name, others @ ..] = names {
        if field(record, name).is_none() {
            return false;
        }
        names = others;
    }
    true
}

const fn field(record: &RecordSchema, name: &str) -> Option<&'static FieldSchema> {
    let mut rest = record.fields;
    while let [field, others @ ..] = rest {
        if is_same(field.name, name) {
            return Some(field);
        }
        rest = others;
    }
    None
}

const fn is_same(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.as_bytes(), other.as_bytes());
    while let ([a, one_rest @ ..], [b, other_rest @ ..]) = (one, other) {
        if *a != *b {
            return false;
        }
        (one, other) = (one_rest, other_rest);
    }
    one.is_empty() && other.is_empty()
}
