//! Modules that Lua code requires by name.

mod cjson;
mod digest;
mod ngx;
mod number;

use mlua::{Lua, Value};

pub use ngx::{encodings, regex};

/// Where a module comes from.
enum Source {
    /// A function that makes it.
    Rust(fn(&Lua) -> mlua::Result<Value>),
    /// Lua code. It may require other modules, and use what the host puts into `ngx`.
    Lua(&'static str),
}

use Source::{Lua as Script, Rust};

/// The modules by name.
const MODULES: &[(&str, Source)] = &[
    ("cjson", Rust(cjson::raising)),
    ("cjson.safe", Rust(cjson::safe)),
    ("ngx.base64", Rust(ngx::base64_url)),
    ("ngx.re", Script(include_str!("lua/ngx_re.lua"))),
];

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
        Rust(make) => make(lua).map(Some),
        Script(source) => lua.load(*source).set_name(format!("=[{name}]")).call(name).map(Some),
    }
}
