//! `kong.client`: who sent the request.

use crate::contexts::Contexts;
use crate::modules;
use crate::namespace::{Namespace, read_only, refused};
use crate::phase::Phases;
use mlua::{Lua, Table, Value};
use weir_plugin::schema::Choice;
use weir_plugin::{Consumer, Exchange};

const ANY: Phases = Phases::CLIENT;
const ROUTED: Phases = Phases::ROUTED;

/// Makes the namespace.
pub(super) fn table(make: &Namespace<'_>, vm: u64) -> mlua::Result<Table> {
    let table = make.table()?;
    table.set("get_ip", make.exchange(ANY, |_, exchange, ()| Ok(exchange.peer.ip().to_string()))?)?;
    table
        .set("get_forwarded_ip", make.exchange(ANY, |_, exchange, ()| Ok(exchange.client_ip.to_string()))?)?;
    table.set("get_port", make.exchange(ANY, |_, exchange, ()| Ok(exchange.peer.port()))?)?;
    table.set("get_forwarded_port", make.exchange(ANY, |_, exchange, ()| Ok(exchange.client_port()))?)?;
    let get_consumer = |lua: &Lua, exchange: &mut Exchange, ()| consumer(lua, exchange);
    table.set("get_consumer", make.exchange(ROUTED, get_consumer)?)?;
    let get_credential = move |lua: &Lua, exchange: &mut Exchange, ()| credential(lua, exchange, vm);
    table.set("get_credential", make.exchange(ROUTED, get_credential)?)?;
    table.set("load_consumer", make.exchange(ROUTED, load_consumer)?)?;
    table.set("get_protocol", make.exchange(ROUTED, protocol)?)?;
    let authenticate =
        move |lua: &Lua, exchange: &mut Exchange, given| authenticate(lua, exchange, vm, given);
    table.set("tls", read_only(make.lua, super::client_tls::table(make)?)?)?;
    table.set("authenticate", make.exchange(Phases::ACCESS, authenticate)?)?;
    Ok(table)
}

/// An entity as a table of its own.
pub(super) fn entity(lua: &Lua, text: &str) -> mlua::Result<Value> {
    Ok(modules::from_json(lua, text.as_bytes())?)
}

/// Who the request was authenticated as.
pub(super) fn consumer(lua: &Lua, exchange: &Exchange) -> mlua::Result<Option<Value>> {
    exchange.consumer().map(|it| entity(lua, it.json())).transpose()
}

/// What the request was authenticated with.
pub(super) fn credential(lua: &Lua, exchange: &mut Exchange, vm: u64) -> mlua::Result<Option<Table>> {
    if let Some(given) = Contexts::of(exchange, lua, vm)?.credential()? {
        return Ok(Some(given));
    }
    let Some(id) = exchange.credential_text() else { return Ok(None) };
    let consumer = exchange.consumer().map(|consumer| consumer.id_text.to_string());
    let table = lua.create_table_from([("id", id.into_owned())])?;
    table.set("consumer_id", consumer)?;
    Ok(Some(table))
}

fn load_consumer(
    lua: &Lua,
    exchange: &mut Exchange,
    (id, by_username): (Value, Value),
) -> mlua::Result<(Option<Value>, Option<&'static str>)> {
    let Value::String(id) = id else { return refused("consumer_id must be a string") };
    let id = id.to_string_lossy();
    let by_username = !matches!(by_username, Value::Nil | Value::Boolean(false));
    let by_id = id.parse().ok();
    if by_id.is_none() && !by_username {
        return refused("cannot load a consumer with an id that is not a uuid");
    }
    let named = || exchange.find_consumer_by_username(&id).filter(|_| by_username);
    let found = by_id.and_then(|id| exchange.find_consumer(id)).or_else(named);
    let consumer: Option<&Consumer> = found.and_then(|index| exchange.consumer_by_index(index));
    Ok((consumer.map(|consumer| entity(lua, consumer.json())).transpose()?, None))
}

fn protocol(
    _: &Lua,
    exchange: &mut Exchange,
    allow_terminated: Value,
) -> mlua::Result<(Option<&'static str>, Option<&'static str>)> {
    let allow_terminated = !matches!(allow_terminated, Value::Nil | Value::Boolean(false));
    Ok(match exchange.protocol(allow_terminated) {
        Ok(protocol) => (Some(protocol.as_str()), None),
        Err(why) => (None, Some(why)),
    })
}

fn authenticate(
    lua: &Lua,
    exchange: &mut Exchange,
    vm: u64,
    (consumer, credential): (Value, Value),
) -> mlua::Result<()> {
    let optional = |what: &str, value: Value| match value {
        Value::Nil => Ok(None),
        Value::Table(table) => Ok(Some(table)),
        _ => refused(format!("{what} must be a table or nil")),
    };
    let (consumer, credential) = (optional("consumer", consumer)?, optional("credential", credential)?);
    if consumer.is_none() && credential.is_none() {
        return refused("either credential or consumer must be provided");
    }
    let text =
        |table: &Option<Table>| table.as_ref().and_then(|it| it.get::<Option<String>>("id").ok().flatten());
    let index = text(&consumer).and_then(|id| exchange.find_consumer(id.parse().ok()?));
    exchange.set_authenticated(index, text(&credential).as_deref());
    Contexts::of(exchange, lua, vm)?.set_credential(credential)
}
