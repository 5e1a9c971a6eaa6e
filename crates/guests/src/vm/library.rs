//! Functions of Lua's library that no hook could end.

use crate::steps::Steps;
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, Value};

/// Replaces them by ones that take steps for their work.
pub(super) fn install(lua: &Lua) -> mlua::Result<()> {
    let steps = Steps::of(lua);
    let take = lua.create_function(move |_, count: Value| Ok(steps.take_many(whole(&count))?))?;
    let chunk = lua.load(include_str!("library.lua")).set_name("=[host]").set_mode(ChunkMode::Text);
    chunk.call((take, take_bytes(lua)?))
}

/// A function that takes the steps for so many bytes.
pub(super) fn take_bytes(lua: &Lua) -> mlua::Result<Function> {
    let steps = Steps::of(lua);
    lua.create_function(move |_, count: Value| Ok(steps.take_bytes(whole(&count))?))
}

/// A count, which may be too large for a whole number.
fn whole(count: &Value) -> usize {
    match count {
        Value::Integer(count) => usize::try_from(*count).unwrap_or(0),
        Value::Number(count) => *count as usize,
        _ => 0,
    }
}
