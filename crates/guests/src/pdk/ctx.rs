//! `kong.ctx`: tables that live as long as a request.

use crate::contexts::Contexts;
use crate::host::Host;
use crate::namespace::{Namespace, refused};
use crate::phase::Phases;
use mlua::{Lua, Table, Value};

/// Makes the namespace.
pub(super) fn table(make: &Namespace<'_>, vm: u64) -> mlua::Result<Table> {
    let index = move |lua: &Lua, host: &Host, (_, key): (Value, Value)| {
        let origin = host.origin();
        let mut exchange = host.exchange(Phases::ANY)?;
        let contexts = Contexts::of(&mut exchange, lua, vm)?;
        Ok(match key.as_string().map(|key| key.to_string_lossy()).as_deref() {
            Some("shared") => Some(contexts.shared()?),
            Some("plugin") => Some(contexts.plugin(&origin.plugin)?),
            Some("core") => Some(contexts.core()?),
            _ => None,
        })
    };
    let assign = move |lua: &Lua, host: &Host, (_, key, value): (Value, Value, Value)| {
        let origin = host.origin();
        let mut exchange = host.exchange(Phases::ANY)?;
        let contexts = Contexts::of(&mut exchange, lua, vm)?;
        match (key.as_string().map(|key| key.to_string_lossy()).as_deref(), value) {
            (Some("shared"), Value::Table(table)) => contexts.set_shared(table),
            (Some("plugin"), Value::Table(table)) => contexts.set_plugin(&origin.plugin, table),
            _ => refused("kong.ctx takes tables alone, as kong.ctx.shared and kong.ctx.plugin"),
        }
    };
    let (ctx, meta) = (make.table()?, make.table()?);
    meta.set("__index", make.host(Phases::REQUEST, index)?)?;
    meta.set("__newindex", make.host(Phases::REQUEST, assign)?)?;
    meta.set("__metatable", false)?;
    ctx.set_metatable(Some(meta))?;
    Ok(ctx)
}
