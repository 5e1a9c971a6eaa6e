//! The declaration of a record from a table of Lua.

use super::values;
use mlua::{Lua, LuaString, Table, Value};
use weir_plugin::Json;
use weir_plugin::schema::{FieldSchema, Kind, Literal, RecordSchema};

/// How deep fields and defaults may be within others: a table may contain itself.
const MAX_DEPTH: usize = 64;

/// The record that a table with `fields` declares. It lasts as long as the process, as every declaration does.
pub(crate) fn record(table: &Table) -> mlua::Result<&'static RecordSchema> {
    record_within(table, MAX_DEPTH)
}

/// The same of a record that may be so deep.
fn record_within(table: &Table, depth: usize) -> mlua::Result<&'static RecordSchema> {
    let depth = depth.checked_sub(1).ok_or_else(too_deep)?;
    let mut fields = Vec::new();
    for (name, field) in items(table, "fields")? {
        fields.push(self::field(leaked(&name), &field, depth)?);
    }
    let mut old_names: Vec<(&'static str, &'static str)> = Vec::new();
    for (name, shorthand) in items(table, "shorthand_fields")? {
        if let Some(path) = replaced_by(&shorthand)? {
            old_names.push((leaked(&name), leaked(&path)));
        }
    }
    let (fields, old_names) = (fields.leak(), old_names.leak());
    Ok(Box::leak(Box::new(RecordSchema { doc: "", fields, old_names, hints: &[] })))
}

fn too_deep() -> mlua::Error {
    mlua::Error::runtime(format!(
        "fields are more than {MAX_DEPTH} deep within others: does one contain itself?"
    ))
}

/// The items of a list of tables with one member each.
pub(crate) fn items(table: &Table, list: &str) -> mlua::Result<Vec<(String, Table)>> {
    let Some(list) = table.get::<Option<Table>>(list)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for item in list.sequence_values::<Table>() {
        for pair in item?.pairs::<LuaString, Table>() {
            let (name, member) = pair?;
            found.push((name.to_string_lossy(), member));
        }
    }
    Ok(found)
}

/// The path of the field that has taken the place of an old name.
fn replaced_by(shorthand: &Table) -> mlua::Result<Option<String>> {
    let joined = |path: Table| -> mlua::Result<String> {
        Ok(path.sequence_values::<String>().collect::<mlua::Result<Vec<_>>>()?.join("."))
    };
    if let Some(path) = shorthand.get::<Option<Table>>("translate_backwards")? {
        return joined(path).map(Some);
    }
    let deprecation: Option<Table> = shorthand.get("deprecation")?;
    let replaced: Option<Table> = deprecation.map(|it| it.get("replaced_with")).transpose()?.flatten();
    let Some(Value::Table(first)) = replaced.map(|it| it.get::<Value>(1)).transpose()? else {
        return Ok(None);
    };
    first.get::<Option<Table>>("path")?.map(joined).transpose()
}

fn field(name: &'static str, table: &Table, depth: usize) -> mlua::Result<FieldSchema> {
    let text = |key: &str| table.get::<Option<String>>(key).unwrap_or_default().map(|text| leaked(&text));
    let is = |key: &str| matches!(table.get::<Value>(key), Ok(Value::Boolean(true)));
    let kind = self::kind(table, depth)?;
    let typed: Option<String> = table.get("type")?;
    // Rules on values hold for the elements of a list, and the values of a map.
    let of_values = ["elements", "values"].into_iter().find_map(|key| table.get::<Table>(key).ok());
    let rules = of_values.as_ref().unwrap_or(table);
    let number = |key: &str| rules.get::<Option<f64>>(key).unwrap_or_default();
    let length = |key: &str| table.get::<Option<usize>>(key).unwrap_or_default();
    let between: Vec<f64> = rules.get("between").unwrap_or_default();
    let one_of: Vec<Value> = rules.get("one_of").unwrap_or_default();
    let one_of: Vec<Literal> = one_of.iter().filter_map(|value| literal(value, MAX_DEPTH)).collect();
    let default = literal(&table.get("default")?, MAX_DEPTH);
    let is_null = |key: &str| table.get::<Value>(key).is_ok_and(|value| value == Value::NULL);
    Ok(FieldSchema {
        kind,
        required: is("required"),
        default: default.map(|default| list_of(kind, default)),
        set: typed.as_deref() == Some("set"),
        one_of: one_of.leak(),
        gt: number("gt"),
        between: <[f64; 2]>::try_from(between).ok().map(|[low, high]| (low, high)),
        len_min: length("len_min"),
        len_max: length("len_max"),
        starts_with: rules.get::<Option<String>>("starts_with")?.map(|text| leaked(&text)),
        encrypted: is("encrypted"),
        referenceable: is("referenceable")
            || of_values.is_some_and(|it| it.get("referenceable").unwrap_or(false)),
        auto: is("auto"),
        uuid: is("uuid"),
        unique: is("unique"),
        immutable: is("immutable"),
        foreign: text("reference").filter(|_| !is_null("eq")),
        ..FieldSchema::new::<bool>(name, text("description").unwrap_or(""))
    })
}

/// An empty table is an empty list where a list is meant.
fn list_of(kind: Kind, default: Literal) -> Literal {
    match (kind, default) {
        (Kind::Array(_), Literal::Map([])) => Literal::List(&[]),
        (_, default) => default,
    }
}

fn kind(table: &Table, depth: usize) -> mlua::Result<Kind> {
    let inner = |key: &str| -> mlua::Result<&'static Kind> {
        let of: Option<Table> = table.get(key)?;
        let within = |of: &Table| kind(of, depth.checked_sub(1).ok_or_else(too_deep)?);
        let kind = of.as_ref().map_or(Ok(Kind::Any), within)?;
        Ok(Box::leak(Box::new(kind)))
    };
    let typed: Option<String> = table.get("type")?;
    Ok(match typed.as_deref() {
        Some("string") => Kind::String,
        Some("number") => Kind::Number,
        Some("integer") => Kind::Integer(i64::MIN, i64::MAX),
        Some("boolean") => Kind::Boolean,
        Some("array" | "set") => Kind::Array(inner("elements")?),
        Some("map") => Kind::Map(inner("values")?),
        Some("record") => Kind::Record(record_within(table, depth)?),
        Some("foreign") => Kind::Uuid,
        Some("any" | "function" | "json") | None => Kind::Any,
        Some(other) => {
            let known =
                "string, number, integer, boolean, array, set, map, record, foreign, function, json, any";
            return Err(mlua::Error::runtime(format!("there is no type '{other}': known are {known}")));
        }
    })
}

/// A default, or an allowed value. What is too deep in it is left out.
fn literal(value: &Value, depth: usize) -> Option<Literal> {
    let within = depth.checked_sub(1)?;
    Some(match value {
        Value::Boolean(value) => Literal::Bool(*value),
        Value::Integer(number) => Literal::Int(*number),
        Value::Number(number) => match values::number(*number).as_i64() {
            Some(whole) => Literal::Int(whole),
            None => Literal::Float(*number),
        },
        Value::String(text) => Literal::Str(leaked(&text.to_string_lossy())),
        Value::Table(table) if table.raw_len() > 0 => {
            let items: Vec<Value> = table.sequence_values().collect::<mlua::Result<_>>().ok()?;
            Literal::List(items.iter().filter_map(|item| literal(item, within)).collect::<Vec<_>>().leak())
        }
        Value::Table(table) => {
            let members = table.pairs::<String, Value>().filter_map(Result::ok);
            let members = members.filter_map(|(name, value)| Some((leaked(&name), literal(&value, within)?)));
            Literal::Map(members.collect::<Vec<_>>().leak())
        }
        _ => return None,
    })
}

fn leaked(text: &str) -> &'static str {
    text.to_owned().leak()
}

/// The table as JSON, as `/schemas` shows it: without functions.
pub(crate) fn described(lua: &Lua, table: &Table) -> mlua::Result<Json> {
    let mut json = values::to_json(&values::list_mark(lua)?, &Value::Table(table.clone()))?;
    mark_lists(&mut json);
    Ok(json)
}

/// Names of members that are lists, also where they are empty.
const LISTS: [&str; 4] = ["fields", "entity_checks", "shorthand_fields", "one_of"];

fn mark_lists(json: &mut Json) {
    let is_empty = |json: &Json| json.as_object().is_some_and(serde_json::Map::is_empty);
    match json {
        Json::Object(members) => {
            let is_list = matches!(members.get("type").and_then(Json::as_str), Some("array" | "set"));
            for (name, member) in members.iter_mut() {
                if is_empty(member) && (LISTS.contains(&name.as_str()) || name == "default" && is_list) {
                    *member = Json::Array(Vec::new());
                }
                mark_lists(member);
            }
        }
        Json::Array(items) => items.iter_mut().for_each(mark_lists),
        _ => {}
    }
}
