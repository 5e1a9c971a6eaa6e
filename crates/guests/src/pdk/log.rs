//! `kong.log`: messages in the node's log, and fields of the request's record.

use super::namespace::{Namespace, read_only, refused};
use crate::host::Host;
use crate::kept;
use crate::modules;
use crate::phase::Phases;
use crate::source;
use mlua::{Lua, MultiValue, Table, Value};
use std::fmt::Write;
use tracing::Level;
use weir_plugin::{Exchange, Json, LogFieldMode};

/// Kong's levels, and those of the node's log.
const LEVELS: [(&str, Level); 9] = [
    ("emerg", Level::ERROR),
    ("alert", Level::ERROR),
    ("crit", Level::ERROR),
    ("err", Level::ERROR),
    ("warn", Level::WARN),
    ("notice", Level::INFO),
    ("info", Level::DEBUG),
    ("debug", Level::DEBUG),
    ("deprecation", Level::WARN),
];

/// How deep `inspect` shows tables.
const MAX_DEPTH: usize = 8;

/// How deep a field of the record may be nested.
const MAX_KEY_PARTS: usize = 16;

/// Makes the namespace, which can be called itself.
pub(super) fn table(make: &Namespace<'_>) -> mlua::Result<Table> {
    let members = make.table()?;
    for (name, level) in LEVELS {
        let log = move |lua: &Lua, host: &Host, values: MultiValue| write(lua, host, level, values);
        members.set(name, make.host(Phases::ANY, log)?)?;
    }
    members.set("inspect", inspect_table(make)?)?;
    members.set("set_serialize_value", make.exchange(Phases::TO_LOG, set_serialize_value)?)?;
    let log = read_only(make.lua, members)?;
    let call = |lua: &Lua, host: &Host, mut values: MultiValue| {
        values.pop_front();
        write(lua, host, Level::INFO, values)
    };
    if let Some(meta) = log.metatable() {
        meta.set("__call", make.host(Phases::ANY, call)?)?;
    }
    Ok(log)
}

/// Writes a message: the values one after the other.
pub(crate) fn write(lua: &Lua, host: &Host, level: Level, values: MultiValue) -> mlua::Result<()> {
    if level == Level::DEBUG && !tracing::enabled!(Level::DEBUG) {
        return Ok(());
    }
    let texts = values.iter().map(Value::to_string).collect::<mlua::Result<Vec<_>>>()?;
    say(lua, host, level, &texts.concat());
    Ok(())
}

fn say(lua: &Lua, host: &Host, level: Level, message: &str) {
    let origin = host.origin();
    let place = source::caller(lua).unwrap_or_default();
    let plugin = &*origin.plugin;
    match level {
        Level::ERROR => tracing::error!(place, "[{plugin}] {message}"),
        Level::WARN => tracing::warn!(place, "[{plugin}] {message}"),
        Level::INFO => tracing::info!(place, "[{plugin}] {message}"),
        _ => tracing::debug!(place, "[{plugin}] {message}"),
    }
}

fn inspect_table(make: &Namespace<'_>) -> mlua::Result<Table> {
    let (inspect, meta) = (make.table()?, make.table()?);
    for name in ["on", "off"] {
        inspect.set(name, make.lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    }
    let call = |lua: &Lua, host: &Host, mut values: MultiValue| {
        values.pop_front();
        if tracing::enabled!(Level::DEBUG) {
            let shown: Vec<_> = values.iter().map(|value| shown(value, MAX_DEPTH)).collect();
            say(lua, host, Level::DEBUG, &shown.join(" "));
        }
        Ok(())
    };
    meta.set("__call", make.host(Phases::ANY, call)?)?;
    inspect.set_metatable(Some(meta))?;
    Ok(inspect)
}

/// A value as it would be written in Lua.
fn shown(value: &Value, depth: usize) -> String {
    match value {
        Value::String(text) => format!("{:?}", text.to_string_lossy()),
        Value::Table(_) if depth == 0 => "{…}".to_owned(),
        Value::Table(table) => {
            let mut text = String::from("{");
            for (key, value) in table.pairs::<Value, Value>().flatten() {
                let key = match &key {
                    Value::String(name) => name.to_string_lossy(),
                    other => format!("[{}]", shown(other, 0)),
                };
                // Writing to a string cannot fail.
                let _ = write!(text, " {key} = {},", shown(&value, depth - 1));
            }
            text.push_str(" }");
            text
        }
        other => other.to_string().unwrap_or_default(),
    }
}

fn set_serialize_value(
    lua: &Lua,
    exchange: &mut Exchange,
    (key, value, options): (Value, Value, Option<Table>),
) -> mlua::Result<()> {
    let Value::String(key) = key else { return refused("key must be a string") };
    let key = key.to_string_lossy();
    if key.split('.').nth(MAX_KEY_PARTS).is_some() {
        return refused(format!("key must not have more than {MAX_KEY_PARTS} parts"));
    }
    let mode = options.map(|options| options.get::<Option<String>>("mode")).transpose()?.flatten();
    let Some(mode) = LogFieldMode::named(mode.as_deref().unwrap_or("set")) else {
        return refused("mode must be 'set', 'add' or 'replace'");
    };
    let value = match value {
        Value::Nil => None,
        value => Some(json(lua, &value)?),
    };
    let bytes = key.len() + value.as_ref().map_or(0, kept::size);
    kept::keep(exchange, bytes)?;
    exchange.set_log_field(&key, value, mode);
    Ok(())
}

/// A value for the record.
fn json(lua: &Lua, value: &Value) -> mlua::Result<Json> {
    const REFUSED: &str = "value must be nil, a number, string, boolean or a non-self-referencial table containing numbers, string and booleans";
    let text = modules::to_json(lua, value).map_err(|error| error.worded(|_| REFUSED.to_owned()))?;
    serde_json::from_str(&String::from_utf8_lossy(&text)).map_err(|_| mlua::Error::runtime(REFUSED))
}
