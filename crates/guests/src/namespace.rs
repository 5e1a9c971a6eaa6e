//! How functions of the PDK are declared.

use crate::depth::Depth;
use crate::host::Host;
use crate::phase::Phases;
use mlua::{FromLuaMulti, Function, IntoLuaMulti, Lua, Table, Value};
use std::rc::Rc;
use weir_plugin::Exchange;

/// What makes the functions of a namespace.
pub(crate) struct Namespace<'a> {
    pub(crate) lua: &'a Lua,
    pub(crate) host: &'a Rc<Host>,
    pub(crate) prelude: &'a Table,
}

impl Namespace<'_> {
    /// A table for functions.
    pub(crate) fn table(&self) -> mlua::Result<Table> {
        self.lua.create_table()
    }

    /// A function of the exchange, in these phases.
    pub(crate) fn exchange<A, R>(
        &self,
        phases: Phases,
        function: impl Fn(&Lua, &mut Exchange, A) -> mlua::Result<R> + 'static,
    ) -> mlua::Result<Function>
    where
        A: FromLuaMulti,
        R: IntoLuaMulti,
    {
        let (host, depth) = (self.host.clone(), Depth::of(self.lua));
        self.lua.create_function(move |lua, args: A| {
            let _level = depth.enter()?;
            let mut exchange = host.exchange(phases)?;
            function(lua, &mut exchange, args)
        })
    }

    /// A function of the host, in these phases.
    pub(crate) fn host<A, R>(
        &self,
        phases: Phases,
        function: impl Fn(&Lua, &Host, A) -> mlua::Result<R> + 'static,
    ) -> mlua::Result<Function>
    where
        A: FromLuaMulti,
        R: IntoLuaMulti,
    {
        let (host, depth) = (self.host.clone(), Depth::of(self.lua));
        self.lua.create_function(move |lua, args: A| {
            let _level = depth.enter()?;
            host.check(phases)?;
            function(lua, &host, args)
        })
    }

    /// A module that is made when it is first required.
    pub(crate) fn preload(
        &self,
        name: &'static str,
        module: impl Fn(&Namespace<'_>) -> mlua::Result<Value> + 'static,
    ) -> mlua::Result<()> {
        let (host, prelude) = (self.host.clone(), self.prelude.clone());
        let package: Table = self.lua.globals().get("package")?;
        let make = move |lua: &Lua, _: Value| module(&Namespace { lua, host: &host, prelude: &prelude });
        package.get::<Table>("preload")?.set(name, self.lua.create_function(make)?)
    }

    /// A function that waits for the operation that `begin` gives to the host; see [`Host::wait_for`].
    pub(crate) fn waiting(&self, begin: Function) -> mlua::Result<Function> {
        self.prelude.get::<Function>("waiting")?.call(begin)
    }

    /// A function that ends the call where it returns true.
    pub(crate) fn ending(&self, prepare: Function) -> mlua::Result<Function> {
        self.prelude.get::<Function>("ending")?.call(prepare)
    }
}

/// An error that the code sees.
pub(crate) fn refused<T>(message: impl Into<String>) -> mlua::Result<T> {
    Err(mlua::Error::RuntimeError(message.into()))
}

/// A table that shows the members of another, and takes none.
pub(crate) fn read_only(lua: &Lua, members: Table) -> mlua::Result<Table> {
    let (shown, meta) = (lua.create_table()?, lua.create_table()?);
    meta.set("__index", members)?;
    let refuse = |_: &Lua, (_, key): (Value, Value)| -> mlua::Result<()> {
        // No method of the key is called.
        let name = key.as_string().map(|key| key.to_string_lossy());
        refused(format!("cannot set {:?}: the PDK is read-only", name.as_deref().unwrap_or(key.type_name())))
    };
    meta.set("__newindex", lua.create_function(refuse)?)?;
    meta.set("__metatable", false)?;
    shown.set_metatable(Some(meta))?;
    Ok(shown)
}
