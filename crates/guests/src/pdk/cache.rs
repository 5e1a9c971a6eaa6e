//! `kong.cache`: what plugins keep for all workers of the node.

use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, Table};

/// What the keys of plugins begin with.
pub(super) const OF_PLUGINS: &str = "kong:";
/// What those of code in a sandbox begin with, which does not see what plugins keep.
pub(crate) const OF_SANDBOX: &str = "sandbox:";

/// Makes a cache whose keys begin so.
pub(crate) fn table(lua: &Lua, name: &str) -> mlua::Result<Table> {
    let require: Function = lua.globals().get("require")?;
    let chunk = lua.load(include_str!("cache.lua")).set_name("=[kong.cache]").set_mode(ChunkMode::Text);
    chunk.call((name, require))
}
