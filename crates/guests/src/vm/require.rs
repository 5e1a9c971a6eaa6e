//! `require`: modules of the host by their names, then those on disk.

use crate::depth::Depth;
use crate::files::Generation;
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaString, Table, Value};
use std::sync::Arc;

/// Replaces `require`. Modules are looked for among those that are loaded, those of the host, `package.preload`, and on disk.
pub(super) fn install(lua: &Lua, files: &Arc<Generation>) -> mlua::Result<()> {
    let package: Table = lua.globals().get("package")?;
    let (loaded, preload): (Table, Table) = (package.get("loaded")?, package.get("preload")?);
    let depth = Depth::of(lua);
    let files = files.clone();
    let loading = lua.create_table()?;
    let require = lua.create_function(move |lua, name: LuaString| {
        let _level = depth.enter()?;
        let known: Value = loaded.get(&name)?;
        if known == Value::Table(loading.clone()) {
            let name = name.to_string_lossy();
            return Err(mlua::Error::runtime(format!("loop or previous error loading module '{name}'")));
        }
        if !known.is_nil() {
            return Ok(known);
        }
        let text = name.to_string_lossy();
        let own = if comes_whole(&text, &files) { None } else { super::module(lua, &text)? };
        let module = match own {
            Some(module) => module,
            None => match preloaded(&preload, &text)? {
                Some(module) => module,
                None => {
                    loaded.set(&name, &loading)?;
                    let read = on_disk(lua, &files, &text);
                    if read.is_err() {
                        loaded.set(&name, Value::Nil)?;
                    }
                    let set: Value = loaded.get(&name)?;
                    match read? {
                        // What the file itself has set counts.
                        Value::Nil if set != Value::Table(loading.clone()) && !set.is_nil() => set,
                        Value::Nil => Value::Boolean(true),
                        module => module,
                    }
                }
            },
        };
        loaded.set(name, &module)?;
        Ok(module)
    })?;
    lua.globals().set("require", require)
}

/// Whether a library of files is preferred to the part of it that the host has, because its parts need each other.
fn comes_whole(name: &str, files: &Generation) -> bool {
    // The original of pl.pretty changes the metatable of strings for a moment, which nothing here can do.
    let is_penlight = (name == "pl" || name.starts_with("pl.")) && name != "pl.pretty";
    is_penlight && matches!(files.sources.find(name), Ok(Some(_)))
}

fn preloaded(preload: &Table, name: &str) -> mlua::Result<Option<Value>> {
    let Some(open) = preload.get::<Option<Function>>(name)? else { return Ok(None) };
    match open.call::<Value>(name)? {
        Value::Nil => Ok(Some(Value::Boolean(true))),
        module => Ok(Some(module)),
    }
}

/// What the file of a module returns.
fn on_disk(lua: &Lua, files: &Generation, name: &str) -> mlua::Result<Value> {
    let file = files.sources.find(name).map_err(mlua::Error::runtime)?;
    let Some(file) = file else { return Err(mlua::Error::runtime(files.sources.not_found(name))) };
    let chunk = lua.load(&file.text).set_name(format!("@{}", file.path)).set_mode(ChunkMode::Text);
    chunk.call(name)
}
