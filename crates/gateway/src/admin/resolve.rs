//! From a path to what is there, in the entities as they are at a moment.
use super::collection::{Collection, Key, Naming, Nesting, Place};
use super::response::Denied;
use weir_model::entity::{Entity, EntityKind, Target};
use weir_model::schema::{Json, JsonMap};
use weir_model::{Entities, Uuid};

/// What a path leads to.
pub(super) struct Spot<'e> {
    /// The kind of entity that belongs here.
    pub(super) kind: EntityKind,
    /// The entity that the path names.
    pub(super) found: Option<&'e Entity>,
    /// Whether that entity belongs to the parent in the path.
    at_home: bool,
    /// What the path says of an entity put here: fields and their values.
    given: Vec<(&'static str, Json)>,
    /// Who is to name an entity that is put here, and by which field.
    pub(super) owner: Option<(&'e Entity, &'static str)>,
}

impl<'e> Spot<'e> {
    fn empty(kind: EntityKind) -> Spot<'e> {
        Spot { kind, found: None, at_home: true, given: Vec::new(), owner: None }
    }

    /// The entity here.
    pub(super) fn here(&self) -> Result<&'e Entity, Denied> {
        self.found.filter(|_| self.at_home).ok_or(Denied::NotFound)
    }

    /// Adds what the path says.
    pub(super) fn fill(&self, members: &mut JsonMap) {
        for (field, value) in &self.given {
            // The names of a certificate are many; the path knows one.
            if *field != "snis" || !members.contains_key("snis") {
                members.insert((*field).to_owned(), value.clone());
            }
        }
        if let Some(found) = self.found {
            members.insert("id".to_owned(), found.id().to_string().into());
        }
    }
}

impl Place {
    /// What is here; `ids` are those of the path.
    pub(super) fn spot<'e>(self, ids: &[String], entities: &'e Entities) -> Result<Spot<'e>, Denied> {
        let id = |index: usize| ids.get(index).map(String::as_str).unwrap_or_default();
        match self {
            Place::Collection(kind) => Ok(Spot::empty(kind)),
            Place::Entity(kind) => called(kind, id(0), entities),
            Place::Children(nesting) => {
                let parent = nesting.parent(id(0), entities)?;
                Ok(Spot { given: vec![nesting.given(parent)], ..Spot::empty(nesting.kind) })
            }
            Place::Child(nesting) => nesting.child(id(0), id(1), entities),
            Place::Named(naming) => naming.spot(id(0), entities),
            Place::Members(membership) => {
                membership.owner(id(0), entities).map(|_| Spot::empty(membership.kind))
            }
            Place::Member(membership) => {
                let member = membership.member(id(0), id(1), entities)?;
                Ok(Spot { found: member.map(|(found, _)| found), ..Spot::empty(membership.kind) })
            }
        }
    }
}

/// The entity that is called so, by id or as the kind's key allows.
pub(super) fn called<'e>(kind: EntityKind, text: &str, entities: &'e Entities) -> Result<Spot<'e>, Denied> {
    let (found, given) = match (weir_model::rule::id(text), Collection::of(kind).key) {
        (Some(id), _) => (entities.get(kind, id), ("id", id.to_string().into())),
        (_, Key::Unique(field)) => (entities.by_value(kind, field, text), (field, text.into())),
        (_, Key::ServerName) => (presented_for(text, entities), ("snis", vec![Json::from(text)].into())),
        (_, Key::Within(_) | Key::Id) => return Err(Denied::PrimaryKeyInvalid),
    };
    Ok(Spot { found, given: vec![given], ..Spot::empty(kind) })
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
    pub(super) fn parent(self, text: &str, entities: &Entities) -> Result<Uuid, Denied> {
        called(self.parent, text, entities)?.found.map(Entity::id).ok_or(Denied::NotFound)
    }

    fn given(self, parent: Uuid) -> (&'static str, Json) {
        (self.field, parent.to_string().into())
    }

    fn child<'e>(self, parent: &str, text: &str, entities: &'e Entities) -> Result<Spot<'e>, Denied> {
        let parent = self.parent(parent, entities)?;
        let mut spot = match (weir_model::rule::id(text), Collection::of(self.kind).key) {
            (None, Key::Within(field)) => {
                let mut siblings = entities.referencing((self.parent, parent), self.kind, None);
                let found = siblings.find(|entity| is_called(entity, text));
                Spot { found, given: vec![(field, text.into())], ..Spot::empty(self.kind) }
            }
            _ => called(self.kind, text, entities)?,
        };
        let names = |entity: &Entity| reference(entity, self.field) == Some(parent);
        spot.at_home = spot.found.is_none_or(names);
        spot.given.push(self.given(parent));
        Ok(spot)
    }
}

/// Whether an entity is called so among those of its parent.
fn is_called(entity: &Entity, text: &str) -> bool {
    match entity {
        Entity::Acls(acl) => acl.group == text,
        Entity::Targets(target) => {
            let port = target.target.strip_prefix(text).and_then(|rest| rest.strip_prefix(':'));
            target.target == text || port.is_some_and(|port| port == Target::DEFAULT_PORT.to_string())
        }
        _ => false,
    }
}

impl Naming {
    /// The owner may name none: then an entity put here gets an id of its own.
    fn spot<'e>(self, owner: &str, entities: &'e Entities) -> Result<Spot<'e>, Denied> {
        let owner = called(self.owner, owner, entities)?.found.ok_or(Denied::NotFound)?;
        let spot = Spot::empty(self.kind);
        Ok(match reference(owner, self.field) {
            Some(id) => Spot { found: entities.get(self.kind, id), ..spot },
            None => Spot { owner: Some((owner, self.field)), ..spot },
        })
    }
}

/// Whom an entity names by a field.
fn reference(entity: &Entity, field: &str) -> Option<Uuid> {
    entity.references().into_iter().find(|reference| reference.field == field).map(|reference| reference.id)
}
