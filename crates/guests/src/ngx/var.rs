//! `ngx.var`: the variables of nginx that plugins use.

use super::time::{common_log_time, iso8601, since_epoch};
use super::virtual_table;
use crate::fields::wire_name;
use crate::kept;
use crate::namespace::{Namespace, refused};
use crate::phase::Phases;
use crate::steps::Steps;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mlua::{Lua, LuaString, Table, Value};
use std::net::IpAddr;
use std::sync::OnceLock;
use weir_plugin::schema::Choice;
use weir_plugin::{Exchange, Headers};

/// Makes the table. Those that few set can be set.
pub(super) fn table(make: &Namespace<'_>) -> mlua::Result<Table> {
    let get = |lua: &Lua, exchange: &mut Exchange, (_, name): (Value, Value)| {
        let Value::String(name) = name else {
            // Numbers are captures of nginx's own regular expressions, which there are none of.
            return if matches!(name, Value::Integer(_) | Value::Number(_)) {
                Ok(None)
            } else {
                refused("bad variable name")
            };
        };
        let name = name.to_string_lossy();
        if name.starts_with("arg_") {
            Steps::of(lua).take_many(exchange.query().map_or(0, str::len))?;
        }
        let Some(value) = variable(exchange, &name) else { return Ok(None) };
        Steps::of(lua).take_bytes(value.len())?;
        lua.create_string(value).map(Some)
    };
    let set = |_: &Lua, exchange: &mut Exchange, (_, name, value): (Value, LuaString, Option<LuaString>)| {
        let value = value.map(|value| value.to_string_lossy()).unwrap_or_default();
        assign(exchange, &name.to_string_lossy(), value)
    };
    virtual_table(make, make.exchange(Phases::REQUEST, get)?, make.exchange(Phases::REQUEST, set)?)
}

fn variable(exchange: &Exchange, name: &str) -> Option<Vec<u8>> {
    let text = |text: &str| Some(text.as_bytes().to_vec());
    match name {
        "request_uri" => text(exchange.path_with_query()),
        "uri" | "document_uri" => text(exchange.path()),
        "args" | "query_string" => exchange.query().and_then(text),
        "is_args" => text(if exchange.query().is_some() { "?" } else { "" }),
        "request_method" => text(exchange.request.method_str()),
        "host" => text(&exchange.host()),
        "scheme" => text(exchange.scheme()),
        "remote_addr" => text(&exchange.client_ip.to_string()),
        "remote_port" => text(&exchange.client_port()?.to_string()),
        "realip_remote_addr" => text(&exchange.peer.ip().to_string()),
        "realip_remote_port" => text(&exchange.peer.port().to_string()),
        "server_addr" => text(&exchange.local().ip().to_string()),
        "server_port" => text(&exchange.local().port().to_string()),
        "server_protocol" => text(protocol(exchange)),
        "request" => {
            let (method, target) = (exchange.request.method_str(), exchange.path_with_query());
            text(&format!("{method} {target} {}", protocol(exchange)))
        }
        "request_length" => text(&exchange.bytes_in.to_string()),
        "bytes_sent" => text(&exchange.bytes_out.to_string()),
        "request_time" => text(&format!("{:.3}", exchange.latencies().request.as_secs_f64())),
        "request_id" | "kong_request_id" => text(exchange.id()),
        "status" => text(&exchange.response.status.to_string()),
        "connection" => text(&exchange.connection_number().to_string()),
        "connection_requests" => text(&exchange.request_number().to_string()),
        "https" => text(if exchange.tls { "on" } else { "" }),
        "ssl_server_name" => exchange.sni.as_deref().and_then(text),
        "ssl_protocol" => exchange.tls_session().and_then(|(version, _)| text(version)),
        "ssl_cipher" => exchange.tls_session().and_then(|(_, cipher)| text(cipher)),
        "content_type" => exchange.request.headers.get("Content-Type").map(<[u8]>::to_vec),
        "content_length" => exchange.request.headers.get("Content-Length").map(<[u8]>::to_vec),
        "remote_user" => basic_user(exchange),
        "request_body" => exchange.body().map(<[u8]>::to_vec),
        _ => of_the_node(exchange, name)
            .or_else(|| upstream(exchange, name))
            .or_else(|| by_prefix(exchange, name)),
    }
}

/// The node, its clock, and what nginx says of every request.
fn of_the_node(exchange: &Exchange, name: &str) -> Option<Vec<u8>> {
    let text = match name {
        "hostname" => hostname().to_owned(),
        "pid" => std::process::id().to_string(),
        "nginx_version" => "1.25.3.2".to_owned(),
        "server_name" => "kong".to_owned(),
        "msec" => format!("{:.3}", since_epoch()),
        "time_iso8601" => iso8601(),
        "time_local" => common_log_time(),
        "body_bytes_sent" => exchange.bytes_out.to_string(),
        "request_completion" => String::new(),
        "pipe" => ".".to_owned(),
        "binary_remote_addr" => {
            return Some(match exchange.client_ip {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            });
        }
        _ => return None,
    };
    Some(text.into_bytes())
}

fn hostname() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        name.trim().to_owned()
    })
}

/// The name in credentials of the scheme Basic.
fn basic_user(exchange: &Exchange) -> Option<Vec<u8>> {
    let given = exchange.request.headers.get("Authorization")?;
    let (scheme, rest) = given.split_at_checked("Basic ".len())?;
    let decoded = STANDARD.decode(rest).ok().filter(|_| scheme.eq_ignore_ascii_case(b"Basic "))?;
    let end = decoded.iter().position(|byte| *byte == b':')?;
    Some(decoded[..end].to_vec())
}

/// The protocol, as request lines name it.
pub(super) fn protocol(exchange: &Exchange) -> &'static str {
    match crate::pdk::request::version(exchange.request.version) {
        version if version < 1.1 => "HTTP/1.0",
        version if version < 2.0 => "HTTP/1.1",
        version if version < 3.0 => "HTTP/2.0",
        _ => "HTTP/3.0",
    }
}

fn upstream(exchange: &Exchange, name: &str) -> Option<Vec<u8>> {
    let text = |text: &str| Some(text.as_bytes().to_vec());
    match name {
        "upstream_uri" => exchange.upstream_uri(),
        "upstream_host" => text(exchange.upstream_host().unwrap_or(&exchange.service()?.host)),
        "upstream_scheme" => text(exchange.service()?.protocol.as_str()),
        "upstream_addr" => text(&exchange.upstream_address()?.to_string()),
        "upstream_status" => text(&exchange.service_status()?.to_string()),
        "upstream_x_forwarded_prefix" => exchange.forwarded_prefix().and_then(text),
        _ => None,
    }
}

/// Headers, arguments and cookies by name.
fn by_prefix(exchange: &Exchange, name: &str) -> Option<Vec<u8>> {
    let header = |headers: &Headers, name: &str| headers.get(&wire_name(name)).map(<[u8]>::to_vec);
    if let Some(name) = name.strip_prefix("http_") {
        return header(&exchange.request.headers, name);
    }
    if let Some(name) = name.strip_prefix("sent_http_") {
        return header(&exchange.response.headers, name);
    }
    if let Some(name) = name.strip_prefix("upstream_http_") {
        exchange.service_status()?;
        return header(exchange.service_headers().unwrap_or(&exchange.response.headers), name);
    }
    if let Some(name) = name.strip_prefix("arg_") {
        return exchange.query_arg(name).map(|pair| pair.value.unwrap_or_default().into_owned());
    }
    let name = name.strip_prefix("cookie_")?;
    let cookies = exchange.request.headers.get_all("Cookie").filter_map(|it| std::str::from_utf8(it).ok());
    let mut pairs = cookies.flat_map(|it| it.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value.as_bytes().to_vec())
}

fn assign(exchange: &mut Exchange, name: &str, value: String) -> mlua::Result<()> {
    kept::keep(exchange, value.len())?;
    match name {
        "upstream_uri" => match value.split_once('?') {
            Some((path, query)) => {
                exchange.set_upstream_path(path);
                exchange.set_query(query.to_owned());
            }
            None => exchange.set_upstream_path(value),
        },
        "upstream_host" => exchange.set_upstream_host(&value),
        "upstream_scheme" => exchange.set_upstream_tls(value == "https"),
        "args" => exchange.set_query(value),
        other if variable(exchange, other).is_some() => {
            return refused(format!("variable \"{other}\" not changeable"));
        }
        other => {
            return refused(format!(
                "variable \"{other}\" not found for writing; maybe it is a built-in variable that is not changeable \
                 or you forgot to use \"set ${other} '';\" in the config file to define it first"
            ));
        }
    }
    Ok(())
}
