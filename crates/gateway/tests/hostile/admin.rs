//! What web pages and strangers send to the Admin APIs.
use crate::harness::{Gateway, Peer, unescape};
use serde::Deserialize;
use std::net::SocketAddr;

#[derive(Deserialize)]
struct Table {
    case: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    to: Listener,
    name: String,
    send: String,
    status: u16,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Listener {
    Admin,
    Status,
    Proxy,
    Apisix,
}

fn address(gateway: &Gateway, listener: Listener) -> SocketAddr {
    match listener {
        Listener::Admin => gateway.admin_addresses()[0],
        Listener::Status => gateway.status_address(),
        Listener::Proxy => gateway.proxy(),
        Listener::Apisix => gateway.apisix_admin(),
    }
}

#[test]
fn pages_and_strangers_read_and_write_nothing() {
    let table: Table = toml::from_str(include_str!("cases/admin.toml")).unwrap();
    let gateway = Gateway::empty()
        .set("apisix_admin", "on")
        .set("apisix_admin_key", "not-for-everybody")
        .set("apisix_admin_listen", "127.0.0.1:0")
        .set("apisix_proxy_listen", "127.0.0.1:0")
        .start();
    let mut faults = Vec::new();
    for case in &table.case {
        let mut client = Peer::connect(address(&gateway, case.to));
        let response = client.send(unescape(&case.send)).response();
        let is_readable = response.header("access-control-allow-origin").is_some();
        let text = String::from_utf8_lossy(&response.body);
        if response.status != case.status || is_readable || text.contains("not-for-everybody") {
            faults.push(format!("- {}: {} {text}", case.name, response.status));
        }
        let services = gateway.admin("/services").json();
        if services["data"] != serde_json::json!([]) {
            faults.push(format!("- {}: it has written {services}", case.name));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
