//! Kong's PDK: what Lua sees as `kong`. Each namespace is a file.

mod client;
mod ctx;
pub(crate) mod headers;
pub(crate) mod log;
pub(crate) mod namespace;
mod node;
pub(crate) mod request;
pub(crate) mod response;
mod service;
pub(crate) mod service_request;
mod service_response;

pub(crate) use headers::wire_name;

use crate::host::Host;
use crate::vm::Node;
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
    (node, vm): (&Node, u64),
) -> mlua::Result<Table> {
    let make = Namespace { lua, host, prelude };
    let kong = lua.create_table()?;
    kong.set("version", VERSION)?;
    kong.set("version_num", 3_009_003)?;
    kong.set("request", read_only(lua, request::table(&make)?)?)?;
    kong.set("response", read_only(lua, response::table(&make)?)?)?;
    let service = lua.create_table()?;
    service.set("request", read_only(lua, service_request::table(&make)?)?)?;
    service.set("response", read_only(lua, service_response::table(&make)?)?)?;
    service::fill(&make, &service)?;
    kong.set("service", read_only(lua, service)?)?;
    kong.set("client", read_only(lua, client::table(&make, vm)?)?)?;
    kong.set("ctx", ctx::table(&make, vm)?)?;
    kong.set("log", log::table(&make)?)?;
    node::fill(&make, &kong, node)?;
    Ok(kong)
}
