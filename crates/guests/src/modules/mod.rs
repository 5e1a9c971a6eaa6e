//! Modules that Lua code requires by name.

mod cjson;
mod number;

use mlua::{Lua, Value};

/// Where a module comes from.
enum Source {
    /// A function that makes it.
    Rust(fn(&Lua) -> mlua::Result<Value>),
}

/// The modules by name.
const MODULES: &[(&str, Source)] =
    &[("cjson", Source::Rust(cjson::raising)), ("cjson.safe", Source::Rust(cjson::safe))];

/// The names of all modules.
pub fn names() -> impl Iterator<Item = &'static str> {
    MODULES.iter().map(|(name, _)| *name)
}

/// Makes the module of this name; none if there is none. The caller keeps it, as `require` does.
pub fn load(lua: &Lua, name: &str) -> mlua::Result<Option<Value>> {
    let Some((_, source)) = MODULES.iter().find(|(known, _)| *known == name) else {
        return Ok(None);
    };
    match source {
        Source::Rust(make) => make(lua).map(Some),
    }
}
