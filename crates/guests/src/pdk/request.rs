//! `kong.request`: the client's request.

use super::body::{self, ParsedBody};
use super::headers;
use crate::args::Listed;
use crate::modules;
use crate::namespace::{Namespace, refused};
use crate::phase::Phases;
use crate::steps::Steps;
use mlua::{IntoLuaMulti, Lua, LuaString, MultiValue, Table, Value};
use std::time::UNIX_EPOCH;
use weir_plugin::{Exchange, Version, form};

const ANY: Phases = Phases::REQUEST;

/// Kong's message about a body that is not in memory.
const TOO_LONG: &str =
    "request body did not fit into client body buffer, consider raising 'client_body_buffer_size'";

/// Makes the namespace.
pub(super) fn table(make: &Namespace<'_>) -> mlua::Result<Table> {
    let table = make.table()?;
    forwarded(make, &table)?;
    line(make, &table)?;
    query(make, &table)?;
    table.set("get_header", headers::getter(make, ANY, |exchange| Some(&exchange.request.headers))?)?;
    let get_headers = |lua: &Lua, exchange: &mut Exchange, max: Value| {
        headers::table(lua, &exchange.request.headers, headers::limit("max_headers", &max)?)
    };
    table.set("get_headers", make.exchange(ANY, get_headers)?)?;
    table.set("get_raw_body", make.exchange(Phases::REQUEST_BODY, raw_body)?)?;
    table.set("get_body", make.exchange(Phases::REQUEST_BODY, get_body)?)?;
    table.set("get_uri_captures", make.exchange(ANY, captures)?)?;
    table.set("get_start_time", make.exchange(ANY, |_, exchange, ()| Ok(start_time(exchange)))?)?;
    Ok(table)
}

fn forwarded(make: &Namespace<'_>, table: &Table) -> mlua::Result<()> {
    table
        .set("get_forwarded_scheme", make.exchange(ANY, |lua, it, ()| text(lua, &it.forwarded_scheme()))?)?;
    table.set("get_forwarded_host", make.exchange(ANY, |lua, it, ()| text(lua, &it.forwarded_host()))?)?;
    table.set("get_forwarded_port", make.exchange(ANY, |_, it, ()| Ok(it.forwarded_port()))?)?;
    table.set("get_forwarded_path", make.exchange(ANY, |lua, it, ()| text(lua, it.forwarded_path()))?)?;
    let prefix = |lua: &Lua, it: &mut Exchange, ()| it.forwarded_prefix().map(|it| text(lua, it)).transpose();
    table.set("get_forwarded_prefix", make.exchange(ANY, prefix)?)
}

fn line(make: &Namespace<'_>, table: &Table) -> mlua::Result<()> {
    table.set("get_scheme", make.exchange(ANY, |_, it, ()| Ok(it.scheme()))?)?;
    table.set("get_host", make.exchange(ANY, |lua, it, ()| text(lua, &it.host()))?)?;
    table.set("get_port", make.exchange(ANY, |_, it, ()| Ok(it.local().port()))?)?;
    table.set("get_http_version", make.exchange(ANY, |_, it, ()| Ok(version(it.request.version)))?)?;
    table.set("get_method", make.exchange(ANY, |lua, it, ()| text(lua, it.request.method_str()))?)?;
    table.set("get_path", make.exchange(ANY, |lua, it, ()| text(lua, it.path()))?)?;
    table.set("get_raw_path", make.exchange(ANY, |lua, it, ()| text(lua, it.raw_path()))?)?;
    table.set("get_path_with_query", make.exchange(ANY, |lua, it, ()| text(lua, it.path_with_query()))?)
}

fn query(make: &Namespace<'_>, table: &Table) -> mlua::Result<()> {
    table
        .set("get_raw_query", make.exchange(ANY, |lua, it, ()| text(lua, it.query().unwrap_or_default()))?)?;
    table.set("get_query_arg", make.exchange(ANY, query_arg)?)?;
    let get_query = |lua: &Lua, exchange: &mut Exchange, max: Value| {
        let max = headers::limit("max_args", &max)?;
        take_query(lua, exchange)?;
        args(lua, exchange.query_args(max.saturating_add(1)), max)
    };
    table.set("get_query", make.exchange(ANY, get_query)?)
}

fn text(lua: &Lua, text: &str) -> mlua::Result<LuaString> {
    lua.create_string(text)
}

/// The HTTP version as a number.
pub(crate) fn version(version: Version) -> f64 {
    match version {
        Version::Http10 => 1.0,
        Version::Http11 => 1.1,
        Version::Http2 => 2.0,
        Version::Http3 => 3.0,
    }
}

fn start_time(exchange: &Exchange) -> f64 {
    let since = exchange.started_at().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as f64
}

/// Takes the steps for reading the query.
fn take_query(lua: &Lua, exchange: &Exchange) -> mlua::Result<()> {
    Ok(Steps::of(lua).take_many(exchange.query().map_or(0, str::len))?)
}

fn query_arg(lua: &Lua, exchange: &mut Exchange, name: Value) -> mlua::Result<Value> {
    let Value::String(name) = name else { return refused("query argument name must be a string") };
    take_query(lua, exchange)?;
    match exchange.query_arg(&name.to_string_lossy()) {
        Some(pair) => argument(lua, pair.value.as_deref()),
        None => Ok(Value::Nil),
    }
}

/// The value of an argument; `true` where it has none.
fn argument(lua: &Lua, value: Option<&[u8]>) -> mlua::Result<Value> {
    match value {
        Some(value) => Ok(Value::String(lua.create_string(value)?)),
        None => Ok(Value::Boolean(true)),
    }
}

/// So many arguments as a table, and "truncated" if there are more. Those that repeat are arrays.
pub(crate) fn args<'a>(
    lua: &Lua,
    mut pairs: impl Iterator<Item = form::Pair<'a>>,
    max: usize,
) -> mlua::Result<Listed> {
    let table = lua.create_table()?;
    for pair in pairs.by_ref().take(max) {
        headers::add(lua, &table, &pair.name, argument(lua, pair.value.as_deref())?)?;
    }
    Ok(Listed { table, is_truncated: pairs.next().is_some() })
}

/// Code has read the request's body, so that it is no more discarded.
pub(crate) struct BodyIsRead;

impl BodyIsRead {
    pub(crate) fn note(exchange: &mut Exchange) {
        exchange.extensions.insert(Self);
    }

    pub(crate) fn was_noted(exchange: &Exchange) -> bool {
        exchange.extensions.get::<Self>().is_some()
    }
}

/// The request's body, or nil and why there is none.
fn raw_body(lua: &Lua, exchange: &mut Exchange, _: MultiValue) -> mlua::Result<MultiValue> {
    BodyIsRead::note(exchange);
    let body = match exchange.body() {
        Some(body) => body,
        None if exchange.has_body() => return (Value::Nil, TOO_LONG).into_lua_multi(lua),
        None => &[],
    };
    Steps::of(lua).take_bytes(body.len())?;
    lua.create_string(body)?.into_lua_multi(lua)
}

fn get_body(
    lua: &Lua,
    exchange: &mut Exchange,
    (mime, max, _): (Option<LuaString>, Value, Value),
) -> mlua::Result<ParsedBody> {
    BodyIsRead::note(exchange);
    let own =
        || exchange.request.headers.get("Content-Type").map(|it| String::from_utf8_lossy(it).into_owned());
    let content_type = mime.map(|it| it.to_string_lossy()).or_else(own);
    let body = exchange.body().or((!exchange.has_body()).then_some(&[])).ok_or(TOO_LONG);
    body::read(lua, body, content_type, &max)
}

fn captures(lua: &Lua, exchange: &mut Exchange, (): ()) -> mlua::Result<Table> {
    let (named, unnamed) = (lua.create_table()?, modules::json_array(lua)?);
    if let Some(captures) = exchange.uri_captures() {
        for (number, (name, text)) in captures.iter().enumerate() {
            let Some(text) = text else { continue };
            unnamed.raw_set(number, text)?;
            if let Some(name) = name {
                named.raw_set(name, text)?;
            }
        }
    }
    lua.create_table_from([("named", named), ("unnamed", unnamed)])
}
