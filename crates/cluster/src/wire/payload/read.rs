//! `config_table` as a document.
use super::row::ttl_field;
use crate::wire::Refusal;
use weir_model::entity::{Entity, EntityKind};
use weir_model::node::{Entry, Node, Position, Value};
use weir_model::schema::{ConfigError, Kind, RecordSchema, quoted};
use weir_model::{Document, EntityKinds, ParsedDocument, PluginSchema, config_schema, label_on_path};

/// What Kong sends and Weir has no use for.
const WITHOUT_USE: [&str; 2] = ["workspaces", "parameters"];
/// Fields that Kong derives from others.
const DERIVED: [&str; 2] = ["cache_key", "ws_id"];

/// Reads a configuration that is written as JSON, by the rules for declarative files. `now`, in seconds since 1970: what has
/// expired is left out.
///
/// # Errors
/// Everything that is wrong with it.
pub fn read(mut table: Node<'_>, plugins: &[PluginSchema], now: i64) -> Result<ParsedDocument, Vec<Refusal>> {
    let kinds = EntityKinds::of(plugins);
    if let Value::Map(entries) = &mut table.value {
        // Passwords are hashed already.
        entries.retain(|entry| !WITHOUT_USE.contains(&entry.key.as_ref()) && entry.key != "_transform");
        entries.push(entry("_transform", Value::Bool(false)));
        for entry in entries {
            let Some(kind) = kinds.find(&entry.key) else { continue };
            if let Value::List(rows) = &mut entry.node.value {
                rows.retain_mut(|row| settle(kind, row, plugins, now));
            }
        }
    }
    Document::read_tree(&mut table, plugins)
        .map_err(|errors| errors.into_iter().map(|error| refusal(error, &table, &kinds)).collect())
}

/// Puts a row in the form that the model reads: without nulls that mean nothing to it, and with a lifetime in the place of
/// the time of expiry. Returns whether the entity still lives.
fn settle(kind: EntityKind, row: &mut Node<'_>, plugins: &[PluginSchema], now: i64) -> bool {
    let config = row.get("name").and_then(Node::as_str).and_then(|name| config_schema(plugins, kind, name));
    let Value::Map(members) = &mut row.value else { return true };
    members.retain(|member| !DERIVED.contains(&member.key.as_ref()));
    drop_nulls(members, kind.schema());
    let written = members.iter_mut().find(|member| member.key == "config");
    if let (Some(schema), Some(written)) = (config, written) {
        drop_nulls_of(&mut written.node, schema);
    }
    ttl_field(kind).is_none_or(|ttl| settle_ttl(members, ttl, now))
}

/// Removes nulls from a record, but for those of fields that take null. Empty tables become
/// what the field takes.
fn drop_nulls(members: &mut Vec<Entry<'_>>, schema: &RecordSchema) {
    members.retain_mut(|member| {
        let field = schema.field(&member.key);
        match (&mut member.node.value, field.map(|field| field.kind)) {
            (Value::Null, _) => field.is_some_and(|field| !field.required),
            // Lua has one kind of empty table.
            (Value::Map(inner), Some(Kind::Array(_))) if inner.is_empty() => {
                member.node.value = Value::List(Vec::new());
                true
            }
            (Value::List(inner), Some(Kind::Map(_) | Kind::Record(_))) if inner.is_empty() => {
                member.node.value = Value::Map(Vec::new());
                true
            }
            (Value::Map(_), Some(Kind::Record(schema))) => {
                drop_nulls_of(&mut member.node, schema);
                true
            }
            (Value::Map(inner), Some(Kind::Map(Kind::Record(schema)))) => {
                inner.iter_mut().for_each(|member| drop_nulls_of(&mut member.node, schema));
                true
            }
            (Value::List(elements), Some(Kind::Array(Kind::Record(schema)))) => {
                elements.iter_mut().for_each(|element| drop_nulls_of(element, schema));
                true
            }
            _ => true,
        }
    });
}

fn drop_nulls_of(record: &mut Node<'_>, schema: &RecordSchema) {
    if let Value::Map(members) = &mut record.value {
        drop_nulls(members, schema);
    }
}

/// The time of expiry becomes a number of seconds from the creation on.
fn settle_ttl(members: &mut Vec<Entry<'_>>, ttl: &str, now: i64) -> bool {
    let whole = |members: &[Entry<'_>], name: &str| {
        let member = members.iter().find(|member| member.key == name)?;
        match member.node.value {
            Value::Int(number) => Some(number),
            // Whole seconds are meant.
            Value::Float(number) => Some(number as i64),
            _ => None,
        }
    };
    let Some(expires) = whole(members, ttl).filter(|expires| *expires > 0) else { return true };
    if expires <= now {
        return false;
    }
    let created = whole(members, "created_at").filter(|created| *created < expires).unwrap_or(now);
    members.retain(|member| member.key != ttl && member.key != "created_at");
    members.push(entry("created_at", Value::Int(created)));
    members
        .push(Entry { key: ttl.to_owned().into(), ..entry("", Value::Int(expires.saturating_sub(created))) });
    true
}

fn entry<'a>(key: &'static str, value: Value<'a>) -> Entry<'a> {
    Entry { key: key.into(), at: Position::default(), node: Node::new(value, Position::default()) }
}

/// Names the entity that an error is about.
fn refusal(error: ConfigError, table: &Node<'_>, kinds: &EntityKinds) -> Refusal {
    let ConfigError { path, message, .. } = error;
    match label_on_path(table, &path, kinds) {
        Some(entity) => Refusal { entity, field: below_entity(&path), message },
        None => Refusal {
            entity: "configuration".to_owned(),
            field: Some(path).filter(|it| !it.is_empty()),
            message,
        },
    }
}

/// What follows in a path such as `routes[0].paths[1]` after the entity.
fn below_entity(path: &str) -> Option<String> {
    let (_, below) = path.split_once("].")?;
    Some(below.to_owned())
}

/// What an entity that was read alone is called.
pub(crate) fn label(kind: EntityKind, written: &serde_json::Value) -> String {
    let name = ["name", "username", "group", "id"].iter().find_map(|name| written.get(name)?.as_str());
    format!("{} `{}`", kind.as_str().trim_end_matches('s'), quoted(name.unwrap_or_default()))
}

/// The entity of a row that stands alone, with foreign keys in either form.
pub(crate) fn read_entity(
    kind: EntityKind,
    row: &serde_json::Value,
    plugins: &[PluginSchema],
    now: i64,
) -> Result<Option<Entity>, Vec<Refusal>> {
    let mut node = Node::from(row);
    if !settle(kind, &mut node, plugins, now) {
        return Ok(None);
    }
    let settled = node.to_json();
    let reading = weir_model::ReadOptions { plugins, references: &(), hash_passwords: false };
    Entity::read(kind, &settled, &[], reading).map(Some).map_err(|errors| {
        let entity = label(kind, row);
        let refusal = |error: weir_model::schema::FieldError| Refusal {
            entity: entity.clone(),
            field: Some(error.path).filter(|path| !path.is_empty()),
            message: error.message,
        };
        errors.into_iter().map(refusal).collect()
    })
}
