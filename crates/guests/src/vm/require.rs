//! `require`: modules of the host by their names.

use crate::depth::Depth;
use mlua::{Function, Lua, LuaString, Table, Value};

/// Replaces `require`. Modules are looked for among those that are loaded, those of the host, and `package.preload`.
pub(super) fn install(lua: &Lua) -> mlua::Result<()> {
    let package: Table = lua.globals().get("package")?;
    let (loaded, preload): (Table, Table) = (package.get("loaded")?, package.get("preload")?);
    let depth = Depth::of(lua);
    let require = lua.create_function(move |lua, name: LuaString| {
        let _level = depth.enter()?;
        let known: Value = loaded.get(&name)?;
        if !known.is_nil() {
            return Ok(known);
        }
        let text = name.to_string_lossy();
        let module = match super::module(lua, &text)? {
            Some(module) => module,
            None => preloaded(&preload, &text)?,
        };
        loaded.set(name, &module)?;
        Ok(module)
    })?;
    lua.globals().set("require", require)
}

fn preloaded(preload: &Table, name: &str) -> mlua::Result<Value> {
    let Some(open) = preload.get::<Option<Function>>(name)? else {
        return Err(mlua::Error::runtime(format!(
            "module '{name}' not found: Weir has no module of this name"
        )));
    };
    match open.call::<Value>(name)? {
        Value::Nil => Ok(Value::Boolean(true)),
        module => Ok(module),
    }
}
