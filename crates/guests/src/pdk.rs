//! Kong's PDK: what Lua sees as `kong`. Each namespace is a file.

mod body;
pub(crate) mod cache;
mod client;
pub(crate) mod client_tls;
mod cluster_events;
mod configuration;
mod core;
mod ctx;
mod db;
pub(crate) mod events;
pub(crate) mod headers;
mod inspect;
pub(crate) mod lazy_members;
pub(crate) mod log;
pub(crate) mod names;
mod node;
pub(crate) mod request;
pub(crate) mod response;
mod service;
pub(crate) mod service_request;
mod service_response;
mod tracing;
mod vault;

use crate::cluster_events::OF_PLUGINS;
use crate::host::Host;
use crate::modules;
use crate::namespace::{Namespace, read_only};
use crate::node::Node;
use lazy_members::LazyMembers;
use mlua::{Lua, Table, Value};
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
    kong.set("version_num", modules::version_number())?;
    core::install(&make, vm)?;
    let mut members = LazyMembers::new(&make);
    of_requests(&mut members, vm);
    of_nodes(&mut members, node);
    node::add(&mut members, node);
    let get = move |lua: &Lua, (kong, name): (Table, Value)| match name.as_string() {
        Some(name) => members.get(lua, &kong, &name.to_string_lossy()),
        None => Ok(Value::Nil),
    };
    let meta = lua.create_table()?;
    meta.set("__index", lua.create_function(get)?)?;
    meta.set("__metatable", false)?;
    kong.set_metatable(Some(meta))?;
    Ok(kong)
}

/// Adds the namespaces of a request.
fn of_requests(members: &mut LazyMembers, vm: u64) {
    members.add("request", |make| read_only(make.lua, request::table(make)?));
    members.add("response", |make| read_only(make.lua, response::table(make)?));
    members.add("service", |make| {
        let service = make.table()?;
        service.set("request", read_only(make.lua, service_request::table(make)?)?)?;
        service.set("response", read_only(make.lua, service_response::table(make)?)?)?;
        service::fill(make, &service)?;
        read_only(make.lua, service)
    });
    members.add("client", move |make| read_only(make.lua, client::table(make, vm)?));
    members.add("ctx", move |make| ctx::table(make, vm));
    members.add("tracing", tracing::tracing);
    members.add("telemetry", tracing::telemetry);
}

/// Adds the namespaces of the node.
fn of_nodes(members: &mut LazyMembers, node: &Node) {
    let database = node.database.clone();
    members.add("db", move |make| db::table(make, &database));
    let record = *node.record;
    members.add("log", move |make| log::table(make, record));
    members.add("cache", |make| cache::table(make.lua, OF_PLUGINS));
    let configuration = node.configuration.clone();
    members.add("configuration", move |make| configuration::table(make, &configuration));
    let (vaults, background) = (node.vaults.clone(), node.background.clone());
    members.add("vault", move |make| read_only(make.lua, vault::table(make, &vaults, &background)?));
    let events = node.events.clone();
    members.add("worker_events", move |make| read_only(make.lua, events::of_workers(make, &events)?));
    let events = node.cluster_events.clone();
    members.add("cluster_events", move |make| read_only(make.lua, cluster_events::table(make, &events)?));
}
