//! Tables that live as long as a request: `kong.ctx` and `ngx.ctx`.

use mlua::{Lua, Table};
use weir_plugin::Exchange;

/// The tables of one request, in the VM that made them.
pub(crate) struct Contexts {
    vm: u64,
    ngx: Table,
    shared: Table,
    plugins: Vec<(Box<str>, Table)>,
    /// What `kong.client.authenticate` was given.
    pub(crate) credential: Option<Table>,
}

impl Contexts {
    /// Those of an exchange, made when they are first asked for. Tables of another VM are forgotten.
    pub(crate) fn of<'e>(exchange: &'e mut Exchange, lua: &Lua, vm: u64) -> mlua::Result<&'e mut Self> {
        if exchange.extensions.get::<Self>().is_none_or(|known| known.vm != vm) {
            let (ngx, shared) = (lua.create_table()?, lua.create_table()?);
            exchange.extensions.insert(Self { vm, ngx, shared, plugins: Vec::new(), credential: None });
        }
        exchange.extensions.get_mut().ok_or_else(|| mlua::Error::runtime("the request has no context"))
    }

    /// `ngx.ctx`
    pub(crate) fn ngx(&self) -> Table {
        self.ngx.clone()
    }

    /// Replaces `ngx.ctx`.
    pub(crate) fn set_ngx(&mut self, table: Table) {
        self.ngx = table;
    }

    /// `kong.ctx.shared`
    pub(crate) fn shared(&self) -> Table {
        self.shared.clone()
    }

    /// Replaces `kong.ctx.shared`.
    pub(crate) fn set_shared(&mut self, table: Table) {
        self.shared = table;
    }

    /// Replaces `kong.ctx.plugin` of a plugin.
    pub(crate) fn set_plugin(&mut self, name: &str, table: Table) {
        self.plugins.retain(|(of, _)| **of != *name);
        self.plugins.push((name.into(), table));
    }

    /// `kong.ctx.plugin` of a plugin.
    pub(crate) fn plugin(&mut self, lua: &Lua, name: &str) -> mlua::Result<Table> {
        if let Some((_, table)) = self.plugins.iter().find(|(of, _)| **of == *name) {
            return Ok(table.clone());
        }
        let table = lua.create_table()?;
        self.plugins.push((name.into(), table.clone()));
        Ok(table)
    }
}
