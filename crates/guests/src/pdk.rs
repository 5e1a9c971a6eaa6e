//! Kong's PDK: what Lua sees as `kong`. Each namespace is a file.

mod body;
pub(crate) mod cache;
mod client;
pub(crate) mod client_tls;
mod configuration;
mod core;
mod ctx;
mod db;
pub(crate) mod events;
pub(crate) mod headers;
pub(crate) mod log;
pub(crate) mod names;
pub(crate) mod namespace;
mod node;
pub(crate) mod request;
pub(crate) mod response;
mod service;
pub(crate) mod service_request;
mod service_response;
mod vault;

pub(crate) use headers::wire_name;

use crate::host::Host;
use crate::vm::Node;
use mlua::chunk::ChunkMode;
use mlua::{Lua, Table};
use namespace::{Namespace, read_only};
use std::rc::Rc;
use weir_plugin::KONG_VERSION;

/// Makes `kong`.
pub(crate) fn table(
    lua: &Lua,
    host: &Rc<Host>,
    prelude: &Table,
    (node, vm): (&Node, u64),
) -> mlua::Result<Table> {
    let make = Namespace { lua, host, prelude };
    let kong = lua.create_table()?;
    kong.set("version", KONG_VERSION)?;
    kong.set("version_num", version_number())?;
    kong.set("request", read_only(lua, request::table(&make)?)?)?;
    kong.set("response", read_only(lua, response::table(&make)?)?)?;
    let service = lua.create_table()?;
    service.set("request", read_only(lua, service_request::table(&make)?)?)?;
    service.set("response", read_only(lua, service_response::table(&make)?)?)?;
    service::fill(&make, &service)?;
    kong.set("service", read_only(lua, service)?)?;
    kong.set("client", read_only(lua, client::table(&make, vm)?)?)?;
    kong.set("ctx", ctx::table(&make, vm)?)?;
    core::install(&make, vm)?;
    kong.set("db", db::table(&make, &node.database)?)?;
    kong.set("log", log::table(&make, *node.record)?)?;
    kong.set("cache", cache::table(lua, cache::OF_PLUGINS)?)?;
    kong.set("configuration", configuration::table(&make, &node.configuration)?)?;
    kong.set("vault", read_only(lua, vault::table(&make, &node.vaults)?)?)?;
    let chunk = lua.load(include_str!("pdk/tracing.lua")).set_name("=[kong.tracing]");
    let (tracing, telemetry): (Table, Table) = chunk.set_mode(ChunkMode::Text).call(())?;
    kong.set("tracing", tracing)?;
    kong.set("telemetry", read_only(lua, telemetry)?)?;
    let (events, cluster) = events::tables(&make, &node.events)?;
    kong.set("worker_events", read_only(lua, events)?)?;
    kong.set("cluster_events", read_only(lua, cluster)?)?;
    node::fill(&make, &kong, node)?;
    Ok(kong)
}

/// The version as a number: 3.9.1 is 3009001.
fn version_number() -> u32 {
    let parts = KONG_VERSION.split('.').map(|part| part.parse().unwrap_or(0));
    parts.fold(0, |number, part: u32| number * 1000 + part)
}

/// What `kong.meta` says of the version.
pub(crate) fn meta(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("version", KONG_VERSION)?;
    table.raw_set("number", version_number())?;
    Ok(table)
}
