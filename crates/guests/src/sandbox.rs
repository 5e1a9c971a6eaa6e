//! The globals of code that stands in a configuration.

use crate::cluster_events::OF_SANDBOX;
use crate::dicts;
use crate::machine::compile;
use crate::modules;
use crate::pdk;
use crate::settings::{LuaSettings, UntrustedLua};
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, Table};
use std::cell::OnceCell;
use std::sync::Arc;

/// What such code is refused with if the node does not run it: Kong's text.
pub(crate) const SWITCHED_OFF: &str =
    "loading of untrusted Lua code disabled because 'untrusted_lua' config option is set to 'off'";

/// What of `kong` such code does not see: entities have secrets, and what plugins say to each other is theirs.
pub(crate) const HIDDEN_OF_KONG: [&str; 3] = ["db", "worker_events", "cluster_events"];

/// What of `kong.vault` fails there: vaults hold secrets, such as the variables of the process.
pub(crate) const HIDDEN_OF_VAULT: [&str; 4] = ["get", "try", "update", "flush"];

/// Makes the globals of chunks.
pub(crate) struct Sandbox {
    /// What makes those of a sandbox, once a chunk needs them.
    make: OnceCell<Function>,
    settings: Arc<LuaSettings>,
}

impl Sandbox {
    pub(crate) fn new(settings: &Arc<LuaSettings>) -> Self {
        Self { make: OnceCell::new(), settings: settings.clone() }
    }

    /// Compiles a chunk, with globals of its own.
    pub(crate) fn compile(&self, lua: &Lua, code: &str, name: &str) -> mlua::Result<Function> {
        compile(lua, code, name, self.globals(lua)?)
    }

    /// The globals of one chunk.
    pub(crate) fn globals(&self, lua: &Lua) -> mlua::Result<Table> {
        match self.settings.untrusted {
            UntrustedLua::Sandbox => self.maker(lua)?.call(()),
            UntrustedLua::On => over_globals(lua),
            UntrustedLua::Off => Err(mlua::Error::runtime(SWITCHED_OFF)),
        }
    }

    fn maker(&self, lua: &Lua) -> mlua::Result<&Function> {
        if self.make.get().is_none() {
            // Another that was made meanwhile is as good.
            let _ = self.make.set(sandboxed(lua, &self.settings)?);
        }
        self.make.get().ok_or_else(|| mlua::Error::runtime(SWITCHED_OFF))
    }

    /// Whether chunks see all globals.
    pub(crate) fn is_open(&self) -> bool {
        self.settings.untrusted == UntrustedLua::On
    }
}

fn sandboxed(lua: &Lua, settings: &LuaSettings) -> mlua::Result<Function> {
    let globals = lua.globals();
    let (kong, ngx): (Table, Table) = (globals.get("kong")?, globals.get("ngx")?);
    let requires = lua.create_sequence_from(settings.sandbox_requires.iter().map(String::as_str))?;
    let environment = lua.create_sequence_from(settings.sandbox_environment.iter().map(String::as_str))?;
    let chunk = lua.load(include_str!("sandbox.lua")).set_name("=[sandbox]").set_mode(ChunkMode::Text);
    let load =
        lua.create_function(|lua, (name, env): (String, Table)| modules::load_over(lua, &name, &env))?;
    let hidden = lua.create_table()?;
    hidden.set("dicts", lua.create_sequence_from(dicts::HIDDEN)?)?;
    hidden.set("kong", lua.create_sequence_from(HIDDEN_OF_KONG)?)?;
    hidden.set("vault", lua.create_sequence_from(HIDDEN_OF_VAULT)?)?;
    let cache = lua.create_function(|lua, ()| pdk::cache::table(lua, OF_SANDBOX))?;
    chunk.call((globals, kong, ngx, requires, environment, load, hidden, cache))
}

/// Globals of its own over those of all.
fn over_globals(lua: &Lua) -> mlua::Result<Table> {
    let (env, meta) = (lua.create_table()?, lua.create_table()?);
    meta.set("__index", lua.globals())?;
    env.set_metatable(Some(meta))?;
    Ok(env)
}

thread_local! {
    static READER: Lua = Lua::new();
}

/// What is wrong with the syntax of a chunk.
pub(crate) fn syntax_error(code: &str) -> Option<String> {
    READER.with(|lua| {
        let read = lua.load(code).set_name(code).set_mode(ChunkMode::Text).into_function();
        read.err().map(|error| crate::source::message(&error))
    })
}
