//! `kong.response`: what the client gets.

use super::headers::{self, Field};
use crate::fields::wire_name;
use crate::host::Host;
use crate::modules;
use crate::namespace::{Namespace, refused};
use crate::pending::PendingHeaders;
use crate::phase::{Phase, Phases};
use crate::steps::Steps;
use mlua::{Lua, LuaString, Table, Value};
use weir_plugin::{Exchange, HeadersOf, LocalResponse};

const READ: Phases = Phases::RESPONSE_READ;
const WRITE: Phases = Phases::RESPONSE_WRITE;
const JSON: &str = "application/json; charset=utf-8";

/// Makes the namespace.
pub(super) fn table(make: &Namespace<'_>) -> mlua::Result<Table> {
    let table = make.table()?;
    table.set("get_status", make.exchange(READ, |_, it, ()| Ok(it.response.status))?)?;
    table.set("get_source", make.exchange(READ, |_, it, ()| Ok(it.response_source().as_str()))?)?;
    table.set("get_header", headers::getter(make, READ, |exchange| Some(&exchange.response.headers))?)?;
    let get_headers = |lua: &Lua, exchange: &mut Exchange, max: Value| {
        headers::table(lua, &exchange.response.headers, headers::limit("max_headers", &max)?)
    };
    table.set("get_headers", make.exchange(READ, get_headers)?)?;
    writers(make, &table)?;
    body(make, &table)?;
    let exit = make.host(Phases::EXIT, exit)?;
    table.set("exit", make.ending(exit)?)?;
    let error = make.host(Phases::EXIT, error)?;
    table.set("error", make.ending(error)?)?;
    Ok(table)
}

fn writers(make: &Namespace<'_>, table: &Table) -> mlua::Result<()> {
    let set_status = |_: &Lua, host: &Host, status: Value| {
        let status = self::status(&status)?;
        host.exchange(WRITE)?.response.status = status;
        Ok(())
    };
    table.set("set_status", make.host(WRITE, set_status)?)?;
    let set_header =
        |_: &Lua, host: &Host, (name, value): (Value, Value)| set(host, &headers::field(&name, &value)?);
    table.set("set_header", make.host(WRITE, set_header)?)?;
    let add_header =
        |_: &Lua, host: &Host, (name, value): (Value, Value)| add(host, &headers::field(&name, &value)?);
    table.set("add_header", make.host(WRITE, add_header)?)?;
    let clear_header = |_: &Lua, host: &Host, name: Value| {
        let name = headers::name(&name)?.to_string_lossy();
        set(host, &(name, Vec::new()))
    };
    table.set("clear_header", make.host(WRITE, clear_header)?)?;
    let set_headers = |_: &Lua, host: &Host, headers: Value| {
        headers::fields(&headers)?.iter().try_for_each(|field| set(host, field))
    };
    table.set("set_headers", make.host(WRITE, set_headers)?)
}

/// Sets a header of the response, or remembers it until there is one.
pub(crate) fn set(host: &Host, field: &Field) -> mlua::Result<()> {
    if is_transfer_encoding(&field.0) {
        return Ok(());
    }
    let mut exchange = host.exchange(Phases::ANY)?;
    if matches!(host.phase(), Phase::Rewrite | Phase::Access) {
        headers::keep(&mut exchange, field)?;
        PendingHeaders::of(&mut exchange).set(field);
        return Ok(());
    }
    headers::set(&mut exchange, HeadersOf::Response, field)
}

/// Adds a header to the response.
pub(crate) fn add(host: &Host, field: &Field) -> mlua::Result<()> {
    if is_transfer_encoding(&field.0) {
        return Ok(());
    }
    let mut exchange = host.exchange(Phases::ANY)?;
    if matches!(host.phase(), Phase::Rewrite | Phase::Access) {
        headers::keep(&mut exchange, field)?;
        PendingHeaders::of(&mut exchange).add(field);
        return Ok(());
    }
    headers::append(&mut exchange, HeadersOf::Response, field)
}

fn is_transfer_encoding(name: &str) -> bool {
    let is = wire_name(name).eq_ignore_ascii_case("transfer-encoding");
    if is {
        tracing::warn!("manually setting Transfer-Encoding. Ignored.");
    }
    is
}

/// A status that code sets.
fn status(value: &Value) -> mlua::Result<u16> {
    let number = match value {
        Value::Integer(number) => *number as f64,
        Value::Number(number) => *number,
        _ => return refused("code must be a number"),
    };
    if !(100.0..=599.0).contains(&number) {
        return refused("code must be a number between 100 and 599");
    }
    Ok(number as u16)
}

fn body(make: &Namespace<'_>, table: &Table) -> mlua::Result<()> {
    table.set("get_raw_body", make.host(Phases::BODY, raw_body)?)?;
    let set_raw_body = |_: &Lua, host: &Host, body: Value| {
        let Value::String(body) = body else { return refused("body must be a string") };
        let mut part = host.body.borrow_mut();
        part.collected.clear();
        part.data = body.as_bytes().to_vec();
        part.is_last = true;
        Ok(())
    };
    table.set("set_raw_body", make.host(Phases::BODY, set_raw_body)?)
}

/// The whole body at its end; until then it is withheld.
fn raw_body(lua: &Lua, host: &Host, (): ()) -> mlua::Result<Option<LuaString>> {
    let mut part = host.body.borrow_mut();
    let data = std::mem::take(&mut part.data);
    part.collected.extend_from_slice(&data);
    if !part.is_last {
        return Ok(None);
    }
    part.data = std::mem::take(&mut part.collected);
    Steps::of(lua).take_bytes(part.data.len())?;
    lua.create_string(&part.data).map(Some)
}

fn exit(lua: &Lua, host: &Host, (code, body, given): (Value, Value, Value)) -> mlua::Result<bool> {
    let status = status(&code)?;
    let (mut content_type, content) = match &body {
        Value::Nil => (None, Vec::new()),
        Value::String(text) => (None, text.as_bytes().to_vec()),
        Value::Table(_) => {
            let failed = |why| format!("body encoding failed while flushing response: {why}");
            (Some(JSON), modules::to_json(lua, &body).map_err(|error| error.worded(failed))?)
        }
        _ => return refused("body must be a nil, string or table"),
    };
    let fields = match &given {
        Value::Nil => Vec::new(),
        Value::Table(_) => headers::fields(&given)?,
        _ => return refused("headers must be a nil or table"),
    };
    if fields.iter().any(|(name, _)| wire_name(name).eq_ignore_ascii_case("content-type")) {
        content_type = None;
    }
    finish(host, status, Content::Raw(content_type, content), &fields)
}

fn error(lua: &Lua, host: &Host, (code, message, given): (Value, Value, Value)) -> mlua::Result<bool> {
    let status = match &code {
        Value::Integer(number) => *number as f64,
        Value::Number(number) => *number,
        _ => return refused("code must be a number"),
    };
    if !(400.0..=599.0).contains(&status) {
        return refused("code must be a number between 400 and 599");
    }
    let fields = match &given {
        Value::Nil => Vec::new(),
        Value::Table(_) => headers::fields(&given)?,
        _ => return refused("headers must be a nil or table"),
    };
    let status = status as u16;
    let content = match &message {
        Value::Nil => Content::Message(reason(status).to_owned()),
        Value::String(text) => Content::Message(text.to_string_lossy()),
        Value::Table(_) => Content::Raw(Some(JSON), modules::to_json(lua, &message)?),
        _ => return refused("message must be a nil, string or table"),
    };
    finish(host, status, content, &fields)
}

/// Kong's messages for statuses.
pub(crate) fn reason(status: u16) -> &'static str {
    match status {
        400 => "Bad request",
        401 => "Unauthorized",
        402 => "Payment required",
        403 => "Forbidden",
        404 => "Not found",
        405 => "Method not allowed",
        406 => "Not acceptable",
        407 => "Proxy authentication required",
        408 => "Request timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length required",
        412 => "Precondition failed",
        413 => "Payload too large",
        414 => "URI too long",
        415 => "Unsupported media type",
        416 => "Range not satisfiable",
        417 => "Expectation failed",
        418 => "I'm a teapot",
        421 => "Misdirected request",
        422 => "Unprocessable entity",
        423 => "Locked",
        424 => "Failed dependency",
        425 => "Too early",
        426 => "Upgrade required",
        428 => "Precondition required",
        429 => "Too many requests",
        431 => "Request header fields too large",
        451 => "Unavailable for legal reasons",
        494 => "Request header or cookie too large",
        500 => "An unexpected error occurred",
        501 => "Not implemented",
        502 => "An invalid response was received from the upstream server",
        503 => "The upstream server is currently unavailable",
        504 => "The upstream server is timing out",
        505 => "HTTP version not supported",
        506 => "Variant also negotiates",
        507 => "Insufficient storage",
        508 => "Loop detected",
        510 => "Not extended",
        511 => "Network authentication required",
        _ => "The upstream server responded with an error",
    }
}

/// What a response says.
pub(crate) enum Content {
    /// This, of this type.
    Raw(Option<&'static str>, Vec<u8>),
    /// An error, in the form that the client accepts.
    Message(String),
}

/// Answers, or, where there is a response already, replaces that. Returns whether the call ends.
pub(crate) fn finish(host: &Host, status: u16, content: Content, fields: &[Field]) -> mlua::Result<bool> {
    let mut exchange = host.exchange(Phases::ANY)?;
    if !host.phase().answers() {
        replace(&mut exchange, status, content);
        fields.iter().try_for_each(|field| headers::set(&mut exchange, HeadersOf::Response, field))?;
        return Ok(false);
    }
    let answer = match content {
        Content::Raw(content_type, body) => LocalResponse::raw(status, content_type, body),
        Content::Message(message) => LocalResponse::error(status, &message),
    };
    let mut pending = PendingHeaders::take(&mut exchange);
    fields.iter().for_each(|field| pending.set(field));
    host.answer.replace(Some(pending.onto(answer)));
    Ok(true)
}

fn replace(exchange: &mut Exchange, status: u16, content: Content) {
    let (content_type, body) = match content {
        Content::Raw(content_type, body) => (content_type, body),
        Content::Message(message) => {
            (Some(JSON), format!("{{\"message\":{}}}", weir_plugin::Json::from(message)).into_bytes())
        }
    };
    exchange.response.status = status;
    if let Some(content_type) = content_type {
        exchange.response.headers.set("Content-Type", content_type.as_bytes());
    }
    exchange.set_response_body(body);
}
