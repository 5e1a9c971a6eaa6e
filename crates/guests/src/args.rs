//! Arguments as Lua's own functions take them: numbers pass for strings and the reverse, errors name the argument.

use mlua::{IntoLuaMulti, Lua, LuaString, MultiValue, Table, Value};

use crate::raise::{Checked, Raised};

/// What Lua calls the type of a value.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) => "number",
        Value::LightUserData(_) | Value::Error(_) => "userdata",
        Value::Other(_) => "cdata",
        other => other.type_name(),
    }
}

/// The error for the argument at this position, counted from 1.
pub(crate) fn bad(function: &str, position: usize, reason: &str) -> Raised {
    Raised::Text(format!("bad argument #{position} to '{function}' ({reason})"))
}

/// The error for an argument of another type.
fn expected(function: &str, position: usize, kind: &str, value: &Value) -> Raised {
    bad(function, position, &format!("{kind} expected, got {}", type_name(value)))
}

/// A string, or a number as one.
pub(crate) fn string(lua: &Lua, function: &str, position: usize, value: &Value) -> Checked<LuaString> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(_) | Value::Number(_) => {
            lua.coerce_string(value.clone())?.ok_or_else(|| expected(function, position, "string", value))
        }
        _ => Err(expected(function, position, "string", value)),
    }
}

/// A whole number, or the default if there is none. Fractions are cut off.
pub(crate) fn integer(
    lua: &Lua,
    function: &str,
    position: usize,
    value: &Value,
    default: i64,
) -> Checked<i64> {
    match value {
        Value::Nil => Ok(default),
        Value::Integer(number) => Ok(*number),
        _ => number(lua, function, position, value).map(|number| number as i64),
    }
}

/// A number, or a string that reads as one.
pub(crate) fn number(lua: &Lua, function: &str, position: usize, value: &Value) -> Checked<f64> {
    match value {
        Value::Integer(number) => Ok(*number as f64),
        Value::Number(number) => Ok(*number),
        Value::String(_) => {
            lua.coerce_number(value.clone())?.ok_or_else(|| expected(function, position, "number", value))
        }
        _ => Err(expected(function, position, "number", value)),
    }
}

/// A table.
pub(crate) fn table<'a>(function: &str, position: usize, value: &'a Value) -> Checked<&'a Table> {
    value.as_table().ok_or_else(|| expected(function, position, "table", value))
}

/// What Lua takes for true.
pub(crate) fn truthy(value: &Value) -> bool {
    !matches!(value, Value::Nil | Value::Boolean(false))
}

/// A table, and "truncated" if it does not have all. A complete one is the only value, because code passes it on.
pub(crate) struct Listed {
    pub(crate) table: Table,
    pub(crate) is_truncated: bool,
}

impl IntoLuaMulti for Listed {
    fn into_lua_multi(self, lua: &Lua) -> mlua::Result<MultiValue> {
        match self.is_truncated {
            true => (self.table, "truncated").into_lua_multi(lua),
            false => self.table.into_lua_multi(lua),
        }
    }
}
