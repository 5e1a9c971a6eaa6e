//! `kong.service.response`: what the upstream answered.

use super::headers;
use super::namespace::{Namespace, refused};
use crate::phase::Phases;
use mlua::{Lua, Table, Value};
use weir_plugin::{Exchange, Headers};

const READ: Phases = Phases::SERVICE_RESPONSE;

/// Kong's message about a body that was not buffered.
const NOT_BUFFERED: &str = "service body is only available with buffered proxying (see: \
                            kong.service.request.enable_buffering function)";

/// Makes the namespace.
pub(super) fn table(make: &Namespace<'_>) -> mlua::Result<Table> {
    let table = make.table()?;
    table.set("get_status", make.exchange(READ, |_, exchange, ()| Ok(exchange.service_status()))?)?;
    let get_header = |lua: &Lua, exchange: &mut Exchange, name: Value| {
        let name = headers::name(&name)?;
        service_headers(exchange).map_or(Ok(None), |headers| headers::first(lua, headers, &name))
    };
    table.set("get_header", make.exchange(READ, get_header)?)?;
    let get_headers = |lua: &Lua, exchange: &mut Exchange, max: Value| {
        let max = headers::limit("max_headers", &max)?;
        headers::table(lua, service_headers(exchange).unwrap_or(&Headers::new()), max)
    };
    table.set("get_headers", make.exchange(READ, get_headers)?)?;
    let no_body =
        |_: &Lua, _: &mut Exchange, _: mlua::MultiValue| -> mlua::Result<()> { refused(NOT_BUFFERED) };
    table.set("get_raw_body", make.exchange(READ, no_body)?)?;
    table.set("get_body", make.exchange(READ, no_body)?)?;
    Ok(table)
}

/// The headers as they came where they were kept, else as they are now; none where the service was not asked.
fn service_headers(exchange: &Exchange) -> Option<&Headers> {
    exchange.service_status()?;
    Some(exchange.service_headers().unwrap_or(&exchange.response.headers))
}
