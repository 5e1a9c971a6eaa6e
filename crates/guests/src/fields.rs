//! Names and values of header fields, as Lua writes and sees them.

use crate::modules::number;
use mlua::{Lua, Value};
use std::borrow::Cow;

/// What a header is called on the wire: `_` stands for `-`.
pub(crate) fn wire_name(name: &str) -> Cow<'_, str> {
    if name.contains('_') { Cow::Owned(name.replace('_', "-")) } else { Cow::Borrowed(name) }
}

/// A value, or a list of several.
pub(crate) fn listed<'v>(lua: &Lua, values: impl Iterator<Item = &'v [u8]>) -> mlua::Result<Value> {
    let values: Vec<_> = values.collect();
    match values[..] {
        [] => Ok(Value::Nil),
        [one] => lua.create_string(one).map(Value::String),
        _ => {
            let texts = values.iter().map(|value| lua.create_string(value));
            let texts = texts.collect::<mlua::Result<Vec<_>>>()?;
            lua.create_sequence_from(texts).map(Value::Table)
        }
    }
}

/// A string, number or boolean as text.
pub(crate) fn scalar(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        // All numbers of Lua are of one kind, and written with 14 digits.
        Value::Integer(value) => Some(number::text(*value as f64).into_bytes()),
        Value::Number(value) => Some(number::text(*value).into_bytes()),
        Value::Boolean(_) => value.to_string().ok().map(String::into_bytes),
        _ => None,
    }
}
