//! `ngx.req`: the request.

use super::constants::METHODS;
use super::var::protocol;
use super::{field, limit, unavailable};
use crate::fields::scalar;
use crate::host::Host;
use crate::kept;
use crate::namespace::{Namespace, refused};
use crate::pdk::headers;
use crate::pdk::request::{BodyIsRead, args, version};
use crate::pdk::service_request::{arguments, encoded};
use crate::phase::{Phase, Phases};
use crate::steps::Steps;
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
    table.set("is_internal", make.exchange(ANY, |_, _, ()| Ok(false))?)?;
    table.set("raw_header", make.exchange(ANY, raw_header)?)?;
    pieces(make, &table)?;
    Ok(table)
}

/// The head as the client sent it, as far as it was not changed since.
fn raw_header(lua: &Lua, exchange: &mut Exchange, no_line: Value) -> mlua::Result<LuaString> {
    let mut text = Vec::new();
    if matches!(no_line, Value::Nil | Value::Boolean(false)) {
        let (method, target) = (exchange.request.method_str(), exchange.path_with_query());
        text.extend_from_slice(format!("{method} {target} {}\r\n", protocol(exchange)).as_bytes());
    }
    for field in exchange.request.headers.iter() {
        for part in [field.name, b": ", field.value, b"\r\n"] {
            text.extend_from_slice(part);
        }
    }
    text.extend_from_slice(b"\r\n");
    Steps::of(lua).take_bytes(text.len())?;
    lua.create_string(text)
}

/// A body that code makes of pieces.
struct BodyPieces(Vec<u8>);

/// `init_body`, `append_body` and `finish_body`; and what needs the client's connection, or a file.
fn pieces(make: &Namespace<'_>, table: &Table) -> mlua::Result<()> {
    let init = |_: &Lua, exchange: &mut Exchange, _: MultiValue| {
        exchange.extensions.insert(BodyPieces(Vec::new()));
        Ok(())
    };
    table.set("init_body", make.exchange(BEFORE, init)?)?;
    let append = |_: &Lua, exchange: &mut Exchange, piece: LuaString| {
        kept::keep(exchange, piece.as_bytes().len())?;
        match exchange.extensions.get_mut::<BodyPieces>() {
            Some(BodyPieces(body)) => body.extend_from_slice(&piece.as_bytes()),
            None => return refused("request body not initialized"),
        }
        Ok(())
    };
    table.set("append_body", make.exchange(BEFORE, append)?)?;
    let finish = |_: &Lua, exchange: &mut Exchange, ()| match exchange.extensions.remove::<BodyPieces>() {
        Some(BodyPieces(body)) => replace_body(exchange, body),
        None => refused("request body not initialized"),
    };
    table.set("finish_body", make.exchange(BEFORE, finish)?)?;
    let socket = |_: &Lua, _: &mut Exchange, _: MultiValue| Ok((Value::Nil, "request body already exists"));
    table.set("socket", make.exchange(BEFORE, socket)?)?;
    table.set("set_body_file", unavailable(make, "ngx.req.set_body_file")?)
}

/// Has the upstream get no body, unless code has read it, or the upstream has got it.
fn discard_body(_: &Lua, host: &Host, _: MultiValue) -> mlua::Result<()> {
    let is_sent = host.phase() == Phase::Response;
    let mut exchange = host.exchange(Phases::REQUEST_BODY)?;
    if is_sent || !exchange.has_body() || BodyIsRead::was_noted(&exchange) || exchange.set_body(Vec::new()) {
        return Ok(());
    }
    refused("the request's body is too long to be discarded: raise client_body_buffer_size")
}

fn replace_body(exchange: &mut Exchange, body: Vec<u8>) -> mlua::Result<()> {
    BodyIsRead::note(exchange);
    match exchange.set_body(body) {
        true => Ok(()),
        false => refused("the request's body is too long to be replaced"),
    }
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

fn line(make: &Namespace<'_>, table: &Table) -> mlua::Result<()> {
    let get_method = |_: &Lua, exchange: &mut Exchange, ()| Ok(exchange.request.method_str().to_owned());
    table.set("get_method", make.exchange(ANY, get_method)?)?;
    let set_method = |_: &Lua, exchange: &mut Exchange, method: Value| {
        let Some(method) = method.as_integer().or_else(|| method.as_number().map(|it| it as i64)) else {
            return refused("bad method number");
        };
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
        let max = limit(max);
        Steps::of(lua).take_many(exchange.query().map_or(0, str::len))?;
        args(lua, exchange.query_args(max.saturating_add(1)), max)
    };
    table.set("get_uri_args", make.exchange(ANY, get_uri_args)?)?;
    let set_uri_args = |lua: &Lua, exchange: &mut Exchange, given: Value| {
        let query = match &given {
            Value::Table(given) => encoded(&arguments(lua, given)?),
            other => scalar(other).unwrap_or_default(),
        };
        kept::keep(exchange, query.len())?;
        exchange.set_query(form::text(&query).into_owned());
        Ok(())
    };
    table.set("set_uri_args", make.exchange(BEFORE, set_uri_args)?)?;
    let set_uri = |_: &Lua, exchange: &mut Exchange, (path, _): (LuaString, MultiValue)| {
        match &*path.to_string_lossy() {
            "" => return refused("attempt to use zero-length uri"),
            path => {
                kept::keep(exchange, path.len())?;
                exchange.set_path(path);
            }
        }
        Ok(())
    };
    table.set("set_uri", make.exchange(BEFORE, set_uri)?)
}

fn body(make: &Namespace<'_>, table: &Table) -> mlua::Result<()> {
    let read_body = |_: &Lua, exchange: &mut Exchange, _: MultiValue| {
        BodyIsRead::note(exchange);
        Ok(())
    };
    table.set("read_body", make.exchange(Phases::REQUEST_BODY, read_body)?)?;
    table.set("discard_body", make.host(Phases::REQUEST_BODY, discard_body)?)?;
    let nothing = |_: &Lua, _: &mut Exchange, _: MultiValue| Ok(Value::Nil);
    table.set("get_body_file", make.exchange(Phases::REQUEST_BODY, nothing)?)?;
    let get_body_data = |lua: &Lua, exchange: &mut Exchange, _: MultiValue| {
        let body = exchange.body().filter(|body| !body.is_empty());
        Steps::of(lua).take_bytes(body.map_or(0, <[u8]>::len))?;
        body.map(|body| lua.create_string(body)).transpose()
    };
    table.set("get_body_data", make.exchange(ANY, get_body_data)?)?;
    let get_post_args = |lua: &Lua, exchange: &mut Exchange, max: Option<usize>| {
        let body = exchange.body().unwrap_or_default();
        Steps::of(lua).take_many(body.len())?;
        args(lua, form::pairs(&form::text(body)), limit(max))
    };
    table.set("get_post_args", make.exchange(ANY, get_post_args)?)?;
    let set_body_data =
        |_: &Lua, exchange: &mut Exchange, body: LuaString| replace_body(exchange, body.as_bytes().to_vec());
    table.set("set_body_data", make.exchange(BEFORE, set_body_data)?)
}
