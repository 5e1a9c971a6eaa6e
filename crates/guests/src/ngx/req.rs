//! `ngx.req`: the request.

use super::constants::METHODS;
use super::field;
use crate::pdk::headers;
use crate::pdk::namespace::{Namespace, refused};
use crate::pdk::request::{args, version};
use crate::pdk::service_request::{arguments, encoded};
use crate::phase::Phases;
use mlua::{Lua, LuaString, MultiValue, Table, Value};
use std::time::UNIX_EPOCH;
use weir_plugin::{Exchange, HeadersOf, form};

const ANY: Phases = Phases::REQUEST;
const BEFORE: Phases = Phases::BALANCED;

/// Makes the table.
pub(super) fn table(make: &Namespace<'_>) -> mlua::Result<Table> {
    let table = make.table()?;
    headers_of(make, &table)?;
    line(make, &table)?;
    body(make, &table)?;
    let start_time = |_: &Lua, exchange: &mut Exchange, ()| {
        Ok(exchange.started_at().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64())
    };
    table.set("start_time", make.exchange(ANY, start_time)?)?;
    table.set("is_internal", make.lua.create_function(|_, ()| Ok(false))?)?;
    Ok(table)
}

fn headers_of(make: &Namespace<'_>, table: &Table) -> mlua::Result<()> {
    let get_headers = |lua: &Lua, exchange: &mut Exchange, (max, _): (Option<usize>, Value)| {
        headers::table(lua, &exchange.request.headers, limit(max))
    };
    table.set("get_headers", make.exchange(ANY, get_headers)?)?;
    let set_header = |_: &Lua, exchange: &mut Exchange, (name, value): (LuaString, Value)| {
        headers::set(exchange, HeadersOf::Request, &field(&name, &value)?)
    };
    table.set("set_header", make.exchange(BEFORE, set_header)?)?;
    let clear_header = |_: &Lua, exchange: &mut Exchange, name: LuaString| {
        headers::set(exchange, HeadersOf::Request, &(name.to_string_lossy(), Vec::new()))
    };
    table.set("clear_header", make.exchange(BEFORE, clear_header)?)
}

/// How many are read: zero is all.
fn limit(max: Option<usize>) -> usize {
    match max {
        None => 100,
        Some(0) => usize::MAX,
        Some(max) => max,
    }
}

fn line(make: &Namespace<'_>, table: &Table) -> mlua::Result<()> {
    let get_method = |_: &Lua, exchange: &mut Exchange, ()| Ok(exchange.request.method_str().to_owned());
    table.set("get_method", make.exchange(ANY, get_method)?)?;
    let set_method = |_: &Lua, exchange: &mut Exchange, method: i64| {
        match METHODS.iter().find(|(number, _)| *number == method) {
            Some((_, name)) => exchange.set_method(name),
            None => return refused(format!("unsupported HTTP method: {method}")),
        }
        Ok(())
    };
    table.set("set_method", make.exchange(BEFORE, set_method)?)?;
    let http_version = |_: &Lua, exchange: &mut Exchange, ()| Ok(version(exchange.request.version));
    table.set("http_version", make.exchange(ANY, http_version)?)?;
    let get_uri_args = |lua: &Lua, exchange: &mut Exchange, (max, _): (Option<usize>, Value)| {
        args(lua, exchange.query_args(limit(max)))
    };
    table.set("get_uri_args", make.exchange(ANY, get_uri_args)?)?;
    let set_uri_args = |_: &Lua, exchange: &mut Exchange, given: Value| {
        let query = match &given {
            Value::Table(given) => encoded(&arguments(given)?),
            other => headers::scalar(other).unwrap_or_default(),
        };
        exchange.set_query(form::text(&query).into_owned());
        Ok(())
    };
    table.set("set_uri_args", make.exchange(BEFORE, set_uri_args)?)?;
    let set_uri = |_: &Lua, exchange: &mut Exchange, (path, _): (LuaString, MultiValue)| {
        exchange.set_path(&path.to_string_lossy());
        Ok(())
    };
    table.set("set_uri", make.exchange(BEFORE, set_uri)?)
}

fn body(make: &Namespace<'_>, table: &Table) -> mlua::Result<()> {
    let nothing = |_: &Lua, _: &mut Exchange, _: MultiValue| Ok(Value::Nil);
    for name in ["read_body", "discard_body", "get_body_file"] {
        table.set(name, make.exchange(Phases::REQUEST_BODY, nothing)?)?;
    }
    let get_body_data = |lua: &Lua, exchange: &mut Exchange, _: MultiValue| {
        let body = exchange.body().filter(|body| !body.is_empty());
        body.map(|body| lua.create_string(body)).transpose()
    };
    table.set("get_body_data", make.exchange(ANY, get_body_data)?)?;
    let get_post_args = |lua: &Lua, exchange: &mut Exchange, max: Option<usize>| {
        args(lua, form::pairs(&form::text(exchange.body().unwrap_or_default())).take(limit(max)))
    };
    table.set("get_post_args", make.exchange(ANY, get_post_args)?)?;
    let set_body_data = |_: &Lua, exchange: &mut Exchange, body: LuaString| match exchange
        .set_body(body.as_bytes().to_vec())
    {
        true => Ok(()),
        false => refused("the request's body is too long to be replaced"),
    };
    table.set("set_body_data", make.exchange(BEFORE, set_body_data)?)
}
