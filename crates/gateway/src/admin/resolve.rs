//! From a path to the entity that it names, in one state of the entities.
use super::collection::{Collection, EntityPath, Key, Naming, Nesting};
use super::response::ApiError;
use weir_model::entity::{Entity, EntityKind, Target};
use weir_model::schema::{Json, JsonMap};
use weir_model::{Entities, Uuid};

/// What a path resolves to.
pub(super) struct ResolvedPath<'e> {
    /// The kind of entity that belongs here.
    pub(super) kind: EntityKind,
    /// The entity that the path names.
    pub(super) found: Option<&'e Entity>,
    /// Whether that entity belongs to the parent in the path.
    belongs_to_parent: bool,
    /// The fields that the path sets in an entity that is put here.
    given: Vec<(&'static str, Json)>,
    /// The entity that will refer to one that is put here, and its field.
    pub(super) owner: Option<(&'e Entity, &'static str)>,
}

impl<'e> ResolvedPath<'e> {
    fn empty(kind: EntityKind) -> ResolvedPath<'e> {
        ResolvedPath { kind, found: None, belongs_to_parent: true, given: Vec::new(), owner: None }
    }

    /// The existing entity.
    pub(super) fn existing(&self) -> Result<&'e Entity, ApiError> {
        self.found.filter(|_| self.belongs_to_parent).ok_or(ApiError::NotFound)
    }

    /// Adds the fields that the path sets.
    pub(super) fn fill(&self, members: &mut JsonMap) {
        for (field, value) in &self.given {
            match *field {
                // A certificate may have many names; the path holds one of them.
                "snis" => add_names(members, value),
                // A body with another target renames it.
                "target" if members.contains_key("target") => {}
                field => drop(members.insert(field.to_owned(), value.clone())),
            }
        }
        if let Some(found) = self.found {
            members.insert("id".to_owned(), found.id().to_string().into());
        }
    }
}

/// Adds server names to those that are written.
fn add_names(members: &mut JsonMap, names: &Json) {
    let written = members.entry("snis").or_insert_with(|| Json::Array(Vec::new()));
    let added: Vec<_> =
        names.as_array().into_iter().flatten().filter(|name| !has(written, name)).cloned().collect();
    match written {
        Json::Array(written) => written.extend(added),
        Json::Null => *written = added.into(),
        single => *single = [vec![single.take()], added].concat().into(),
    }
}

fn has(written: &Json, name: &Json) -> bool {
    written == name || written.as_array().is_some_and(|written| written.contains(name))
}

impl EntityPath {
    /// The entity at this path; `ids` are the parameters of the path.
    pub(super) fn resolve<'e>(
        self,
        ids: &[String],
        entities: &'e Entities,
    ) -> Result<ResolvedPath<'e>, ApiError> {
        let id = |index: usize| ids.get(index).map(String::as_str).unwrap_or_default();
        match self {
            EntityPath::Collection(kind) => Ok(ResolvedPath::empty(kind)),
            EntityPath::Entity(kind) => look_up(kind, id(0), entities),
            EntityPath::Children(nesting) => {
                let parent = nesting.parent(id(0), entities)?;
                Ok(ResolvedPath { given: vec![nesting.given(parent)], ..ResolvedPath::empty(nesting.kind) })
            }
            EntityPath::Child(nesting) => nesting.child(id(0), id(1), entities),
            EntityPath::Named(naming) => naming.resolve(id(0), entities),
            EntityPath::Members(membership) => {
                membership.owner(id(0), entities).map(|_| ResolvedPath::empty(membership.kind))
            }
            EntityPath::Member(membership) => {
                let member = membership.member(id(0), id(1), entities)?;
                Ok(ResolvedPath {
                    found: member.map(|(found, _)| found),
                    ..ResolvedPath::empty(membership.kind)
                })
            }
        }
    }
}

/// Looks an entity up by its id, or by the key that its kind has.
pub(super) fn look_up<'e>(
    kind: EntityKind,
    text: &str,
    entities: &'e Entities,
) -> Result<ResolvedPath<'e>, ApiError> {
    let (found, given) = match (weir_model::rule::id(text), Collection::of(kind).key) {
        (Some(id), _) => (entities.get(kind, id), ("id", id.to_string().into())),
        (_, Key::Unique(field)) => (entities.by_value(kind, field, text), (field, text.into())),
        (_, Key::ServerName) => (presented_for(text, entities), ("snis", vec![Json::from(text)].into())),
        (_, Key::Within(_) | Key::Id) => return Err(ApiError::PrimaryKeyInvalid),
    };
    Ok(ResolvedPath { found, given: vec![given], ..ResolvedPath::empty(kind) })
}

/// The certificate that is presented for a server name.
fn presented_for<'e>(name: &str, entities: &'e Entities) -> Option<&'e Entity> {
    match entities.by_value(EntityKind::Snis, "name", name)? {
        Entity::Snis(sni) => entities.get(EntityKind::Certificates, sni.certificate),
        _ => None,
    }
}

impl Nesting {
    /// The id of the parent.
    pub(super) fn parent(self, text: &str, entities: &Entities) -> Result<Uuid, ApiError> {
        look_up(self.parent, text, entities)?.found.map(Entity::id).ok_or(ApiError::NotFound)
    }

    fn given(self, parent: Uuid) -> (&'static str, Json) {
        (self.field, parent.to_string().into())
    }

    fn child<'e>(
        self,
        parent: &str,
        text: &str,
        entities: &'e Entities,
    ) -> Result<ResolvedPath<'e>, ApiError> {
        let parent = self.parent(parent, entities)?;
        let mut resolved = match (weir_model::rule::id(text), Collection::of(self.kind).key) {
            (None, Key::Within(field)) => {
                let mut siblings = entities.referencing((self.parent, parent), self.kind, None);
                let found = siblings.find(|entity| is_called(entity, field, text));
                ResolvedPath { found, given: vec![(field, text.into())], ..ResolvedPath::empty(self.kind) }
            }
            _ => look_up(self.kind, text, entities)?,
        };
        let names = |entity: &Entity| reference(entity, self.field) == Some(parent);
        resolved.belongs_to_parent = resolved.found.is_none_or(names);
        resolved.given.push(self.given(parent));
        Ok(resolved)
    }
}

/// Whether this text is the key of an entity below its parent: the value of this field.
fn is_called(entity: &Entity, field: &str, text: &str) -> bool {
    match entity {
        Entity::Custom(entity) => entity.text(field) == Some(text),
        Entity::Targets(target) => {
            target.target == text || Target::with_port(text).is_some_and(|text| text == target.target)
        }
        _ => false,
    }
}

impl Naming {
    /// If the owner refers to none, an entity that is put here gets a new id.
    fn resolve<'e>(self, owner: &str, entities: &'e Entities) -> Result<ResolvedPath<'e>, ApiError> {
        let owner = look_up(self.owner, owner, entities)?.found.ok_or(ApiError::NotFound)?;
        let resolved = ResolvedPath::empty(self.kind);
        Ok(match reference(owner, self.field) {
            Some(id) => ResolvedPath { found: entities.get(self.kind, id), ..resolved },
            None => ResolvedPath { owner: Some((owner, self.field)), ..resolved },
        })
    }
}

/// The entity that a field of another refers to.
fn reference(entity: &Entity, field: &str) -> Option<Uuid> {
    entity.references().into_iter().find(|reference| reference.field == field).map(|reference| reference.id)
}
