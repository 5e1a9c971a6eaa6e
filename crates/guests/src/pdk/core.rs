//! What Kong's core leaves in `ngx.ctx`, where plugins read it.

use super::{client, node};
use crate::contexts;
use crate::host::Host;
use crate::namespace::Namespace;
use crate::phase::Phases;
use mlua::{Lua, LuaString, Value};
use weir_plugin::Exchange;

/// Has each `ngx.ctx` of the VM look up what code did not set there.
pub(super) fn install(make: &Namespace<'_>, vm: u64) -> mlua::Result<()> {
    let index = move |lua: &Lua, host: &Host, (_, key): (Value, Value)| match key {
        Value::String(name) => member(lua, &mut *host.exchange(Phases::ANY)?, &name, vm),
        _ => Ok(Value::Nil),
    };
    let meta = make.table()?;
    meta.set("__index", make.host(Phases::ANY, index)?)?;
    meta.set("__metatable", false)?;
    contexts::inherit(make.lua, meta)
}

fn member(lua: &Lua, exchange: &mut Exchange, name: &LuaString, vm: u64) -> mlua::Result<Value> {
    let found = match &*name.as_bytes() {
        b"authenticated_consumer" => client::consumer(lua, exchange)?,
        b"authenticated_credential" => client::credential(lua, exchange, vm)?.map(Value::Table),
        b"route" => node::route(lua, exchange)?,
        b"service" => node::service(lua, exchange)?,
        b"KONG_PROXY_LATENCY" => Some(milliseconds(exchange.latencies().kong)),
        b"KONG_WAITING_TIME" => exchange.latencies().proxy.map(milliseconds),
        _ => None,
    };
    Ok(found.unwrap_or(Value::Nil))
}

fn milliseconds(time: std::time::Duration) -> Value {
    Value::Number(time.as_millis() as f64)
}
