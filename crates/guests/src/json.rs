//! JSON as values of Lua, and back.

use mlua::{Lua, Table, Value};
use weir_plugin::Json;

/// How deep tables may be nested.
const MAX_DEPTH: usize = 100;

/// A JSON value as Lua has it: null is `ngx.null`.
pub(crate) fn to_lua(lua: &Lua, json: &Json) -> mlua::Result<Value> {
    Ok(match json {
        Json::Null => Value::NULL,
        Json::Bool(value) => Value::Boolean(*value),
        Json::Number(number) => Value::Number(number.as_f64().unwrap_or_default()),
        Json::String(text) => Value::String(lua.create_string(text)?),
        Json::Array(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for (item, at) in items.iter().zip(1..) {
                table.raw_set(at, to_lua(lua, item)?)?;
            }
            Value::Table(table)
        }
        Json::Object(members) => {
            let table = lua.create_table_with_capacity(0, members.len())?;
            for (name, value) in members {
                table.raw_set(name.as_str(), to_lua(lua, value)?)?;
            }
            Value::Table(table)
        }
    })
}

/// A value of Lua as JSON. A table is an array if its keys are 1, 2 and so on; an empty one is an object.
pub(crate) fn from_lua(value: &Value) -> Result<Json, String> {
    from_lua_within(value, MAX_DEPTH)
}

fn from_lua_within(value: &Value, depth: usize) -> Result<Json, String> {
    match value {
        Value::Nil => Ok(Json::Null),
        Value::LightUserData(_) if value.is_null() => Ok(Json::Null),
        Value::Boolean(value) => Ok(Json::Bool(*value)),
        Value::Integer(value) => Ok((*value).into()),
        Value::Number(value) => number(*value),
        Value::String(text) => Ok(Json::String(text.to_string_lossy())),
        Value::Table(_) if depth == 0 => Err("Cannot serialise, excessive depth".to_owned()),
        Value::Table(table) => of_table(table, depth - 1),
        other => Err(format!("Cannot serialise {}: type not supported", other.type_name())),
    }
}

fn number(value: f64) -> Result<Json, String> {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return Ok((value as i64).into());
    }
    serde_json::Number::from_f64(value)
        .map(Json::Number)
        .ok_or_else(|| "Cannot serialise number: must not be NaN or Inf".to_owned())
}

fn of_table(table: &Table, depth: usize) -> Result<Json, String> {
    let length = table.raw_len();
    let mut items = Vec::with_capacity(length);
    let mut members = serde_json::Map::new();
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair.map_err(|error| error.to_string())?;
        match key {
            Value::String(name) => {
                drop(members.insert(name.to_string_lossy(), from_lua_within(&value, depth)?))
            }
            Value::Integer(at) => items.push((at as f64, value)),
            Value::Number(at) => items.push((at, value)),
            _ => return Err("Cannot serialise table: table key must be a number or string".to_owned()),
        }
    }
    if members.is_empty() && !items.is_empty() && items.len() == length {
        items.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        return items.iter().map(|(_, value)| from_lua_within(value, depth)).collect();
    }
    for (at, value) in items {
        members.insert(at.to_string(), from_lua_within(&value, depth)?);
    }
    Ok(Json::Object(members))
}
