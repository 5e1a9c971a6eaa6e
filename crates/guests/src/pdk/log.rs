//! `kong.log`: messages in the node's log, and fields of the request's record.

use super::inspect;
use crate::host::Host;
use crate::kept;
use crate::modules::{self, number};
use crate::namespace::{Namespace, read_only, refused};
use crate::phase::Phases;
use crate::source::{self, MAX_MESSAGE};
use crate::steps::Steps;
use mlua::{Lua, MultiValue, Table, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use tracing::Level;
use weir_plugin::{Exchange, Json, LogFieldMode, RequestRecord};

/// The target of messages at Kong's level `info`. The node's own messages have no such level: theirs are notices.
pub const INFO_TARGET: &str = "weir_guests::info";

/// How severe a message is. What is more severe than an error is an error in the node's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    Error,
    Warn,
    Notice,
    Info,
    Debug,
}

/// Kong's levels.
const LEVELS: [(&str, Severity); 8] = [
    ("emerg", Severity::Error),
    ("alert", Severity::Error),
    ("crit", Severity::Error),
    ("err", Severity::Error),
    ("warn", Severity::Warn),
    ("notice", Severity::Notice),
    ("info", Severity::Info),
    ("debug", Severity::Debug),
];

impl Severity {
    /// That of a number, such as `ngx.ERR`.
    pub(crate) fn of_number(number: i64) -> Self {
        match number {
            ..=4 => Self::Error,
            5 => Self::Warn,
            6 => Self::Notice,
            7 => Self::Info,
            _ => Self::Debug,
        }
    }

    /// Whether it is worth making the message: not if the log leaves it out.
    fn is_logged(self) -> bool {
        match self {
            Self::Info => tracing::enabled!(target: INFO_TARGET, Level::INFO),
            Self::Debug => tracing::enabled!(Level::DEBUG),
            _ => true,
        }
    }
}

/// How deep a field of the record may be nested.
const MAX_KEY_PARTS: usize = 16;

/// What a message costs.
const STEPS_PER_MESSAGE: usize = 4096;

/// Makes the namespace, which can be called itself.
pub(super) fn table(make: &Namespace<'_>, record: RequestRecord) -> mlua::Result<Table> {
    let members = make.table()?;
    let serialize = move |lua: &Lua, exchange: &mut Exchange, _: MultiValue| {
        let text = record.of(exchange);
        // To write it takes as long as to read it several times.
        Steps::of(lua).take_bytes(text.len() * 8)?;
        Ok(modules::from_json(lua, &text)?)
    };
    members.set("serialize", make.exchange(Phases::LOG, serialize)?)?;
    for (name, level) in LEVELS {
        let log = move |lua: &Lua, host: &Host, values: MultiValue| write(lua, host, level, values);
        members.set(name, make.host(Phases::ANY, log)?)?;
    }
    members.set("deprecation", make.host(Phases::ANY, deprecation)?)?;
    members.set("inspect", inspect_table(make)?)?;
    members.set("set_serialize_value", make.exchange(Phases::TO_LOG, set_serialize_value)?)?;
    let log = read_only(make.lua, members)?;
    let call = |lua: &Lua, host: &Host, mut values: MultiValue| {
        values.pop_front();
        write(lua, host, Severity::Notice, values)
    };
    if let Some(meta) = log.metatable() {
        meta.set("__call", make.host(Phases::ANY, call)?)?;
    }
    Ok(log)
}

/// Writes a message: the values one after the other.
pub(crate) fn write(lua: &Lua, host: &Host, level: Severity, values: MultiValue) -> mlua::Result<()> {
    if !level.is_logged() {
        return Ok(());
    }
    let mut message = String::new();
    for value in &values {
        if message.len() > MAX_MESSAGE {
            break;
        }
        push(&mut message, value)?;
    }
    say(lua, host, level, message)
}

/// A message of what is deprecated. A table behind it says since which version, and when it is removed.
fn deprecation(lua: &Lua, host: &Host, mut values: MultiValue) -> mlua::Result<()> {
    if let Some(of) = values.back().and_then(Value::as_table).cloned() {
        values.pop_back();
        let mut parts = Vec::new();
        for (name, text) in [("after", "deprecated after"), ("removal", "scheduled for removal in")] {
            if let Some(version) = of.raw_get::<Option<String>>(name).ok().flatten() {
                parts.push(format!("{text} {version}"));
            }
        }
        if !parts.is_empty() {
            values.push_back(Value::String(lua.create_string(format!(" ({})", parts.join(", ")))?));
        }
    }
    write(lua, host, Severity::Warn, values)
}

/// Appends a value to a message: of a string, no more than is logged.
fn push(message: &mut String, value: &Value) -> mlua::Result<()> {
    match value {
        Value::String(text) => {
            let bytes = text.as_bytes();
            message.push_str(&String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_MESSAGE + 1)]));
        }
        Value::Integer(value) => message.push_str(&number::text(*value as f64)),
        Value::Number(value) => message.push_str(&number::text(*value)),
        other => message.push_str(&other.to_string()?),
    }
    Ok(())
}

fn say(lua: &Lua, host: &Host, level: Severity, message: String) -> mlua::Result<()> {
    let message = source::cut(message);
    Steps::of(lua).take_many(STEPS_PER_MESSAGE + message.len())?;
    log(lua, host, level, &message);
    Ok(())
}

/// The same, with a message of the log for each line.
fn say_lines(lua: &Lua, host: &Host, level: Severity, message: String) -> mlua::Result<()> {
    let message = source::cut(message);
    for line in message.lines() {
        Steps::of(lua).take_many(STEPS_PER_MESSAGE + line.len())?;
        log(lua, host, level, line);
    }
    Ok(())
}

fn log(lua: &Lua, host: &Host, level: Severity, message: &str) {
    let origin = host.origin();
    let place = source::caller(lua).unwrap_or_default();
    let plugin = &*origin.plugin;
    match level {
        Severity::Error => tracing::error!(place, "[{plugin}] {message}"),
        Severity::Warn => tracing::warn!(place, "[{plugin}] {message}"),
        Severity::Notice => tracing::info!(place, "[{plugin}] {message}"),
        Severity::Info => tracing::info!(target: INFO_TARGET, place, "[{plugin}] {message}"),
        Severity::Debug => tracing::debug!(place, "[{plugin}] {message}"),
    }
}

/// `kong.log.inspect`, which each plugin switches on and off for itself.
fn inspect_table(make: &Namespace<'_>) -> mlua::Result<Table> {
    let (members, silent) = (make.table()?, Rc::<RefCell<BTreeSet<Box<str>>>>::default());
    for (name, is_on) in [("on", true), ("off", false)] {
        let silent = silent.clone();
        let switch = move |_: &Lua, host: &Host, _: MultiValue| {
            let (origin, mut silent) = (host.origin(), silent.borrow_mut());
            match is_on {
                true => silent.remove(&origin.plugin),
                false => silent.insert(origin.plugin.clone()),
            };
            Ok(())
        };
        members.set(name, make.host(Phases::ANY, switch)?)?;
    }
    let call = move |lua: &Lua, host: &Host, mut values: MultiValue| {
        values.pop_front();
        if Severity::Debug.is_logged() && !silent.borrow().contains(&host.origin().plugin) {
            let message = inspect::listed(lua, &values)?;
            say_lines(lua, host, Severity::Debug, message)?;
        }
        Ok(())
    };
    let inspect = read_only(make.lua, members)?;
    if let Some(meta) = inspect.metatable() {
        meta.set("__call", make.host(Phases::ANY, call)?)?;
    }
    Ok(inspect)
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
