//! Functions of Lua's library that no hook could end.

use crate::steps::Steps;
use mlua::chunk::ChunkMode;
use mlua::{Lua, Value};

/// Replaces them by ones that take steps for their work.
pub(super) fn install(lua: &Lua) -> mlua::Result<()> {
    let (of_values, of_bytes) = (Steps::of(lua), Steps::of(lua));
    let take = lua.create_function(move |_, count: Value| Ok(of_values.take_many(whole(&count))?))?;
    let take_bytes = lua.create_function(move |_, count: Value| Ok(of_bytes.take_bytes(whole(&count))?))?;
    let chunk = lua.load(include_str!("library.lua")).set_name("=[host]").set_mode(ChunkMode::Text);
    chunk.call((take, take_bytes))
}

/// A count, which may be too large for a whole number.
fn whole(count: &Value) -> usize {
    match count {
        Value::Integer(count) => usize::try_from(*count).unwrap_or(0),
        Value::Number(count) => *count as usize,
        _ => 0,
    }
}
