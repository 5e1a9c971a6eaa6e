//! `kong.service`: where the request goes.

use super::namespace::{Namespace, refused};
use crate::phase::Phases;
use mlua::{Lua, Table, Value};
use weir_plugin::Exchange;

/// The greatest timeout, in milliseconds.
const MAX_TIMEOUT: f64 = 2_147_483_646.0;

/// Adds the functions.
pub(super) fn fill(make: &Namespace<'_>, table: &Table) -> mlua::Result<()> {
    table.set("set_target", make.exchange(Phases::TARGET, set_target)?)?;
    table.set("set_upstream", make.exchange(Phases::ACCESS, set_upstream)?)?;
    let set_retries = |_: &Lua, exchange: &mut Exchange, retries: Value| {
        let retries = integer("retries", &retries)?;
        if !(0.0..=32767.0).contains(&retries) {
            return refused(format!("retries must be an integer between 0 and 32767: given {retries}"));
        }
        exchange.set_retries(retries as u16);
        Ok(())
    };
    table.set("set_retries", make.exchange(Phases::TARGET, set_retries)?)?;
    table.set("set_timeouts", make.exchange(Phases::TARGET, set_timeouts)?)
}

fn set_target(_: &Lua, exchange: &mut Exchange, (host, port): (Value, Value)) -> mlua::Result<()> {
    let Value::String(host) = host else { return refused("host must be a string") };
    let port = match number(&port) {
        None => return refused("port must be an integer"),
        Some(port) if port.fract() != 0.0 => return refused("port must be an integer"),
        Some(port) if !(0.0..=65535.0).contains(&port) => {
            return refused(format!("port must be an integer between 0 and 65535: given {port}"));
        }
        Some(port) => port as u16,
    };
    exchange.set_target(&host.to_string_lossy(), port).map_err(mlua::Error::runtime)
}

fn set_upstream(
    _: &Lua,
    exchange: &mut Exchange,
    name: Value,
) -> mlua::Result<(Option<bool>, Option<String>)> {
    let Value::String(name) = name else { return refused("host must be a string") };
    Ok(match exchange.set_upstream(&name.to_string_lossy()) {
        Ok(()) => (Some(true), None),
        Err(error) => (None, Some(error.to_string())),
    })
}

fn set_timeouts(_: &Lua, exchange: &mut Exchange, given: (Value, Value, Value)) -> mlua::Result<()> {
    let timeout = |name: &str, value: &Value| {
        let timeout = integer(name, value)?;
        if !(1.0..=MAX_TIMEOUT).contains(&timeout) {
            return refused(format!(
                "{name} must be an integer between 1 and {MAX_TIMEOUT}: given {timeout}"
            ));
        }
        Ok(timeout as u32)
    };
    let connect = timeout("connect_timeout", &given.0)?;
    let write = timeout("write_timeout", &given.1)?;
    exchange.set_timeouts(connect, write, timeout("read_timeout", &given.2)?);
    Ok(())
}

fn integer(name: &str, value: &Value) -> mlua::Result<f64> {
    match number(value).filter(|number| number.fract() == 0.0) {
        Some(number) => Ok(number),
        None => refused(format!("{name} must be an integer")),
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}
