//! `kong.configuration`: the settings of the node, without secrets.

use crate::modules;
use crate::namespace::{Namespace, refused};
use crate::settings::NodeConfiguration;
use mlua::{Lua, MultiValue, Table, Value};
use serde_json::Value as Json;
use std::sync::Arc;

/// Makes the table. A setting becomes a value when it is read.
pub(super) fn table(make: &Namespace<'_>, configuration: &Arc<NodeConfiguration>) -> mlua::Result<Table> {
    let (table, meta) = (make.table()?, make.table()?);
    let of = configuration.clone();
    let get = move |lua: &Lua, (_, name): (Value, Value)| match &name {
        Value::String(name) => of.0.get(&*name.to_string_lossy()).map_or(Ok(Value::Nil), |it| value(lua, it)),
        _ => Ok(Value::Nil),
    };
    meta.raw_set("__index", make.lua.create_function(get)?)?;
    let refuse = |_: &Lua, _: MultiValue| refused::<()>("cannot write to configuration");
    meta.raw_set("__newindex", make.lua.create_function(refuse)?)?;
    meta.raw_set("__metatable", false)?;
    let of = configuration.clone();
    let all = move |lua: &Lua, ()| {
        let copy = lua.create_table()?;
        of.0.iter().try_for_each(|(name, it)| copy.raw_set(name.as_str(), value(lua, it)?))?;
        Ok(copy)
    };
    table.raw_set("remove_sensitive", make.lua.create_function(all)?)?;
    table.set_metatable(Some(meta))?;
    Ok(table)
}

/// A setting that is not set is nil.
fn value(lua: &Lua, setting: &Json) -> mlua::Result<Value> {
    match setting {
        Json::Null => Ok(Value::Nil),
        setting => Ok(modules::from_json(lua, setting.to_string().as_bytes())?),
    }
}
