//! `kong.tracing` and `kong.telemetry`, which record nothing, as where Kong's tracing is off.

use crate::namespace::{Namespace, read_only};
use mlua::chunk::ChunkMode;
use mlua::{MultiValue, Table};

/// Makes `kong.tracing`.
pub(super) fn tracing(make: &Namespace<'_>) -> mlua::Result<Table> {
    let chunk = make.lua.load(include_str!("tracing.lua")).set_name("=[kong.tracing]");
    chunk.set_mode(ChunkMode::Text).call(())
}

/// Makes `kong.telemetry`.
pub(super) fn telemetry(make: &Namespace<'_>) -> mlua::Result<Table> {
    let table = make.table()?;
    table.set("log", make.lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    read_only(make.lua, table)
}
