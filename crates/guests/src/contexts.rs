//! Tables that live as long as a request: `kong.ctx` and `ngx.ctx`.

use mlua::{Lua, RegistryKey, Table};
use weir_plugin::Exchange;

/// The tables of one request, in the VM that made them: one table has them all. The VM keeps that, because handles of values
/// that live as long as requests would fill the stack that they are on.
pub(crate) struct Contexts {
    vm: u64,
    all: RegistryKey,
}

/// The table of a request that has the others.
pub(crate) struct Tables<'l> {
    lua: &'l Lua,
    all: Table,
}

impl Contexts {
    /// Those of an exchange, made when they are first asked for. Tables of another VM are forgotten.
    pub(crate) fn of<'l>(exchange: &mut Exchange, lua: &'l Lua, vm: u64) -> mlua::Result<Tables<'l>> {
        let known = exchange.extensions.get::<Self>().filter(|known| known.vm == vm);
        let all = match known {
            Some(known) => lua.registry_value(&known.all)?,
            None => {
                let all = lua.create_table()?;
                exchange.extensions.insert(Self { vm, all: lua.create_registry_value(&all)? });
                all
            }
        };
        Ok(Tables { lua, all })
    }
}

/// Where the metatable of `ngx.ctx` is kept.
const INHERITED: &str = "weir.ngx.ctx";

/// Has each `ngx.ctx` that is made from now on have this metatable.
pub(crate) fn inherit(lua: &Lua, meta: Table) -> mlua::Result<()> {
    lua.set_named_registry_value(INHERITED, meta)
}

/// Where the table of a plugin stands: no other table has such a name.
fn of_plugin(name: &str) -> String {
    format!("plugin {name}")
}

impl Tables<'_> {
    fn get(&self, name: &str) -> mlua::Result<Table> {
        if let Some(known) = self.all.raw_get(name)? {
            return Ok(known);
        }
        let made = self.lua.create_table()?;
        self.all.raw_set(name, &made)?;
        Ok(made)
    }

    /// `ngx.ctx`
    pub(crate) fn ngx(&self) -> mlua::Result<Table> {
        if let Some(known) = self.all.raw_get("ngx")? {
            return Ok(known);
        }
        let made = self.get("ngx")?;
        made.set_metatable(self.lua.named_registry_value(INHERITED)?)?;
        Ok(made)
    }

    /// Replaces `ngx.ctx`.
    pub(crate) fn set_ngx(&self, table: Table) -> mlua::Result<()> {
        self.all.raw_set("ngx", table)
    }

    /// `kong.ctx.core`
    pub(crate) fn core(&self) -> mlua::Result<Table> {
        self.get("core")
    }

    /// `kong.ctx.shared`
    pub(crate) fn shared(&self) -> mlua::Result<Table> {
        self.get("shared")
    }

    /// Replaces `kong.ctx.shared`.
    pub(crate) fn set_shared(&self, table: Table) -> mlua::Result<()> {
        self.all.raw_set("shared", table)
    }

    /// `kong.ctx.plugin` of a plugin.
    pub(crate) fn plugin(&self, name: &str) -> mlua::Result<Table> {
        self.get(&of_plugin(name))
    }

    /// Replaces `kong.ctx.plugin` of a plugin.
    pub(crate) fn set_plugin(&self, name: &str, table: Table) -> mlua::Result<()> {
        self.all.raw_set(of_plugin(name), table)
    }

    /// What `kong.client.authenticate` was given.
    pub(crate) fn credential(&self) -> mlua::Result<Option<Table>> {
        self.all.raw_get("credential")
    }

    /// Replaces it.
    pub(crate) fn set_credential(&self, table: Option<Table>) -> mlua::Result<()> {
        self.all.raw_set("credential", table)
    }
}
