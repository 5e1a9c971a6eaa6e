//! Header names and values, as the PDK takes and shows them. The messages are Kong's.

use super::names::Names;
use crate::args::Listed;
use crate::fields::{listed, scalar, wire_name};
use crate::kept;
use crate::namespace::{Namespace, refused};
use crate::phase::Phases;
use crate::text;
use mlua::{Function, Lua, LuaString, Table, Value};
use weir_plugin::Headers;
use weir_plugin::{Exchange, HeadersOf};

/// Where the metatable of tables of headers is kept.
const METATABLE: &str = "weir.headers";

/// A function that returns the first value of a header of the exchange.
pub(crate) fn getter(
    make: &Namespace<'_>,
    phases: Phases,
    of: impl Fn(&Exchange) -> Option<&Headers> + Copy + 'static,
) -> mlua::Result<Function> {
    let names = Names::of(make.lua)?;
    let by_number = move |lua: &Lua, exchange: &mut Exchange, number: usize| {
        let name = names.get(number)?;
        let value = of(exchange).and_then(|headers| headers.get(&name.wire));
        value.map(|value| text::string(lua, value)).transpose()
    };
    let names = Names::of(make.lua)?;
    let by_name = move |lua: &Lua, exchange: &mut Exchange, name: Value| {
        let text = self::name(&name)?;
        names.learn(&name)?;
        of(exchange).map_or(Ok(None), |headers| first(lua, headers, &text))
    };
    make.named(make.exchange(phases, by_number)?, make.exchange(phases, by_name)?)
}

/// The first value of a header.
pub(crate) fn first(lua: &Lua, headers: &Headers, name: &LuaString) -> mlua::Result<Option<LuaString>> {
    let bytes = name.as_bytes();
    let Ok(name) = std::str::from_utf8(&bytes) else { return Ok(None) };
    headers.get(&wire_name(name)).map(|value| text::string(lua, value)).transpose()
}

/// The value of a header, as `ngx.header` shows it: a list where it has several.
pub(crate) fn all(lua: &Lua, headers: &Headers, name: &str) -> mlua::Result<Value> {
    listed(lua, headers.get_all(&wire_name(name)))
}

/// A name that code gives.
pub(crate) fn name(value: &Value) -> mlua::Result<LuaString> {
    match value {
        Value::String(name) => Ok(name.clone()),
        _ => refused("header name must be a string"),
    }
}

/// How many headers or arguments code asks for.
pub(crate) fn limit(what: &str, value: &Value) -> mlua::Result<usize> {
    let number = match value {
        Value::Nil => return Ok(100),
        Value::Integer(number) => *number as f64,
        Value::Number(number) => *number,
        _ => return refused(format!("{what} must be a number")),
    };
    match number {
        number if number < 1.0 => refused(format!("{what} must be >= 1")),
        number if number > 1000.0 => refused(format!("{what} must be <= 1000")),
        number => Ok(number as usize),
    }
}

/// Headers as a table, with keys in small letters, and "truncated" if there are more. Those that repeat are arrays.
pub(crate) fn table(lua: &Lua, headers: &Headers, max: usize) -> mlua::Result<Listed> {
    let meta = metatable(lua)?;
    let bytes: usize = headers.iter().take(max).map(|field| field.value.len()).sum();
    let table = match bytes > SMALL {
        true => filled(lua, headers, max, meta)?,
        false => text::within_limit(lua, || filled(lua, headers, max, meta))?,
    };
    Ok(Listed { table, is_truncated: headers.iter().nth(max).is_some() })
}

fn filled(lua: &Lua, headers: &Headers, max: usize, meta: Table) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for field in headers.iter().take(max) {
        add(lua, &table, &field.name.to_ascii_lowercase(), Value::String(lua.create_string(field.value)?))?;
    }
    table.set_metatable(Some(meta))?;
    Ok(table)
}

/// Adds a value to those of a key.
pub(crate) fn add(lua: &Lua, table: &Table, key: &[u8], value: Value) -> mlua::Result<()> {
    let key = lua.create_string(key)?;
    match table.raw_get(&key)? {
        Value::Nil => table.raw_set(key, value),
        Value::Table(values) => values.raw_push(value),
        single => table.raw_set(key, lua.create_sequence_from([single, value])?),
    }
}

/// Finds a header by its name in any case, and with `_` for `-`.
fn metatable(lua: &Lua) -> mlua::Result<Table> {
    if let Some(known) = lua.named_registry_value::<Option<Table>>(METATABLE)? {
        return Ok(known);
    }
    let meta = lua.create_table()?;
    let index = lua.create_function(|_, (headers, key): (Table, Value)| {
        let Value::String(name) = key else { return Ok(Value::Nil) };
        headers.raw_get::<Value>(wire_name(&name.to_string_lossy()).to_ascii_lowercase())
    })?;
    meta.set("__index", index)?;
    lua.set_named_registry_value(METATABLE, &meta)?;
    Ok(meta)
}

/// How many bytes of values are made into strings at once.
const SMALL: usize = 16 << 10;

/// A header that code sets: its name and values.
pub(crate) type Field = (String, Vec<Vec<u8>>);

/// How long a header that code sets may be, with its values.
const MAX_FIELD: usize = 64 << 10;
/// What a value takes beside its text.
const VALUE: usize = 32;

/// How much longer a header may become.
pub(crate) struct Room(usize);

impl Room {
    /// What its name leaves.
    pub(crate) fn beside(name: &LuaString) -> mlua::Result<Self> {
        let mut room = Self(MAX_FIELD);
        room.take(name.as_bytes().len()).map(|()| room)
    }

    /// A value of it as text, if it can be one.
    pub(crate) fn text(&mut self, value: &Value) -> mlua::Result<Option<Vec<u8>>> {
        self.take(VALUE + value.as_string().map_or(0, |text| text.as_bytes().len()))?;
        Ok(scalar(value)
            .map(|text| if text.iter().any(|byte| is_escaped(*byte)) { escaped(&text) } else { text }))
    }

    fn take(&mut self, bytes: usize) -> mlua::Result<()> {
        match self.0.checked_sub(bytes) {
            Some(left) => self.0 = left,
            None => return refused(format!("a header may have at most {MAX_FIELD} bytes")),
        }
        Ok(())
    }
}

/// What nginx does not send in a value as it is.
fn is_escaped(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

/// A value with `%XX` for each such byte, so that none ends the header.
fn escaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for byte in text {
        match is_escaped(*byte) {
            true => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            false => out.push(*byte),
        }
    }
    out
}

/// How many bytes a header takes.
fn size((name, values): &Field) -> usize {
    name.len() + values.iter().map(|value| VALUE + value.len()).sum::<usize>()
}

/// Counts a header that the request keeps.
pub(crate) fn keep(exchange: &mut Exchange, field: &Field) -> mlua::Result<()> {
    kept::keep_header(exchange, size(field), field.1.len().max(1))
}

/// A header to set.
pub(crate) fn field(name: &Value, value: &Value) -> mlua::Result<Field> {
    let Value::String(text) = name else {
        let shown = name.to_string()?;
        return refused(format!("invalid header name \"{shown}\": got {}, expected string", type_of(name)));
    };
    let mut room = Room::beside(text)?;
    let text = text.to_string_lossy();
    let values = match value {
        Value::Table(values) => array(&text, values, room)?,
        value => match room.text(value)? {
            Some(value) => vec![value],
            None => {
                return refused(format!(
                    "invalid header value for \"{text}\": got {}, expected array of string, string, number or boolean",
                    type_of(value)
                ));
            }
        },
    };
    Ok((text, values))
}

fn array(name: &str, values: &Table, mut room: Room) -> mlua::Result<Vec<Vec<u8>>> {
    let values = values.sequence_values::<Value>().map(|value| {
        let value = value?;
        let text = room.text(&value)?.filter(|_| !matches!(value, Value::Boolean(_)));
        text.map_or_else(
            || {
                refused(format!(
                    "invalid header value in array \"{name}\": got {}, expected string",
                    type_of(&value)
                ))
            },
            Ok,
        )
    });
    values.collect()
}

/// The type of a value, by its name in Lua.
pub(crate) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) | Value::Number(_) => "number",
        Value::LightUserData(_) | Value::Error(_) => "userdata",
        other => other.type_name(),
    }
}

/// Headers that code sets, in the order of their names; all are checked before one is set.
pub(crate) fn fields(headers: &Value) -> mlua::Result<Vec<Field>> {
    let Value::Table(headers) = headers else { return refused("headers must be a table") };
    let (mut bytes, mut values) = (0, 0);
    let fields = headers.pairs::<Value, Value>().map(|pair| {
        let (name, value) = pair?;
        let field = field(&name, &value)?;
        bytes += size(&field);
        values += field.1.len().max(1);
        kept::are_few(values)?;
        kept::within(bytes).map(|()| field)
    });
    let mut fields = fields.collect::<mlua::Result<Vec<_>>>()?;
    fields.sort();
    Ok(fields)
}

/// Sets a header of the exchange, in the place of those of its name.
pub(crate) fn set(exchange: &mut Exchange, of: HeadersOf, field: &Field) -> mlua::Result<()> {
    keep(exchange, field)?;
    let (name, values) = field;
    let name = wire_name(name);
    let mut values = values.iter();
    match values.next() {
        Some(first) => exchange.set_header(of, &name, first).map_err(mlua::Error::runtime)?,
        None => exchange.clear_header(of, &name).map_err(mlua::Error::runtime)?,
    }
    values.try_for_each(|value| exchange.add_header(of, &name, value).map_err(mlua::Error::runtime))
}

/// Sets a header to one value. Returns false where it cannot be so long.
pub(crate) fn set_text(
    exchange: &mut Exchange,
    of: HeadersOf,
    (name, value): (&str, &[u8]),
) -> mlua::Result<bool> {
    let bytes = name.len() + VALUE + value.len();
    if name.starts_with(':') || bytes > MAX_FIELD || value.iter().any(|byte| is_escaped(*byte)) {
        return Ok(false);
    }
    kept::keep_header(exchange, bytes, 1)?;
    exchange.set_header(of, name, value).map_err(mlua::Error::runtime)?;
    Ok(true)
}

/// Adds a header to those of its name.
pub(crate) fn append(exchange: &mut Exchange, of: HeadersOf, field: &Field) -> mlua::Result<()> {
    keep(exchange, field)?;
    let (name, values) = field;
    let name = wire_name(name);
    let mut values = values.iter();
    values.try_for_each(|value| exchange.add_header(of, &name, value).map_err(mlua::Error::runtime))
}
