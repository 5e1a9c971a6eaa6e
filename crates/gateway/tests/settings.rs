//! Settings take effect: listeners by name, mapped ports, the node's id, and what the Admin API shows of them all.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Gateway, Peer, Upstream, document, one_route, service, unused_ports};
use serde_json::{Value, json};
use std::net::SocketAddr;

const EMPTY: &str = "_format_version: \"3.0\"\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi";

fn configuration(gateway: &Gateway) -> Value {
    gateway.admin("/").json()["configuration"].clone()
}

#[test]
fn listeners_may_be_named_by_host() {
    let upstream = Upstream::answering(OK);
    let stream = format!(
        "- {{name: tcp, url: \"tcp://{}\", routes: [{{protocols: [tcp], sources: [{{ip: 127.0.0.1}}]}}]}}\n",
        upstream.address
    );
    let gateway = Gateway::builder(&document(&[service("/", upstream.address, "", ""), stream], ""))
        .set("proxy_listen", "localhost:0, localhost:0 ssl")
        .set("stream_listen", "localhost:0")
        .set("admin_listen", "localhost:0")
        .set("status_listen", "localhost:0")
        .start();
    assert_eq!(gateway.get("/").status, 200);
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(Peer::connect(gateway.stream(0)).send(get).response().status, 200);
    assert_eq!(gateway.status("/status").status, 200);
    let listeners = &configuration(&gateway)["proxy_listeners"];
    assert_eq!(listeners[0]["listener"], format!("127.0.0.1:{}", gateway.proxy().port()));
    let (_, said) = Gateway::builder(EMPTY).set("admin_listen", "weir.invalid:8001").fail();
    assert!(said.contains("admin_listen: `weir.invalid` has no address"), "{said}");
}

#[test]
fn the_node_has_the_id_that_is_set() {
    let id = "5a1fca30-0f9e-4a0e-8c3b-6cbd33a1b1c4";
    let gateway = Gateway::builder(EMPTY).env("KONG_NODE_ID", id).start();
    assert_eq!(gateway.admin("/").json()["node_id"], id);
    let metrics = gateway.status("/metrics");
    assert!(metrics.text().contains(&format!("kong_node_info{{node_id=\"{id}\"")), "{}", metrics.text());
    let (_, said) = Gateway::builder(EMPTY).env("KONG_NODE_ID", "one").fail();
    assert!(said.contains("node_id: `one` is not a UUID"), "{said}");
}

#[test]
fn upstreams_learn_the_public_port() {
    let upstream = Upstream::echoing();
    let port = unused_ports(1);
    let gateway = Gateway::builder(&one_route(upstream.address))
        .set("proxy_listen", &format!("127.0.0.1:{port}, 127.0.0.1:0"))
        .env("KONG_PORT_MAPS", &format!("80:{port}, 443:8443"))
        .start();
    let mapped = gateway.get("/");
    assert!(mapped.text().lines().any(|line| line == "X-Forwarded-Port: 80"), "{}", mapped.text());
    let forwarded = gateway.get_with("/", "X-Forwarded-For: 192.0.2.1\r\n");
    assert!(forwarded.text().lines().any(|line| line == "X-Forwarded-Port: 80"), "{}", forwarded.text());
    let shown = configuration(&gateway);
    assert_eq!(shown["port_maps"], json!([format!("80:{port}"), "443:8443"]));
    assert_eq!(shown["host_ports"], json!({ port.to_string(): 80, "8443": 443 }));
    let (_, said) = Gateway::builder(EMPTY).env("KONG_PORT_MAPS", "80").fail();
    assert!(said.contains("port_maps: `80` is not a pair of ports"), "{said}");
}

#[test]
fn destinations_of_stream_routes_match_the_public_port() {
    let upstream = Upstream::answering(OK);
    let port = unused_ports(1);
    let document = |destination: u16| {
        format!(
            "_format_version: \"3.0\"\nservices:\n- {{name: s, url: \"tcp://{}\", routes: [{{name: r, protocols: [tcp], \
             destinations: [{{port: {destination}}}]}}]}}\n",
            upstream.address
        )
    };
    let gateway = Gateway::builder(&document(5432))
        .set("stream_listen", &format!("127.0.0.1:{port}"))
        .set("port_maps", &format!("5432:{port}"))
        .start();
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(Peer::connect(gateway.stream(0)).send(get).response().status, 200);
    assert!(gateway.reload(&document(port)).status.success());
    assert!(Peer::connect(gateway.stream(0)).is_closed());
}

#[test]
fn the_admin_api_shows_every_setting_and_no_secret() {
    let gateway = Gateway::builder(EMPTY)
        .set("pg_password", "hunter2")
        .set("request_debug_token", "hunter2")
        .set("trusted_ips", "10.0.0.0/8, ::1")
        .env("KONG_NGINX_PROXY_CLIENT_MAX_BODY_SIZE", "8m")
        .start();
    let answer = gateway.admin("/");
    assert!(!answer.text().contains("hunter2"));
    let shown = configuration(&gateway);
    for (name, value) in [
        ("pg_password", json!("******")),
        ("pg_port", json!(5432)),
        ("pg_ssl", json!(false)),
        ("request_debug_token", json!("******")),
        ("admin_auth", Value::Null),
        ("trusted_ips", json!(["10.0.0.0/8", "::1"])),
        ("client_max_body_size", json!("8m")),
        ("headers", json!(["server_tokens", "latency_tokens", "X-Kong-Request-Id"])),
        ("log_level", json!("notice")),
        ("database", json!("off")),
    ] {
        assert_eq!(shown[name], value, "{name}");
    }
    let pages = include_str!("../../../docs/configuration.md").lines();
    for name in pages.filter_map(|line| line.strip_prefix("## ")) {
        assert!(shown.get(name).is_some(), "{name}");
    }
}

/// The addresses of the Admin API, of the status API, and of APISIX's Admin API.
fn own_addresses(gateway: &Gateway) -> [SocketAddr; 3] {
    [gateway.admin_addresses()[0], gateway.status_address(), gateway.apisix_admin()]
}

#[test]
fn the_nodes_own_listeners_take_the_proxy_protocol() {
    let gateway = Gateway::builder(EMPTY)
        .set("admin_listen", "127.0.0.1:0 proxy_protocol")
        .set("status_listen", "127.0.0.1:0 proxy_protocol")
        .set("apisix_admin", "on")
        .set("apisix_admin_key", "edd1c9f034335f136f87ad84b625c8f1")
        .set("apisix_proxy_listen", "127.0.0.1:0")
        .set("apisix_admin_listen", "127.0.0.1:0 proxy_protocol")
        .set("admin_access_log", "admin.log")
        .set("trusted_ips", "127.0.0.1")
        .set("real_ip_header", "proxy_protocol")
        .start();
    let request = "GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (address, status) in own_addresses(&gateway).into_iter().zip([200, 200, 404]) {
        let header = "PROXY TCP4 203.0.113.7 127.0.0.1 12345 80\r\n";
        let answer = Peer::connect(address).send(format!("{header}{request}")).response();
        assert!(answer.status == status || status == 404 && answer.status == 401, "{}", answer.status);
        assert!(Peer::connect(address).send(request).is_closed());
    }
    let log = std::fs::read_to_string(gateway.prefix().join("admin.log")).unwrap();
    assert!(log.starts_with("203.0.113.7 "), "{log}");
    assert!(gateway.log().contains("there is no PROXY protocol header"), "{}", gateway.log());
}

#[test]
fn plugins_read_longer_bodies_where_the_buffer_is_larger() {
    let upstream = Upstream::echoing();
    let plugin = "plugins:\n- {name: request-transformer, config: {add: {body: [\"added:yes\"]}}}\n";
    let body = format!("{{\"long\":\"{}\"}}", "x".repeat(2 << 20));
    for (size, is_changed) in [("8k", false), ("4m", true)] {
        let gateway = Gateway::builder(&(one_route(upstream.address) + plugin))
            .env("KONG_NGINX_HTTP_CLIENT_BODY_BUFFER_SIZE", size)
            .start();
        let head = format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let told = gateway.send(&(head + &body));
        assert_eq!(told.text().contains("\"added\":\"yes\""), is_changed, "{size}");
        assert!(!gateway.log().contains("without effect"), "{}", gateway.log());
    }
}
