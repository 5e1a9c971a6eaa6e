//! What Lua sees as `ngx`: the part of OpenResty's API that plugins use.

use crate::host::Host;
use mlua::{Lua, Table, Value};
use std::rc::Rc;

/// Makes `ngx`.
pub(crate) fn table(lua: &Lua, _host: &Rc<Host>, _prelude: &Table, _vm: u64) -> mlua::Result<Table> {
    let ngx = lua.create_table()?;
    ngx.set("null", Value::NULL)?;
    Ok(ngx)
}
