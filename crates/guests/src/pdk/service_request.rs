//! `kong.service.request`: what the upstream gets.

use super::names::Names;
use super::request::BodyIsRead;
use super::{body, headers};
use crate::fields::{scalar, wire_name};
use crate::kept;
use crate::modules;
use crate::namespace::{Namespace, refused};
use crate::phase::Phases;
use crate::service_body::ServiceBody;
use crate::steps::Steps;
use mlua::{BString, Either, Function, IntoLua, Lua, Table, Value};
use weir_plugin::{Exchange, HeadersOf, form};

const BALANCED: Phases = Phases::BALANCED;
const BEFORE: Phases = Phases::BEFORE;
const UPSTREAM: HeadersOf = HeadersOf::Request;

/// The methods that Kong sends.
const METHODS: [&str; 15] = [
    "GET",
    "HEAD",
    "PUT",
    "POST",
    "DELETE",
    "OPTIONS",
    "MKCOL",
    "COPY",
    "MOVE",
    "PROPFIND",
    "PROPPATCH",
    "LOCK",
    "UNLOCK",
    "PATCH",
    "TRACE",
];

/// Makes the namespace.
pub(super) fn table(make: &Namespace<'_>) -> mlua::Result<Table> {
    let table = make.table()?;
    let enable_buffering = |_: &Lua, exchange: &mut Exchange, ()| {
        ServiceBody::want(exchange);
        Ok(())
    };
    table.set("enable_buffering", make.exchange(BALANCED, enable_buffering)?)?;
    table.set("set_scheme", make.exchange(BALANCED, set_scheme)?)?;
    table.set("set_path", make.exchange(BALANCED, set_path)?)?;
    table.set("set_method", make.exchange(BEFORE, set_method)?)?;
    table.set("set_raw_query", make.exchange(BEFORE, set_raw_query)?)?;
    table.set("set_query", make.exchange(BEFORE, set_query)?)?;
    table.set("clear_query_arg", make.exchange(BEFORE, clear_query_arg)?)?;
    headers_of(make, &table)?;
    table.set("set_raw_body", make.exchange(BALANCED, set_raw_body)?)?;
    table.set("set_body", make.exchange(BEFORE, set_body)?)?;
    table.set("disable_tls", make.exchange(Phases::STREAM_TARGET, |_, _, ()| Ok(true))?)?;
    Ok(table)
}

fn headers_of(make: &Namespace<'_>, table: &Table) -> mlua::Result<()> {
    table.set("set_header", set_header(make)?)?;
    let add_header = |_: &Lua, exchange: &mut Exchange, (name, value): (Value, Value)| {
        headers::append(exchange, UPSTREAM, &headers::field(&name, &value)?)
    };
    table.set("add_header", make.exchange(BEFORE, add_header)?)?;
    let clear_header = |_: &Lua, exchange: &mut Exchange, name: Value| {
        let Value::String(name) = name else { return refused("header must be a string") };
        exchange.clear_header(UPSTREAM, &wire_name(&name.to_string_lossy())).map_err(mlua::Error::runtime)
    };
    table.set("clear_header", make.exchange(BEFORE, clear_header)?)?;
    let set_headers = |_: &Lua, exchange: &mut Exchange, given: Value| {
        headers::fields(&given)?.iter().try_for_each(|field| headers::set(exchange, UPSTREAM, field))
    };
    table.set("set_headers", make.exchange(BEFORE, set_headers)?)
}

fn set_header(make: &Namespace<'_>) -> mlua::Result<Function> {
    let names = Names::of(make.lua)?;
    let by_number = move |lua: &Lua,
                          exchange: &mut Exchange,
                          (number, value): (usize, Either<BString, Value>)| {
        let name = names.get(number)?;
        match value {
            Either::Left(value) if headers::set_text(exchange, UPSTREAM, (&name.wire, &value))? => {}
            value => {
                let (name, value) = (Value::String(lua.create_string(&*name.text)?), value.into_lua(lua)?);
                headers::set(exchange, UPSTREAM, &headers::field(&name, &value)?)?;
            }
        }
        Ok(Value::Nil)
    };
    let names = Names::of(make.lua)?;
    let by_name = move |_: &Lua, exchange: &mut Exchange, (name, value): (Value, Value)| {
        let field = headers::field(&name, &value)?;
        if field.0.starts_with(':') {
            return Ok((Value::Nil, Some("cannot set :authority pseudo-header on non-grpc requests")));
        }
        headers::set(exchange, UPSTREAM, &field)?;
        names.learn(&name)?;
        Ok((Value::Nil, None))
    };
    make.named(make.exchange(BALANCED, by_number)?, make.exchange(BALANCED, by_name)?)
}

fn set_scheme(_: &Lua, exchange: &mut Exchange, scheme: Value) -> mlua::Result<()> {
    let Value::String(scheme) = scheme else { return refused("scheme must be a string") };
    match &*scheme.to_string_lossy() {
        scheme @ ("http" | "https") => exchange.set_upstream_tls(scheme == "https"),
        other => return refused(format!("invalid scheme: {other}")),
    }
    Ok(())
}

fn set_path(_: &Lua, exchange: &mut Exchange, path: Value) -> mlua::Result<()> {
    let Value::String(path) = path else { return refused("path must be a string") };
    let path = path.to_string_lossy();
    if !path.starts_with('/') {
        return refused("path must start with /");
    }
    kept::keep(exchange, path.len())?;
    exchange.set_upstream_path(path);
    Ok(())
}

fn set_method(_: &Lua, exchange: &mut Exchange, method: Value) -> mlua::Result<()> {
    let Value::String(method) = method else { return refused("method must be a string") };
    let method = method.to_string_lossy();
    if !METHODS.contains(&&*method) {
        return refused(format!("invalid method: {method}"));
    }
    exchange.set_method(&method);
    Ok(())
}

fn set_raw_query(_: &Lua, exchange: &mut Exchange, query: Value) -> mlua::Result<()> {
    let Value::String(query) = query else { return refused("query must be a string") };
    kept::keep(exchange, query.as_bytes().len())?;
    exchange.set_query(form::text(&query.as_bytes()).into_owned());
    Ok(())
}

fn set_query(lua: &Lua, exchange: &mut Exchange, args: Value) -> mlua::Result<()> {
    let Value::Table(args) = args else { return refused("args must be a table") };
    let args = arguments(lua, &args)?;
    exchange.set_query_args(args.iter().map(|(name, value)| (name.as_str(), value.as_deref())));
    Ok(())
}

/// What an argument costs, which is sorted among others.
const STEPS_PER_ARGUMENT: usize = 64;

/// The name and value of an argument.
type Argument = (String, Option<Vec<u8>>);

/// A table of arguments as names and values; `true` has none.
pub(crate) fn arguments(lua: &Lua, args: &Table) -> mlua::Result<Vec<Argument>> {
    let (mut pairs, mut bytes, steps) = (Vec::new(), 0, Steps::of(lua));
    let mut push = |found: Option<Argument>| {
        steps.take_many(STEPS_PER_ARGUMENT)?;
        bytes += found.as_ref().map_or(0, |(name, value)| name.len() + value.as_ref().map_or(0, Vec::len));
        pairs.extend(found);
        kept::within(bytes)
    };
    for pair in args.pairs::<Value, Value>() {
        let (Value::String(name), value) = pair? else { return refused("arg keys must be strings") };
        let name = name.to_string_lossy();
        match value {
            Value::Table(values) => {
                for value in values.sequence_values::<Value>() {
                    push(argument(&name, &value?)?)?;
                }
            }
            value => push(argument(&name, &value)?)?,
        }
    }
    pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(pairs)
}

fn argument(name: &str, value: &Value) -> mlua::Result<Option<Argument>> {
    Ok(match value {
        Value::Boolean(true) => Some((name.to_owned(), None)),
        Value::Boolean(false) => None,
        value => match scalar(value) {
            Some(text) => Some((name.to_owned(), Some(text))),
            None => {
                return refused(format!("attempt to use {} as query arg value", value.type_name()));
            }
        },
    })
}

fn clear_query_arg(lua: &Lua, exchange: &mut Exchange, name: Value) -> mlua::Result<()> {
    let Value::String(name) = name else { return refused("query argument name must be a string") };
    Steps::of(lua).take_many(exchange.query().map_or(0, str::len))?;
    exchange.clear_query_arg(&name.to_string_lossy());
    Ok(())
}

fn set_raw_body(_: &Lua, exchange: &mut Exchange, body: Value) -> mlua::Result<()> {
    let Value::String(body) = body else { return refused("body must be a string") };
    put_body(exchange, body.as_bytes().to_vec())
}

fn put_body(exchange: &mut Exchange, body: Vec<u8>) -> mlua::Result<()> {
    BodyIsRead::note(exchange);
    if exchange.set_body(body) { Ok(()) } else { refused("the request's body is too long to be replaced") }
}

fn set_body(
    lua: &Lua,
    exchange: &mut Exchange,
    (args, mime): (Value, Value),
) -> mlua::Result<(Option<bool>, Option<String>)> {
    let Value::Table(table) = &args else { return refused("args must be a table") };
    let own =
        || exchange.request.headers.get("Content-Type").map(|it| String::from_utf8_lossy(it).into_owned());
    let mime = match mime {
        Value::Nil => own(),
        Value::String(mime) => Some(mime.to_string_lossy()),
        _ => return refused("mimetype must be a string"),
    };
    let Some(mime) = mime else {
        return Ok((
            None,
            Some(
                "content type was neither explicitly given as an argument or received as a header".to_owned(),
            ),
        ));
    };
    let kind = mime.to_ascii_lowercase();
    let body = match kind.split(';').next().unwrap_or_default().trim() {
        "application/x-www-form-urlencoded" => encoded(&arguments(lua, table)?),
        "application/json" => modules::to_json(lua, &args)?,
        body::MULTIPART => return set_parts(exchange, &arguments(lua, table)?, &mime),
        _ => return Ok((None, Some(format!("unsupported content type '{mime}'")))),
    };
    put_body(exchange, body)?;
    exchange.set_header(UPSTREAM, "Content-Type", mime.as_bytes()).map_err(mlua::Error::runtime)?;
    Ok((Some(true), None))
}

/// Sends arguments as parts, between boundaries that no value has.
fn set_parts(
    exchange: &mut Exchange,
    pairs: &[Argument],
    mime: &str,
) -> mlua::Result<(Option<bool>, Option<String>)> {
    let own = || format!("{:032x}", weir_plugin::Uuid::new_v4().as_u128());
    let boundary = body::boundary(mime).map_or_else(own, str::to_owned);
    put_body(exchange, body::multipart(pairs, &boundary)?)?;
    let mime = format!("{}; boundary={boundary}", body::MULTIPART);
    exchange.set_header(UPSTREAM, "Content-Type", mime.as_bytes()).map_err(mlua::Error::runtime)?;
    Ok((Some(true), None))
}

/// Arguments as a form.
pub(crate) fn encoded(pairs: &[(String, Option<Vec<u8>>)]) -> Vec<u8> {
    let pairs = pairs
        .iter()
        .map(|(name, value)| form::Pair::new(name, value.as_deref().map(Into::into)).raw.into_owned());
    pairs.collect::<Vec<_>>().join("&").into_bytes()
}
