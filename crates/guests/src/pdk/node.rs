//! The small namespaces: `kong.router`, `kong.node`, `kong.ip`, `kong.table`, `kong.plugin`, `kong.nginx`.

use super::client::entity;
use super::namespace::{Namespace, read_only, refused};
use crate::host::Host;
use crate::phase::Phases;
use crate::vm::Node;
use mlua::{Lua, MultiValue, Table, Value};
use weir_plugin::Exchange;

/// Adds them to `kong`.
pub(super) fn fill(make: &Namespace<'_>, kong: &Table, node: &Node) -> mlua::Result<()> {
    let add = |name: &str, members: Table| kong.set(name, read_only(make.lua, members)?);
    add("router", router(make)?)?;
    add("node", self::node(make, node)?)?;
    add("ip", ip(make)?)?;
    add("table", tables(make)?)?;
    add("nginx", nginx(make)?)?;
    let plugin = make.table()?;
    plugin
        .set("get_id", make.host(Phases::ROUTED, |_, host: &Host, ()| Ok(host.origin().id.to_string()))?)?;
    add("plugin", plugin)
}

fn router(make: &Namespace<'_>) -> mlua::Result<Table> {
    let table = make.table()?;
    let route = |lua: &Lua, exchange: &mut Exchange, ()| {
        exchange.route().map(|it| entity(lua, it.json())).transpose()
    };
    table.set("get_route", make.exchange(Phases::ROUTED, route)?)?;
    let service = |lua: &Lua, exchange: &mut Exchange, ()| {
        let service = exchange.route().and_then(|route| route.service.as_ref());
        service.map(|it| entity(lua, it.json())).transpose()
    };
    table.set("get_service", make.exchange(Phases::ROUTED, service)?)?;
    Ok(table)
}

fn node(make: &Namespace<'_>, node: &Node) -> mlua::Result<Table> {
    let table = make.table()?;
    let (id, hostname) = (node.id.clone(), node.hostname.clone());
    table.set("get_id", make.lua.create_function(move |_, ()| Ok(id.to_string()))?)?;
    table.set("get_hostname", make.lua.create_function(move |_, ()| Ok(hostname.to_string()))?)?;
    Ok(table)
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
    table.set("clear", make.lua.create_function(|_, table: Table| table.clear())?)?;
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

fn nginx(make: &Namespace<'_>) -> mlua::Result<Table> {
    let table = make.table()?;
    table.set("get_subsystem", make.lua.create_function(|_, ()| Ok("http"))?)?;
    Ok(table)
}
