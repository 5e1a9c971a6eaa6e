//! `GET /`: what tools request first, to find out which gateway they talk to.
use crate::admin::response::json_response;
use crate::control::Control;
use crate::plugins::find;
use crate::settings::{Database, Listen, Listeners};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use weir_model::entity::{Entity, EntityKind};
use weir_proxy::{Address, Listening};

/// The version of Kong whose API this is, because tools decide by it what to send.
pub(super) use weir_plugins::KONG_VERSION;

pub(super) async fn root(State(control): State<Arc<Control>>) -> Response {
    let process = std::process::id();
    json_response(
        StatusCode::OK,
        &json!({
            "tagline": "Welcome to Weir",
            "version": KONG_VERSION,
            "edition": "community",
            "hostname": rustix::system::uname().nodename().to_string_lossy(),
            "node_id": control.node_id(),
            "lua_version": "none",
            "timers": { "running": 0, "pending": 0 },
            "pids": { "master": process, "workers": [process] },
            "plugins": plugins(&control),
            "configuration": configuration(&control),
            "weir": {
                "version": env!("CARGO_PKG_VERSION"),
                "database": kept_in(&control),
                "revision": control.registry().revision().0,
                "in_force": control.registry().active().0,
            },
        }),
    )
}

fn plugins(control: &Control) -> Value {
    let available = control.plugins().iter().filter(|plugin| plugin.available);
    let definitions = available.filter_map(|plugin| find(control.plugin_definitions(), plugin.name));
    let on_server: Value = definitions
        .map(|plugin| {
            let about = json!({ "version": plugin.version, "priority": plugin.priority });
            (plugin.name.to_owned(), about)
        })
        .collect();
    let entities = control.registry().entities();
    let configured = entities.after(EntityKind::Plugins, None).filter_map(|entity| match entity {
        Entity::Plugins(plugin) => Some(plugin.name.as_str()),
        _ => None,
    });
    let in_use: BTreeSet<_> = configured.collect();
    json!({ "available_on_server": on_server, "enabled_in_cluster": in_use, "disabled_on_server": {} })
}

/// Every setting, and what tools read of Kong's beside it.
fn configuration(control: &Control) -> Value {
    let mut shown = control.shown_settings().clone();
    if let Value::Object(known) = known_to_tools(control) {
        shown.extend(known);
    }
    shown.into()
}

/// The settings of Kong that tools read, in its form.
fn known_to_tools(control: &Control) -> Value {
    let settings = control.settings();
    let names: Vec<_> = control.plugins().iter().filter(|plugin| plugin.available).map(|p| p.name).collect();
    let host_ports: Map<_, _> =
        settings.port_maps.iter().map(|map| (map.own.to_string(), map.public.into())).collect();
    json!({
        "database": database(control),
        "role": settings.role.to_string(),
        "router_flavor": settings.router_flavor.to_string(),
        "portal": false,
        "rbac": "off",
        "anonymous_reports": false,
        "prefix": settings.prefix,
        "plugins": settings.plugins,
        "loaded_plugins": names.iter().map(|name| ((*name).to_owned(), Value::Bool(true))).collect::<Value>(),
        "host_ports": host_ports,
        "nginx_worker_processes": settings.workers.0.to_string(),
        "proxy_listen": texts(&settings.proxy_listen.0),
        "admin_listen": texts(&settings.admin_listen.0),
        "status_listen": texts(&settings.status_listen.0),
        "stream_listen": texts(&settings.stream_listen.0),
        "proxy_listeners": bound(&settings.proxy_listen.0, control.http_listeners()),
        "admin_listeners": own(&settings.admin_listen),
        "status_listeners": own(&settings.status_listen),
        "stream_listeners": bound(&settings.stream_listen.0, control.stream_listeners()),
    })
}

/// Kong knows two ways to keep a configuration: tools write entities to a node that has a database, whichever it is,
/// and whole files to one that has none.
fn database(control: &Control) -> &'static str {
    let registry = control.registry();
    if registry.is_stored() && !registry.is_translated() { "postgres" } else { "off" }
}

/// The database that really holds the configuration.
fn kept_in(control: &Control) -> String {
    if control.registry().is_translated() {
        return "etcd".to_owned();
    }
    let is_stored = control.registry().is_stored();
    let otherwise = if is_stored { Database::Sqlite } else { Database::Off };
    control.settings().database.unwrap_or(otherwise).to_string()
}

fn texts(listeners: &[Listen]) -> Vec<String> {
    if listeners.is_empty() {
        return vec!["off".to_owned()];
    }
    listeners.iter().map(ToString::to_string).collect()
}

/// Where the proxy really listens, also where the system chose the port.
fn bound<'l>(asked: &[Listen], listening: impl Iterator<Item = &'l Listening>) -> Vec<Value> {
    let listeners = asked.iter().zip(listening).map(|(listen, listening)| {
        let listen = Listen { address: listening.address.clone(), ..listen.clone() };
        if listening.traffic.is_http() { http_listener(&listen) } else { stream_listener(&listen) }
    });
    listeners.collect()
}

fn http_listener(listen: &Listen) -> Value {
    let mut listener = listener(listen);
    listener["http2"] = listen.http2.into();
    if listen.quic {
        listener["quic"] = true.into();
    }
    listener["deferred"] = false.into();
    listener
}

/// Those of the node's own APIs, which serve HTTP/2 over TLS alone.
fn own(listeners: &Listeners) -> Vec<Value> {
    let http2 = |listen: &Listen| listen.http2 && listen.ssl;
    listeners
        .0
        .iter()
        .map(|listen| http_listener(&Listen { http2: http2(listen), ..listen.clone() }))
        .collect()
}

fn stream_listener(listen: &Listen) -> Value {
    let mut listener = listener(listen);
    listener["udp"] = listen.udp.into();
    listener
}

/// A Unix socket has a path in place of an address, and no port.
fn listener(listen: &Listen) -> Value {
    let ip = match &listen.address {
        Address::Ip(address) => address.ip().to_string(),
        unix => unix.to_string(),
    };
    json!({
        "listener": listen.to_string(),
        "ip": ip,
        "port": listen.address.ip().map(|address| address.port()),
        "ssl": listen.ssl,
        "proxy_protocol": listen.proxy_protocol,
        "bind": false,
        "reuseport": false,
        "backlog=%d+": listen.backlog.is_some(),
    })
}
