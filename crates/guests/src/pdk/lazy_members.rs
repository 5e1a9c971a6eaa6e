//! Members of `kong` and `ngx` that are made when code first reads them, because most code reads few of them.

use crate::host::Host;
use crate::namespace::Namespace;
use mlua::{Lua, Table, Value};
use std::rc::Rc;

type Make = Box<dyn Fn(&Namespace<'_>) -> mlua::Result<Table>>;

/// How to make each member of a table.
pub(crate) struct LazyMembers {
    host: Rc<Host>,
    prelude: Table,
    makers: Vec<(&'static str, Make)>,
}

impl LazyMembers {
    pub(crate) fn new(make: &Namespace<'_>) -> Self {
        Self { host: make.host.clone(), prelude: make.prelude.clone(), makers: Vec::new() }
    }

    /// Adds a member.
    pub(crate) fn add(
        &mut self,
        name: &'static str,
        make: impl Fn(&Namespace<'_>) -> mlua::Result<Table> + 'static,
    ) {
        self.makers.push((name, Box::new(make)));
    }

    /// Makes the member that code reads, which the table has from then on.
    pub(crate) fn get(&self, lua: &Lua, table: &Table, name: &str) -> mlua::Result<Value> {
        let Some((name, make)) = self.makers.iter().find(|(known, _)| *known == name) else {
            return Ok(Value::Nil);
        };
        let member = make(&Namespace { lua, host: &self.host, prelude: &self.prelude })?;
        table.raw_set(*name, &member)?;
        Ok(Value::Table(member))
    }
}
