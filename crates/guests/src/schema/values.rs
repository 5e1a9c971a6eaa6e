//! Values of JSON as values of Lua that `kong.db.schema` reads, and back.

use mlua::{Lua, LuaString, Table, Value};
use weir_plugin::Json;

/// Deeper tables are left out of what Lua returns: no configuration is so deep, but a table may contain itself.
const MAX_DEPTH: usize = 100;

/// The metatable that tells lists from mappings: `array_mt` of cjson.
pub(crate) fn list_mark(lua: &Lua) -> mlua::Result<Table> {
    let require: mlua::Function = lua.globals().get("require")?;
    require.call::<Table>("cjson")?.get("array_mt")
}

/// A value for Lua: null is `ngx.null`, and lists are marked.
pub(crate) fn to_lua(lua: &Lua, mark: &Table, json: &Json) -> mlua::Result<Value> {
    Ok(match json {
        Json::Null => Value::NULL,
        Json::Bool(value) => Value::Boolean(*value),
        Json::Number(number) => Value::Number(number.as_f64().unwrap_or_default()),
        Json::String(text) => Value::String(lua.create_string(text)?),
        Json::Array(items) => {
            let list = lua.create_table_with_capacity(items.len(), 0)?;
            for item in items {
                list.raw_push(to_lua(lua, mark, item)?)?;
            }
            list.set_metatable(Some(mark.clone()))?;
            Value::Table(list)
        }
        Json::Object(members) => {
            let table = lua.create_table_with_capacity(0, members.len())?;
            for (name, member) in members {
                table.raw_set(name.as_str(), to_lua(lua, mark, member)?)?;
            }
            Value::Table(table)
        }
    })
}

/// Texts of Lua, with what is not UTF-8 replaced.
pub(crate) fn texts(found: &[LuaString]) -> Vec<String> {
    found.iter().map(LuaString::to_string_lossy).collect()
}

/// A value that Lua returns, without functions. A table without elements is a mapping, unless it is marked.
pub(crate) fn to_json(mark: &Table, value: &Value) -> mlua::Result<Json> {
    below(mark, value, MAX_DEPTH)
}

fn below(mark: &Table, value: &Value, depth: usize) -> mlua::Result<Json> {
    Ok(match value {
        Value::Boolean(value) => Json::Bool(*value),
        Value::Integer(number) => Json::from(*number),
        Value::Number(number) => self::number(*number),
        Value::String(text) => Json::String(text.to_string_lossy()),
        Value::Table(table) if depth > 0 => self::table(mark, table, depth - 1)?,
        _ => Json::Null,
    })
}

/// A number, whole where it is so.
pub(crate) fn number(number: f64) -> Json {
    match number.fract() == 0.0 && number.abs() < 9e15 {
        true => Json::from(number as i64),
        false => Json::from(number),
    }
}

fn table(mark: &Table, table: &Table, depth: usize) -> mlua::Result<Json> {
    let is_marked = table.metatable().as_ref() == Some(mark);
    if is_marked || table.raw_len() > 0 {
        let items = table.sequence_values::<Value>();
        return items
            .map(|item| below(mark, &item?, depth))
            .collect::<mlua::Result<Vec<_>>>()
            .map(Json::Array);
    }
    let mut members = serde_json::Map::new();
    for pair in table.pairs::<Value, Value>() {
        let (name, member) = pair?;
        let name = name.as_string().map(|name| name.to_string_lossy());
        if let Some(name) = name.filter(|_| !member.is_function()) {
            members.insert(name, below(mark, &member, depth)?);
        }
    }
    Ok(Json::Object(members))
}
