//! Kong's PDK: what Lua sees as `kong`. Each namespace is a file.

mod headers;
mod namespace;
mod request;
mod response;
mod service_request;

pub(crate) use headers::wire_name;

use crate::host::Host;
use crate::settings::LuaSettings;
use mlua::{Lua, Table};
use namespace::{Namespace, read_only};
use std::rc::Rc;

/// The version of Kong that the PDK is that of.
const VERSION: &str = "3.9.3";

/// Makes `kong`.
pub(crate) fn table(
    lua: &Lua,
    host: &Rc<Host>,
    prelude: &Table,
    (_settings, _vm): (&LuaSettings, u64),
) -> mlua::Result<Table> {
    let make = Namespace { lua, host, prelude };
    let kong = lua.create_table()?;
    kong.set("version", VERSION)?;
    kong.set("version_num", 3_009_003)?;
    kong.set("request", read_only(lua, request::table(&make)?)?)?;
    kong.set("response", read_only(lua, response::table(&make)?)?)?;
    let service = lua.create_table()?;
    service.set("request", read_only(lua, service_request::table(&make)?)?)?;
    kong.set("service", read_only(lua, service)?)?;
    Ok(kong)
}
