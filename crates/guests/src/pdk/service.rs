//! `kong.service`: where the request goes.

use crate::namespace::{Namespace, refused};
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
    table.set("set_timeouts", make.exchange(Phases::TARGET, set_timeouts)?)?;
    let name = "kong.service.set_target_retry_callback";
    let why = crate::unavailable::refused(name).unwrap_or_default();
    let callback = move |_: &Lua, _: &mut Exchange, callback: Value| -> mlua::Result<()> {
        match callback {
            Value::Function(_) => refused(format!("{name} is not available: {why}")),
            _ => refused("argument must be a function"),
        }
    };
    table.set("set_target_retry_callback", make.exchange(Phases::ACCESS, callback)?)?;
    tls(make, table)
}

/// How the upstream's TLS is verified, which the service's own fields say alone.
fn tls(make: &Namespace<'_>, table: &Table) -> mlua::Result<()> {
    type Refused = (Value, &'static str);
    let cert_key = |_: &Lua, _: &mut Exchange, (chain, key): (Value, Value)| -> mlua::Result<Refused> {
        match (&chain, &key) {
            (Value::Table(_), Value::Table(_)) => {
                Ok((Value::Nil, "not available: set client_certificate of the service"))
            }
            (Value::Table(_), _) => refused("key must be a parsed cdata object"),
            _ => refused("chain must be a parsed cdata object"),
        }
    };
    table.set("set_tls_cert_key", make.exchange(Phases::TARGET, cert_key)?)?;
    let verify = |_: &Lua, _: &mut Exchange, on: Value| match on {
        Value::Boolean(_) => Ok((Value::Nil, "not available: set tls_verify of the service")),
        _ => refused("argument must be a boolean"),
    };
    table.set("set_tls_verify", make.exchange(Phases::TARGET, verify)?)?;
    let depth = |_: &Lua, _: &mut Exchange, depth: Value| match number(&depth) {
        Some(_) => Ok((Value::Nil, "not available: set tls_verify_depth of the service")),
        None => refused("argument must be a number"),
    };
    table.set("set_tls_verify_depth", make.exchange(Phases::TARGET, depth)?)?;
    let store = |_: &Lua, _: &mut Exchange, store: Value| match store {
        Value::Table(_) => Ok((Value::Nil, "not available: set ca_certificates of the service")),
        _ => refused("argument must be a resty.openssl.x509.store object"),
    };
    table.set("set_tls_verify_store", make.exchange(Phases::TARGET, store)?)
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
