//! `kong.db`: the entities of the configuration. Reads are of what the node has in memory; writes wait until they are stored.

use crate::host::Host;
use crate::modules;
use crate::namespace::{Namespace, refused};
use crate::operation::Outcome;
use crate::phase::Phases;
use crate::steps::{self, Steps};
use mlua::chunk::ChunkMode;
use mlua::{IntoLua, Lua, LuaString, MultiValue, Table, Value};
use std::sync::Arc;
use std::time::Duration;
use weir_plugin::entity::EntityKind;
use weir_plugin::schema::{JsonMap, Kind};
use weir_plugin::{
    EntityAccess, EntityDatabase, EntityError, EntityKey, EntityOutcome, EntityPage, EntityVerb, EntityWrite,
    Json, Uuid, WORKSPACE,
};

/// The fields that make the keys of Kong's cache, of the kinds that have them.
const CACHE_KEYS: [(&str, &[&str]); 13] = [
    ("plugins", &["name", "route", "service", "consumer"]),
    ("upstreams", &["name"]),
    ("targets", &["upstream", "target"]),
    ("ca_certificates", &["cert_digest"]),
    ("vaults", &["prefix"]),
    ("keys", &["kid", "set"]),
    ("snis", &["name"]),
    ("consumer_group_consumers", &["consumer_group", "consumer"]),
    ("keyauth_credentials", &["key"]),
    ("basicauth_credentials", &["username"]),
    ("hmacauth_credentials", &["username"]),
    ("jwt_secrets", &["key"]),
    ("acls", &["consumer", "group"]),
];

/// Makes the namespace.
pub(super) fn table(make: &Namespace<'_>, database: &Arc<EntityDatabase>) -> mlua::Result<Table> {
    let natives = make.table()?;
    let of = database.clone();
    natives.set("strategy", make.host(Phases::ANY, move |_, _: &Host, ()| Ok(access(&of)?.strategy()))?)?;
    let of = database.clone();
    natives.set("is_ready", make.host(Phases::ANY, move |_, _: &Host, ()| Ok(of.access().is_some()))?)?;
    let of = database.clone();
    natives.set("describe", make.host(Phases::ANY, move |lua, _: &Host, name| describe(lua, &of, name))?)?;
    let of = database.clone();
    natives.set("names", make.host(Phases::ANY, move |_, _: &Host, ()| names(&of))?)?;
    let of = database.clone();
    natives.set("find", make.host(Phases::ANY, move |lua, _: &Host, given| find(lua, &of, given))?)?;
    let of = database.clone();
    natives.set("page", make.host(Phases::ANY, move |lua, _: &Host, given| page(lua, &of, given))?)?;
    let of = database.clone();
    let begin = make.host(Phases::ANY, move |lua, host: &Host, given| write(lua, host, &of, given))?;
    natives.set("write", make.waiting(begin)?)?;
    natives.set("workspace", WORKSPACE)?;
    let chunk = make.lua.load(include_str!("db.lua")).set_name("=[kong.db]").set_mode(ChunkMode::Text);
    chunk.call((natives, modules::load(make.lua, "cjson")?))
}

fn access(database: &EntityDatabase) -> mlua::Result<&Arc<dyn EntityAccess>> {
    let unknown =
        || mlua::Error::runtime("kong.db is not available before the node serves its configuration");
    database.access().ok_or_else(unknown)
}

fn kind_of(database: &EntityDatabase, name: &LuaString) -> mlua::Result<Option<EntityKind>> {
    let name = name.to_string_lossy();
    Ok(access(database)?.kinds().into_iter().find(|kind| *kind.as_str() == *name))
}

fn known_kind(database: &EntityDatabase, name: &LuaString) -> mlua::Result<EntityKind> {
    let unknown = || mlua::Error::runtime(format!("kong.db has no {}", name.to_string_lossy()));
    kind_of(database, name)?.ok_or_else(unknown)
}

/// The names of all kinds.
fn names(database: &EntityDatabase) -> mlua::Result<Vec<&'static str>> {
    Ok(access(database)?.kinds().into_iter().map(EntityKind::as_str).collect())
}

/// What `kong.db` says of a kind, if there is one of this name: its fields by name.
fn describe(lua: &Lua, database: &EntityDatabase, name: LuaString) -> mlua::Result<Option<Table>> {
    let Some(kind) = kind_of(database, &name)? else { return Ok(None) };
    let (described, fields) = (lua.create_table()?, lua.create_table()?);
    for field in kind.schema().fields {
        let shown = lua.create_table()?;
        shown.set("type", if field.foreign.is_some() { "foreign" } else { type_name(&field.kind) })?;
        shown.set("reference", field.foreign)?;
        shown.set("unique", field.unique)?;
        shown.set("required", field.required)?;
        fields.set(field.name, shown)?;
    }
    let has_ttl = matches!(kind, EntityKind::Custom(custom) if custom.schema().ttl.is_some());
    let cache_key = cache_key(kind).map(|fields| lua.create_sequence_from(fields.iter().copied()));
    described.set("name", kind.as_str())?;
    described.set("fields", fields)?;
    described.set("primary_key", lua.create_sequence_from(["id"])?)?;
    described.set("endpoint_key", kind.key())?;
    described.set("cache_key", cache_key.transpose()?)?;
    described.set("ttl", has_ttl)?;
    described.set("workspaceable", true)?;
    Ok(Some(described))
}

/// The fields that make the key of the cache.
fn cache_key(kind: EntityKind) -> Option<&'static [&'static str]> {
    match kind {
        EntityKind::Custom(custom) if !custom.schema().cache_key.is_empty() => {
            Some(custom.schema().cache_key)
        }
        _ => CACHE_KEYS.iter().find(|(of, _)| *of == kind.as_str()).map(|(_, fields)| *fields),
    }
}

fn type_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Boolean => "boolean",
        Kind::Integer(..) => "integer",
        Kind::Number => "number",
        Kind::String | Kind::Choice(_) | Kind::Uuid => "string",
        Kind::Array(_) => "array",
        Kind::Map(_) => "map",
        Kind::Record(_) => "record",
        Kind::Any => "json",
    }
}

/// What a row costs beside what it takes to make a table of it.
const STEPS_PER_ROW: usize = 256;

/// Reads, and takes the steps for the time that it takes: a lookup may go through all entities.
fn counted<T>(lua: &Lua, read: impl FnOnce() -> mlua::Result<T>) -> mlua::Result<T> {
    let begun = steps::thread_time();
    let found = read()?;
    Steps::of(lua).take_since(begun)?;
    Ok(found)
}

/// `find(kind, { field = value }, with_nulls)`
fn find(
    lua: &Lua,
    database: &EntityDatabase,
    (name, fields, nulls): (LuaString, Table, Option<bool>),
) -> mlua::Result<Option<Value>> {
    let kind = known_kind(database, &name)?;
    let Some(key) = key(lua, kind, &fields)? else { return Ok(None) };
    let found = counted(lua, || Ok(access(database)?.find(kind, &key)))?;
    found.map(|entity| value(lua, entity, nulls.unwrap_or_default())).transpose()
}

/// The fields that identify an entity; none if the id is none.
fn key(lua: &Lua, kind: EntityKind, fields: &Table) -> mlua::Result<Option<EntityKey>> {
    let mut known = Vec::new();
    for pair in fields.pairs::<LuaString, Value>() {
        let (name, value) = pair?;
        let name = name.to_string_lossy();
        let Some(field) = kind.schema().field(&name) else {
            return refused(format!("{} has no field {name}", kind.as_str()));
        };
        known.push((field.name, json(lua, &value)?));
    }
    Ok(match &known[..] {
        [("id", Json::String(id))] => id.parse().ok().map(EntityKey::Id),
        _ => Some(EntityKey::Fields(known)),
    })
}

/// `page(kind, { size, after, field, id, tags, any_tag }, with_nulls)`: rows, and the offset of those that follow.
fn page(
    lua: &Lua,
    database: &EntityDatabase,
    (name, asked, nulls): (LuaString, Table, Option<bool>),
) -> mlua::Result<(Table, Option<String>)> {
    let kind = known_kind(database, &name)?;
    let id =
        |name: &str| Ok::<_, mlua::Error>(asked.get::<Option<String>>(name)?.and_then(|id| id.parse().ok()));
    let field = asked.get::<Option<String>>("field")?;
    let field = field.and_then(|field| kind.schema().field(&field)).map(|field| field.name);
    let asked = EntityPage {
        size: asked.get("size")?,
        after: id("after")?,
        foreign: field.zip(id("id")?),
        tags: asked.get::<Option<_>>("tags")?.unwrap_or_default(),
        any_tag: asked.get::<Option<_>>("any_tag")?.unwrap_or_default(),
    };
    let (found, next) = counted(lua, || Ok(access(database)?.page(kind, &asked)))?;
    Steps::of(lua).take_many(found.len() * STEPS_PER_ROW)?;
    let rows = found.into_iter().map(|entity| value(lua, entity, nulls.unwrap_or_default()));
    let rows = lua.create_sequence_from(rows.collect::<mlua::Result<Vec<_>>>()?)?;
    Ok((rows, next.map(|next: Uuid| next.to_string())))
}

/// `write(verb, kind, { field = value } or nil, entity)`: the entity or true, or nil and the error.
fn write(
    lua: &Lua,
    host: &Host,
    database: &EntityDatabase,
    (verb, name, fields, entity, nulls): (String, LuaString, Option<Table>, Option<Table>, Option<bool>),
) -> mlua::Result<bool> {
    let kind = known_kind(database, &name)?;
    let verb = match &*verb {
        "insert" => EntityVerb::Insert,
        "update" => EntityVerb::Update,
        "upsert" => EntityVerb::Upsert,
        _ => EntityVerb::Delete,
    };
    let key = match fields {
        Some(fields) => match key(lua, kind, &fields)? {
            None => return refused("the id is no valid UUID"),
            known => known,
        },
        None => None,
    };
    let members = match entity {
        Some(entity) => members(lua, entity)?,
        None => JsonMap::new(),
    };
    let written = access(database)?.write(EntityWrite { verb, kind, key, members });
    let nulls = nulls.unwrap_or_default();
    host.wait_for(async move {
        let written = tokio::time::timeout(MAX_WAIT, written).await;
        outcome(written.unwrap_or_else(|_| Err(too_late())), nulls)
    })
}

/// How long a write may take, for the code that waits for it.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The error of a write that takes longer: Kong's number and name of the errors of its database.
fn too_late() -> EntityError {
    let message = format!(
        "the database has not stored the change within {} s; it may do so later: read the entity before you write it again",
        MAX_WAIT.as_secs()
    );
    EntityError { code: 8, name: "database error".to_owned(), message, fields: None }
}

fn members(lua: &Lua, entity: Table) -> mlua::Result<JsonMap> {
    match json(lua, &Value::Table(entity))? {
        Json::Object(members) => Ok(members),
        Json::Array(items) if items.is_empty() => Ok(JsonMap::new()),
        _ => refused("the entity must be a table with the names of fields"),
    }
}

fn json(lua: &Lua, value: &Value) -> mlua::Result<Json> {
    let text = modules::to_json(lua, value)?;
    serde_json::from_slice(&text).map_err(|error| mlua::Error::runtime(error.to_string()))
}

fn outcome(written: EntityOutcome, nulls: bool) -> Outcome {
    Box::new(move |lua| {
        let values = match written {
            Ok(Some(entity)) => vec![true.into_lua(lua)?, value(lua, entity, nulls)?],
            Ok(None) => vec![true.into_lua(lua)?, true.into_lua(lua)?],
            Err(error) => {
                let shown = lua.create_table()?;
                shown.set("code", error.code)?;
                shown.set("name", error.name)?;
                shown.set("message", error.message)?;
                shown.set("fields", error.fields.map(|fields| value(lua, fields, true)).transpose()?)?;
                vec![true.into_lua(lua)?, Value::Nil, shown.into_lua(lua)?]
            }
        };
        Ok(MultiValue::from_vec(values))
    })
}

/// An entity as a table of its own; fields without a value are `nil`, or `ngx.null` where they are wanted.
fn value(lua: &Lua, mut entity: Json, nulls: bool) -> mlua::Result<Value> {
    if !nulls {
        drop_nulls(&mut entity);
    }
    Ok(modules::from_json(lua, entity.to_string().as_bytes())?)
}

fn drop_nulls(value: &mut Json) {
    match value {
        Json::Object(members) => {
            members.retain(|_, value| !value.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Json::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}
