//! `kong.cache`: what plugins keep for all workers of the node.

use super::cluster_events::STEPS_PER_EVENT;
use crate::cluster_events::{ClusterEvents, INVALIDATIONS, OF_SANDBOX};
use crate::steps::Steps;
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaString, Table};
use std::time::Duration;

/// Makes a cache whose keys begin so.
pub(crate) fn table(lua: &Lua, name: &'static str) -> mlua::Result<Table> {
    let require: Function = lua.globals().get("require")?;
    if let Some(events) = lua.app_data_ref::<ClusterEvents>() {
        events.listen();
    }
    let tell_others = lua.create_function(move |lua, key: LuaString| tell_others(lua, name, &key))?;
    let chunk = lua.load(include_str!("cache.lua")).set_name("=[kong.cache]").set_mode(ChunkMode::Text);
    chunk.call((name, require, tell_others))
}

/// Has other nodes forget a key that was invalidated.
fn tell_others(lua: &Lua, name: &str, key: &LuaString) -> mlua::Result<()> {
    Steps::of(lua).take_many(STEPS_PER_EVENT + key.as_bytes().len())?;
    let (channel, _) = INVALIDATIONS[usize::from(name == OF_SANDBOX)];
    let Some(events) = lua.app_data_ref::<ClusterEvents>() else { return Ok(()) };
    if let Err(why) = events.broadcast(channel, &key.as_bytes(), Duration::ZERO) {
        tracing::error!("other nodes do not learn of an invalidation of kong.cache: {why}");
    }
    Ok(())
}
