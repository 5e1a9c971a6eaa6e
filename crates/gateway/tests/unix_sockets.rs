//! Unix sockets: clients and operators come by them, and upstreams are behind them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Gateway, NginxOnSocket, Peer, Upstream, curl, eventually, one_route};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

fn ask(socket: &Path, url: &str) -> String {
    curl(&["-s", "-k", "--unix-socket", &socket.display().to_string(), url])
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn every_listener_may_be_a_socket_that_comes_and_goes_with_the_node() {
    let upstream = Upstream::echoing();
    let folder = tempfile::tempdir().unwrap();
    let socket = |name: &str| folder.path().join(name);
    let listen = |name: &str, flags: &str| format!("unix:{}{flags}", socket(name).display());
    // Of a node that was killed.
    drop(UnixListener::bind(socket("proxy")).unwrap());
    let proxy = format!("{}, {}", listen("proxy", ""), listen("tls", " ssl mode=0600"));
    let mut gateway = Gateway::builder(&one_route(upstream.address))
        .set("proxy_listen", &proxy)
        .set("stream_listen", &listen("stream", " mode=0660"))
        .set("admin_listen", &format!("{}, {}", listen("admin", ""), listen("admin_tls", " ssl")))
        .set("apisix_admin", "on")
        .set("apisix_admin_listen", &listen("apisix", ""))
        .set("apisix_proxy_listen", "off")
        .set("status_listen", &listen("status", " mode=0666"))
        .start();
    let modes = ["proxy", "tls", "stream", "admin", "status"].map(|name| mode(&socket(name)));
    assert_eq!(modes, [0o666, 0o600, 0o660, 0o600, 0o666]);
    let said = ask(&socket("proxy"), "http://localhost/x");
    assert!(said.starts_with("GET /x HTTP/1.1\n") && said.contains("X-Forwarded-For: 127.0.0.1\n"), "{said}");
    assert!(said.contains("X-Forwarded-Port: 80\n"), "{said}");
    assert!(ask(&socket("tls"), "https://localhost/").contains("X-Forwarded-Port: 443\n"));
    assert!(ask(&socket("admin"), "http://localhost/").contains("Welcome to Weir"));
    assert!(ask(&socket("admin_tls"), "https://localhost/").contains("Welcome to Weir"));
    for name in ["tls", "admin_tls"] {
        let said = ask(&socket(name), "http://localhost/");
        assert!(said.contains("The plain HTTP request was sent to HTTPS port"), "{name}: {said}");
    }
    assert!(ask(&socket("apisix"), "http://localhost/apisix/admin/routes").contains("failed to check token"));
    assert!(ask(&socket("status"), "http://localhost/status").contains("connections_active"));
    gateway.signal(Signal::TERM);
    assert!(gateway.exit().success());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "sockets are left");
}

#[test]
fn what_is_in_use_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (used, file) = (folder.path().join("used"), folder.path().join("file"));
    let _listener = UnixListener::bind(&used).unwrap();
    fs::write(&file, "kept").unwrap();
    for (path, why) in [(&used, "is in use"), (&file, "a file that is no socket is there")] {
        let listen = format!("unix:{}", path.display());
        let (status, said) = Gateway::builder("_format_version: \"3.0\"").set("proxy_listen", &listen).fail();
        assert!(!status.success() && said.contains(why), "{said}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
}

#[test]
fn clients_of_a_socket_are_believed_where_the_settings_say_so() {
    let upstream = Upstream::echoing();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proxy");
    for (trusted, client) in [("unix:", "203.0.113.7"), ("127.0.0.1", "127.0.0.1")] {
        let gateway = Gateway::builder(&one_route(upstream.address))
            .set("proxy_listen", &format!("unix:{} proxy_protocol", path.display()))
            .set("real_ip_header", "proxy_protocol")
            .set("trusted_ips", trusted)
            .start();
        let mut stream = UnixStream::connect(&path).unwrap();
        let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        write!(stream, "PROXY TCP4 203.0.113.7 10.0.0.1 1 2\r\n{request}").unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert!(said.contains(&format!("X-Forwarded-For: {client}\n")), "{said}");
        drop(gateway);
        // It was killed, so its socket is still there, and replaced.
        eventually("the socket is left", || path.exists());
    }
}

#[test]
fn services_and_targets_may_be_sockets() {
    let nginx = NginxOnSocket::start("return 200 \"nginx for $host $request_uri\";");
    let path = nginx.path.display();
    let gateway = Gateway::start(&format!(
        "_format_version: \"3.0\"
services:
- name: direct
  host: unix:{path}
  path: /base
  routes: [{{ name: direct, paths: [/direct] }}]
- name: balanced
  host: sockets
  routes: [{{ name: balanced, paths: [/balanced], preserve_host: true }}]
upstreams:
- name: sockets
  targets: [{{ target: \"unix:{path}\" }}]
  healthchecks: {{ passive: {{ unhealthy: {{ tcp_failures: 1 }} }}, threshold: 50 }}
"
    ));
    for _ in 0..3 {
        assert_eq!(gateway.get("/direct/a").text(), "nginx for localhost /base/a");
        assert_eq!(gateway.get("/balanced/b").text(), "nginx for localhost /b");
    }
    let health = gateway.admin("/upstreams/sockets/health").json();
    assert_eq!(health["data"][0]["health"], "HEALTHCHECKS_OFF", "{health}");
    let named = gateway.send("GET /balanced HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(named.text(), "nginx for a.test /");
}

#[test]
fn a_socket_that_is_not_there_is_an_upstream_that_cannot_be_reached() {
    let gateway = Gateway::start(
        "_format_version: \"3.0\"
services:
- name: gone
  host: unix:/nowhere/at/all
  retries: 0
  routes: [{ name: gone, paths: [/] }]
",
    );
    assert_eq!(gateway.get("/").status, 502);
    assert!(gateway.log().contains("connecting to the upstream failed"));
    let mut peer = Peer::connect(gateway.proxy());
    assert_eq!(peer.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response().status, 502);
}
