//! `kong.service.response`: what the upstream answered.

use super::body::{self, ParsedBody};
use super::headers;
use crate::host::Host;
use crate::namespace::{Namespace, refused};
use crate::phase::{Phase, Phases};
use crate::service_body::ServiceBody;
use crate::steps::Steps;
use mlua::{Lua, LuaString, Table, Value};
use weir_plugin::{Exchange, Headers};

const READ: Phases = Phases::SERVICE_RESPONSE;

/// Makes the namespace.
pub(super) fn table(make: &Namespace<'_>) -> mlua::Result<Table> {
    let table = make.table()?;
    table.set("get_status", make.exchange(READ, |_, exchange, ()| Ok(exchange.service_status()))?)?;
    table.set("get_header", headers::getter(make, READ, service_headers)?)?;
    let get_headers = |lua: &Lua, exchange: &mut Exchange, max: Value| {
        let max = headers::limit("max_headers", &max)?;
        headers::table(lua, service_headers(exchange).unwrap_or(&Headers::new()), max)
    };
    table.set("get_headers", make.exchange(READ, get_headers)?)?;
    table.set("get_raw_body", make.host(READ, |lua, host: &Host, ()| raw_body(lua, host))?)?;
    table.set("get_body", make.host(READ, get_body)?)?;
    Ok(table)
}

/// The body of the service's response; none where it has none, or it was too long to be buffered.
fn raw_body(lua: &Lua, host: &Host) -> mlua::Result<Option<LuaString>> {
    if host.phase() == Phase::Response {
        return body_text(lua, &host.body.borrow().data).map(Some);
    }
    let body = ServiceBody::of(&*host.exchange(READ)?)?;
    body.map(|body| body_text(lua, &body)).transpose()
}

fn body_text(lua: &Lua, body: &[u8]) -> mlua::Result<LuaString> {
    Steps::of(lua).take_bytes(body.len())?;
    lua.create_string(body)
}

/// The body by its content type, as `kong.request.get_body` reads one.
fn get_body(lua: &Lua, host: &Host, (mime, max_args): (Value, Value)) -> mlua::Result<ParsedBody> {
    let body = raw_body(lua, host)?;
    let of_service = || {
        let exchange = host.exchange(READ).ok()?;
        let headers = service_headers(&exchange)?;
        headers.get("Content-Type").map(|it| String::from_utf8_lossy(it).into_owned())
    };
    let mime = match mime {
        Value::Nil => of_service(),
        Value::String(mime) => Some(mime.to_string_lossy()),
        _ => return refused("mimetype must be a string"),
    };
    let bytes = body.as_ref().map(|body| body.as_bytes());
    body::read(lua, Ok(bytes.as_deref().unwrap_or_default()), mime, &max_args)
}

/// The headers as they came where they were kept, else as they are now; none where the service was not asked.
fn service_headers(exchange: &Exchange) -> Option<&Headers> {
    exchange.service_status()?;
    Some(exchange.service_headers().unwrap_or(&exchange.response.headers))
}
