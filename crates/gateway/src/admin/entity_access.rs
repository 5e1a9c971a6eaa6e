//! The entities for plugins that read and write them, such as `kong.db` in Lua: writes are those of the Admin API.
use super::collection::{Collection, EntityPath, Key};
use super::conditions::Conditions;
use super::edit::Edit;
use super::item;
use super::representation::Representation;
use super::request_body::Body;
use super::response::{ApiError, Verb};
use crate::control::Control;
use crate::settings::Database;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::SystemTime;
use weir_model::entity::{Entity, EntityKind};
use weir_model::schema::{Json, JsonMap};
use weir_model::{Document, Entities, EntityKinds, Uuid};
use weir_plugin::{
    EntityAccess, EntityDatabase, EntityError, EntityKey, EntityOutcome, EntityPage, EntityVerb, EntityWrite,
};

/// Kong's number and name of the error that an entity is not there.
const NOT_FOUND: (u8, &str) = (6, "not found");
/// And of the error that the store cannot be used.
const DATABASE_ERROR: (u8, &str) = (8, "database error");

/// Lets plugins use the entities of a node.
pub(crate) fn provide(control: &Arc<Control>) {
    let access = NodeEntities { control: Arc::downgrade(control) };
    control.retained().get::<EntityDatabase>().provide(Arc::new(access));
}

struct NodeEntities {
    control: Weak<Control>,
}

impl EntityAccess for NodeEntities {
    fn strategy(&self) -> &'static str {
        let Some(control) = self.control.upgrade() else { return "off" };
        match control.settings().database {
            _ if !control.registry().is_stored() => "off",
            Some(Database::Postgres) => "postgres",
            _ => "sqlite",
        }
    }

    fn kinds(&self) -> Vec<EntityKind> {
        let Some(control) = self.control.upgrade() else { return Vec::new() };
        EntityKinds::of(control.plugins()).iter().filter(|kind| *kind != EntityKind::ApisixObjects).collect()
    }

    fn find(&self, kind: EntityKind, key: &EntityKey) -> Option<Json> {
        let control = self.control.upgrade()?;
        with_entities(&control, |entities| {
            entities.find(kind, key).map(|entity| Representation::bare(&entity).to_json())
        })
    }

    fn page(&self, kind: EntityKind, page: &EntityPage) -> (Vec<Json>, Option<Uuid>) {
        let Some(control) = self.control.upgrade() else { return Default::default() };
        with_entities(&control, |entities| {
            let wanted = |entity: &Entity| page.tags.is_empty() || has_tags(entity, page);
            let mut entities = entities.listed(kind, page).filter(wanted);
            let some: Vec<Entity> = entities.by_ref().take(page.size).collect();
            let last = some.last().filter(|_| entities.next().is_some()).map(Entity::id);
            (some.iter().map(|entity| Representation::bare(entity).to_json()).collect(), last)
        })
    }

    fn write(&self, write: EntityWrite) -> Pin<Box<dyn Future<Output = EntityOutcome> + Send>> {
        let control = self.control.upgrade();
        Box::pin(async move {
            let Some(control) = control else { return Err(unavailable("the node stops".to_owned())) };
            perform(control, write).await
        })
    }
}

/// Has `read` use the entities of the node.
fn with_entities<T>(control: &Control, read: impl FnOnce(Known<'_>) -> T) -> T {
    let registry = control.registry();
    let configuration = registry.configuration();
    let entities = registry.entities();
    // A data plane has an index of few entities.
    match registry.is_stored() || entities.len() >= configuration.document.len() {
        true => read(Known::Indexed(&entities)),
        false => {
            drop(entities);
            read(Known::Listed(&configuration.document))
        }
    }
}

/// The entities of a node, with or without an index.
enum Known<'e> {
    Indexed(&'e Entities),
    Listed(&'e Document),
}

impl Known<'_> {
    fn find(&self, kind: EntityKind, key: &EntityKey) -> Option<Entity> {
        match (self, key) {
            (Known::Indexed(entities), EntityKey::Id(id)) => entities.get(kind, *id).cloned(),
            (Known::Listed(document), EntityKey::Id(id)) => {
                document.of_kind(kind).find(|entity| entity.id() == *id)
            }
            (Known::Indexed(entities), EntityKey::Fields(fields)) => match &fields[..] {
                [(field, Json::String(value))] if kind.schema().field(field)?.foreign.is_none() => {
                    entities.by_value(kind, field, value).cloned()
                }
                _ => self.having(kind, fields),
            },
            (Known::Listed(_), EntityKey::Fields(fields)) => self.having(kind, fields),
        }
    }

    /// The entity with these values.
    fn having(&self, kind: EntityKind, fields: &[(&'static str, Json)]) -> Option<Entity> {
        let foreign = fields.iter().find_map(|(field, value)| {
            let is_reference = kind.schema().field(field)?.foreign.is_some();
            Some((*field, weir_model::rule::id(value.as_str()?)?)).filter(|_| is_reference)
        });
        let page = EntityPage { foreign, ..EntityPage::default() };
        self.listed(kind, &page).find(|entity| {
            let value = entity.to_value();
            fields.iter().all(|(field, wanted)| value.get(*field).unwrap_or(&Json::Null) == wanted)
        })
    }

    /// Entities of a kind by id, from the one after `after`, which refer to the entity that the page names.
    fn listed<'k>(&'k self, kind: EntityKind, page: &EntityPage) -> Box<dyn Iterator<Item = Entity> + 'k> {
        let foreign = page.foreign.and_then(|(field, id)| {
            let named = kind.schema().field(field)?.foreign?;
            Some((kind.kind_called(named)?, field, id))
        });
        match (self, foreign) {
            (Known::Indexed(entities), Some((named, field, id))) => {
                let all = entities.referencing((named, id), kind, page.after);
                Box::new(all.filter(move |entity| refers(entity, field, id)).cloned())
            }
            (Known::Indexed(entities), None) => Box::new(entities.after(kind, page.after).cloned()),
            (Known::Listed(document), foreign) => {
                let mut all: Vec<Entity> = document.of_kind(kind).collect();
                all.retain(|entity| {
                    page.after.is_none_or(|after| entity.id() > after)
                        && foreign.is_none_or(|(_, field, id)| refers(entity, field, id))
                });
                all.sort_unstable_by_key(Entity::id);
                Box::new(all.into_iter())
            }
        }
    }
}

fn refers(entity: &Entity, field: &str, id: Uuid) -> bool {
    entity.references().iter().any(|reference| reference.field == field && reference.id == id)
}

fn has_tags(entity: &Entity, page: &EntityPage) -> bool {
    let has = |tag: &String| entity.tags().contains(tag);
    if page.any_tag { page.tags.iter().any(has) } else { page.tags.iter().all(has) }
}

/// Writes as the Admin API does.
async fn perform(control: Arc<Control>, write: EntityWrite) -> EntityOutcome {
    let EntityWrite { verb, kind, key, mut members } = write;
    let verb = match verb {
        EntityVerb::Insert => Verb::Create,
        EntityVerb::Update => Verb::Update,
        EntityVerb::Upsert => Verb::Replace,
        EntityVerb::Delete => Verb::Delete,
    };
    let named = key.as_ref().map(|key| named(&control, kind, key, &mut members));
    let entity_path = if named.is_some() { EntityPath::Entity(kind) } else { EntityPath::Collection(kind) };
    let (ids, verb) = match named {
        // Nothing is there to be deleted, which Kong takes for done.
        Some(None) if verb == Verb::Delete => return Ok(None),
        Some(None) if verb == Verb::Update => return Err(not_found(key.as_ref())),
        Some(None) => return create(control, kind, members).await,
        Some(Some(name)) => (vec![name], verb),
        None => (Vec::new(), verb),
    };
    run(control, (verb, entity_path), (ids, members), key).await
}

async fn create(control: Arc<Control>, kind: EntityKind, members: JsonMap) -> EntityOutcome {
    run(control, (Verb::Create, EntityPath::Collection(kind)), (Vec::new(), members), None).await
}

async fn run(
    control: Arc<Control>,
    (verb, entity_path): (Verb, EntityPath),
    (ids, members): (Vec<String>, JsonMap),
    key: Option<EntityKey>,
) -> EntityOutcome {
    let (kind, registry) = (entity_path.kind(), control.registry().clone());
    if registry.is_translated() {
        return Err(of_api(ApiError::ReadOnly(verb, kind), key.as_ref()));
    }
    let edit = Edit {
        control,
        entity_path,
        ids,
        verb,
        body: Body { members, untyped: false },
        conditions: Conditions::default(),
        skip_hash: false,
        now: SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default(),
    };
    let written = registry.write(move |entities| edit.decide(entities)).await;
    let written = written.map_err(|error| of_api(ApiError::of_write(error, verb, kind), key.as_ref()))?;
    let entity = item::shown(kind, &written);
    Ok(entity.map(|entity| Representation::bare(entity).to_json()))
}

/// What names an entity in a path, if it has an id already or may be created by that name.
fn named(control: &Control, kind: EntityKind, key: &EntityKey, members: &mut JsonMap) -> Option<String> {
    let fields = match key {
        EntityKey::Id(id) => return Some(id.to_string()),
        EntityKey::Fields(fields) => fields,
    };
    let found = with_entities(control, |entities| entities.find(kind, key));
    if let Some(found) = found {
        return Some(found.id().to_string());
    }
    for (field, value) in fields {
        members.insert((*field).to_owned(), value.clone());
    }
    match (&fields[..], Collection::of(kind).key) {
        ([(field, Json::String(value))], Key::Unique(of)) if *field == of => Some(value.clone()),
        _ => None,
    }
}

fn of_api(error: ApiError, key: Option<&EntityKey>) -> EntityError {
    match error {
        ApiError::NotFound => not_found(key),
        error => {
            let message = error.to_string();
            let (code, fields) = error.into_parts();
            let (code, name) = code.unwrap_or((DATABASE_ERROR.0, DATABASE_ERROR.1.into()));
            EntityError { code, name: name.into_owned(), message, fields }
        }
    }
}

fn not_found(key: Option<&EntityKey>) -> EntityError {
    let (what, fields): (_, Vec<(&str, Json)>) = match key {
        Some(EntityKey::Id(id)) => ("primary key ", vec![("id", id.to_string().into())]),
        Some(EntityKey::Fields(fields)) => ("", fields.clone()),
        None => ("", Vec::new()),
    };
    let shown: Vec<_> = fields.iter().map(|(field, value)| format!("{field}={value}")).collect();
    let message = format!("could not find the entity with {what}'{{{}}}'", shown.join(","));
    let fields = fields.into_iter().map(|(field, value)| (field.to_owned(), value)).collect();
    EntityError { code: NOT_FOUND.0, name: NOT_FOUND.1.to_owned(), message, fields: Some(fields) }
}

fn unavailable(message: String) -> EntityError {
    EntityError { code: DATABASE_ERROR.0, name: DATABASE_ERROR.1.to_owned(), message, fields: None }
}
