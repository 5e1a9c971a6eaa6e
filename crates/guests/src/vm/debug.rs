//! `debug`, as far as it only reads: where code is, and by which calls it came there.

use crate::modules::number;
use mlua::debug::Debug;
use mlua::{Lua, MultiValue, Table, Value};

/// How deep a stack is looked at.
const MAX_LEVEL: i64 = 1_000_000;

/// Makes the library. What reads or changes the variables of others, and hooks, would break what holds code.
pub(super) fn install(lua: &Lua) -> mlua::Result<()> {
    let debug = lua.create_table()?;
    debug.set("traceback", lua.create_function(traceback)?)?;
    debug.set("getinfo", lua.create_function(info)?)?;
    // What saves and restores a hook leaves that of the host alone.
    debug.set("gethook", lua.create_function(|_, _: MultiValue| Ok("external hook"))?)?;
    lua.globals().get::<Table>("package")?.get::<Table>("loaded")?.set("debug", &debug)?;
    lua.globals().set("debug", debug)
}

/// The arguments without the thread that may come first.
fn own(mut given: MultiValue) -> (Value, Value) {
    let mut next = || given.pop_front().unwrap_or_default();
    let first = match next() {
        Value::Thread(_) => next(),
        other => other,
    };
    (first, next())
}

/// `debug.traceback(message, level)`: a message that is no text is returned.
fn traceback(lua: &Lua, given: MultiValue) -> mlua::Result<Value> {
    let (message, level) = own(given);
    let text = match &message {
        Value::Nil => None,
        Value::String(text) => Some(text.to_string_lossy()),
        Value::Integer(value) => Some(number::text(*value as f64)),
        Value::Number(value) => Some(number::text(*value)),
        Value::Error(error) => Some(crate::source::message(error)),
        _ => return Ok(message),
    };
    let level = level.as_integer().unwrap_or(1).clamp(0, MAX_LEVEL);
    lua.traceback(text.as_deref(), level as usize).map(Value::String)
}

/// `debug.getinfo(function or level)`, without the function itself.
fn info(lua: &Lua, given: MultiValue) -> mlua::Result<Option<Table>> {
    let (of, _) = own(given);
    if let Value::Function(function) = &of {
        let (info, table) = (function.info(), lua.create_table()?);
        table.set("source", info.source)?;
        table.set("short_src", info.short_src)?;
        table.set("what", info.what)?;
        table.set("currentline", -1)?;
        table.set("linedefined", line(info.line_defined))?;
        table.set("lastlinedefined", line(info.last_line_defined))?;
        table.set("nups", info.num_upvalues)?;
        return Ok(Some(table));
    }
    let level = of.as_integer().or_else(|| of.as_number().map(|number| number as i64));
    let Some(level) = level.filter(|level| (0..MAX_LEVEL).contains(level)) else {
        return Err(mlua::Error::runtime("bad argument #1 to 'getinfo' (function or level expected)"));
    };
    lua.inspect_stack(level as usize, |debug| at_level(lua, debug)).transpose()
}

fn at_level(lua: &Lua, debug: &Debug<'_>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let (names, source) = (debug.names(), debug.source());
    table.set("name", names.name)?;
    table.set("namewhat", names.name_what.unwrap_or_default())?;
    table.set("source", source.source)?;
    table.set("short_src", source.short_src)?;
    table.set("what", source.what)?;
    table.set("currentline", line(debug.current_line()))?;
    table.set("linedefined", line(source.line_defined))?;
    table.set("lastlinedefined", line(source.last_line_defined))?;
    Ok(table)
}

/// A line, or -1 where there is none.
fn line(line: Option<usize>) -> i64 {
    line.map_or(-1, |line| line as i64)
}
