//! `ngx.worker` and `ngx.config`: what code learns of the process.

use crate::beside::Beside;
use crate::namespace::Namespace;
use crate::worker::Worker;
use mlua::{Lua, MultiValue, Table};
use std::sync::Arc;

/// The version of nginx in Kong 3.9, and that of its Lua module.
const NGINX_VERSION: u32 = 1_025_003;
const NGX_LUA_VERSION: u32 = 10_026;

/// Makes `ngx.worker`. The workers of a node are threads of one process.
pub(super) fn worker(make: &Namespace<'_>) -> mlua::Result<Table> {
    let table = make.table()?;
    table.set("id", make.lua.create_function(|_, _: MultiValue| Ok(Worker::of_thread().index))?)?;
    table.set("count", make.lua.create_function(|_, _: MultiValue| Ok(Worker::of_thread().count))?)?;
    table.set("pid", make.lua.create_function(|_, _: MultiValue| Ok(std::process::id()))?)?;
    let pids = |_: &Lua, _: MultiValue| Ok(vec![std::process::id(); Worker::of_thread().count]);
    table.set("pids", make.lua.create_function(pids)?)?;
    let exiting = |lua: &Lua, _: MultiValue| Ok(Beside::of(lua)?.node().is_ending());
    table.set("exiting", make.lua.create_function(exiting)?)?;
    Ok(table)
}

/// Makes `ngx.config`.
pub(super) fn config(make: &Namespace<'_>, prefix: &Arc<str>) -> mlua::Result<Table> {
    let table = make.table()?;
    table.set("debug", false)?;
    table.set("is_console", false)?;
    table.set("subsystem", "http")?;
    table.set("nginx_version", NGINX_VERSION)?;
    table.set("ngx_lua_version", NGX_LUA_VERSION)?;
    table.set("nginx_configure", make.lua.create_function(|_, _: MultiValue| Ok(""))?)?;
    let prefix = prefix.clone();
    table.set("prefix", make.lua.create_function(move |_, _: MultiValue| Ok(prefix.to_string()))?)?;
    Ok(table)
}
