//! The small namespaces: `kong.router`, `kong.node`, `kong.ip`, `kong.table`, `kong.plugin`, `kong.nginx`.

use super::client::entity;
use super::lazy_members::LazyMembers;
use crate::args;
use crate::host::Host;
use crate::namespace::{Namespace, read_only, refused};
use crate::node::Node;
use crate::phase::Phases;
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, MultiValue, Table, Value};
use std::sync::Arc;
use weir_plugin::{Exchange, NodeStatistics, ServedTotals};

/// Adds them to `kong`.
pub(super) fn add(members: &mut LazyMembers, of: &Node) {
    let (of, statistics) = (of.clone(), of.statistics.clone());
    members.add("node", move |make| read_only(make.lua, node(make, &of)?));
    members.add("nginx", move |make| read_only(make.lua, nginx(make, &statistics)?));
    for (name, table) in SMALL {
        members.add(name, move |make| read_only(make.lua, table(make)?));
    }
}

type Make = fn(&Namespace<'_>) -> mlua::Result<Table>;

/// Those that need nothing of the node.
const SMALL: [(&str, Make); 5] =
    [("router", router), ("ip", ip), ("table", tables), ("cluster", cluster), ("plugin", plugin)];

fn cluster(make: &Namespace<'_>) -> mlua::Result<Table> {
    let table = make.table()?;
    let no_id = |_: &Lua, ()| Ok((Value::Nil, "this node has no cluster id"));
    table.set("get_id", make.lua.create_function(no_id)?)?;
    Ok(table)
}

fn plugin(make: &Namespace<'_>) -> mlua::Result<Table> {
    let table = make.table()?;
    let get_id = |_: &Lua, host: &Host, ()| Ok(host.origin().id.to_string());
    table.set("get_id", make.host(Phases::ANY, get_id)?)?;
    Ok(table)
}

fn router(make: &Namespace<'_>) -> mlua::Result<Table> {
    let table = make.table()?;
    let get_route = |lua: &Lua, exchange: &mut Exchange, ()| route(lua, exchange);
    table.set("get_route", make.exchange(Phases::ROUTED, get_route)?)?;
    let get_service = |lua: &Lua, exchange: &mut Exchange, ()| service(lua, exchange);
    table.set("get_service", make.exchange(Phases::ROUTED, get_service)?)?;
    Ok(table)
}

/// The route that the request matched.
pub(super) fn route(lua: &Lua, exchange: &Exchange) -> mlua::Result<Option<Value>> {
    exchange.route().map(|it| entity(lua, it.json())).transpose()
}

/// The service of that route.
pub(super) fn service(lua: &Lua, exchange: &Exchange) -> mlua::Result<Option<Value>> {
    let service = exchange.route().and_then(|route| route.service.as_ref());
    service.map(|it| entity(lua, it.json())).transpose()
}

fn node(make: &Namespace<'_>, node: &Node) -> mlua::Result<Table> {
    let table = make.table()?;
    let (id, hostname) = (node.id.clone(), node.hostname.clone());
    table.set("get_id", make.lua.create_function(move |_, ()| Ok(id.to_string()))?)?;
    table.set("get_hostname", make.lua.create_function(move |_, ()| Ok(hostname.to_string()))?)?;
    table.set("get_memory_stats", memory_stats(make, node)?)?;
    Ok(table)
}

/// `kong.node.get_memory_stats`. Of the VMs, that of this worker.
fn memory_stats(make: &Namespace<'_>, node: &Node) -> mlua::Result<Function> {
    let dicts = node.dicts.clone();
    let dicts = make.lua.create_function(move |lua, ()| {
        let sizes = dicts.iter().map(|(name, dict)| (name.to_owned(), [dict.capacity(), dict.free_space()]));
        lua.create_table_from(sizes)
    })?;
    let used = make.lua.create_function(|lua, ()| Ok(lua.used_memory()))?;
    let chunk = make.lua.load(include_str!("node.lua")).set_name("=[kong.node]").set_mode(ChunkMode::Text);
    let require: Function = make.lua.globals().get("require")?;
    chunk.call::<Function>(())?.call((dicts, std::process::id(), used, require))
}

fn ip(make: &Namespace<'_>) -> mlua::Result<Table> {
    let table = make.table()?;
    let is_trusted = |_: &Lua, exchange: &mut Exchange, address: Value| {
        let Value::String(address) = address else { return refused("address must be a string") };
        Ok(address.to_string_lossy().parse().is_ok_and(|ip| exchange.is_trusted_ip(ip)))
    };
    table.set("is_trusted", make.exchange(Phases::REQUEST, is_trusted)?)?;
    Ok(table)
}

fn tables(make: &Namespace<'_>) -> mlua::Result<Table> {
    let table = make.table()?;
    let new = |lua: &Lua, (narr, nrec): (Option<usize>, Option<usize>)| {
        let bounded = |size: Option<usize>| size.unwrap_or_default().min(1 << 16);
        lua.create_table_with_capacity(bounded(narr), bounded(nrec))
    };
    table.set("new", make.lua.create_function(new)?)?;
    let clear = |_: &Lua, given: Value| args::table("clear", 1, &given)?.clear();
    table.set("clear", make.lua.create_function(clear)?)?;
    let merge = |lua: &Lua, tables: MultiValue| {
        let merged = lua.create_table()?;
        for table in tables.iter().filter_map(Value::as_table) {
            table.pairs::<Value, Value>().try_for_each(|pair| {
                let (key, value) = pair?;
                merged.raw_set(key, value)
            })?;
        }
        Ok(merged)
    };
    table.set("merge", make.lua.create_function(merge)?)?;
    Ok(table)
}

fn nginx(make: &Namespace<'_>, statistics: &Arc<NodeStatistics>) -> mlua::Result<Table> {
    let table = make.table()?;
    table.set("get_subsystem", make.lua.create_function(|_, ()| Ok("http"))?)?;
    let statistics = statistics.clone();
    table
        .set("get_statistics", make.lua.create_function(move |lua, ()| served(lua, statistics.totals()))?)?;
    Ok(table)
}

/// The totals under the names of Kong. What only nginx counts is 0.
fn served(lua: &Lua, totals: ServedTotals) -> mlua::Result<Table> {
    lua.create_table_from([
        ("connections_active", totals.active),
        ("connections_accepted", totals.accepted),
        ("connections_handled", totals.accepted),
        ("connections_reading", 0),
        ("connections_writing", 0),
        ("connections_waiting", 0),
        ("total_requests", totals.requests),
    ])
}
