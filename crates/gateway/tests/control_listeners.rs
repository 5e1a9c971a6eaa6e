//! The listeners of the node's own APIs: slow clients, many clients, and clients that speak plainly where TLS is spoken.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod harness;

use harness::{Builder, Gateway, Identity, Peer, Upstream, eventually, one_route};
use std::fs;
use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::process::Command;

const EMPTY: &str = "_format_version: \"3.0\"\n";
const KEY: &str = "edd1c9f034335f136f87ad84b625c8f1";

fn with_apisix(configuration: &str) -> Builder {
    Gateway::builder(configuration)
        .set("apisix_admin", "on")
        .set("apisix_admin_key", KEY)
        .set("apisix_proxy_listen", "127.0.0.1:0")
        .set("apisix_admin_listen", "127.0.0.1:0")
}

/// Kong's Admin API, the status listener, and APISIX's Admin API.
fn control_addresses(gateway: &Gateway) -> [SocketAddr; 3] {
    [gateway.admin_addresses()[0], gateway.status_address(), gateway.apisix_admin()]
}

/// Everything that comes until the other side closes.
fn rest(peer: &mut Peer) -> String {
    let mut bytes = Vec::new();
    peer.reader().read_to_end(&mut bytes).expect("the other side closes");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn whoever_does_not_send_a_head_in_time_is_closed() {
    let gateway = with_apisix(EMPTY).set("client_header_timeout", "300ms").start();
    for address in control_addresses(&gateway) {
        for sent in ["", "GET / HTTP/1.1\r\nHost: loc"] {
            assert_eq!(rest(Peer::connect(address).send(sent)), "", "{sent}");
        }
        // Also between two requests.
        let mut idle = Peer::connect(address);
        idle.send("GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n").response();
        assert_eq!(rest(&mut idle), "");
    }
}

#[test]
fn idle_connections_end_with_the_time_they_have() {
    let gateway = Gateway::builder(EMPTY).set("keepalive_timeout", "300ms").start();
    let mut idle = Peer::connect(gateway.admin_addresses()[0]);
    let answer = idle.send("GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n").response();
    assert_eq!(answer.status, 200);
    assert_eq!(rest(&mut idle), "");
    let gateway = Gateway::builder(EMPTY).set("keepalive_timeout", "0").start();
    let mut peer = Peer::connect(gateway.admin_addresses()[0]);
    let answer = peer.send("GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n").response();
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
}

#[test]
fn bodies_that_drip_are_refused() {
    let gateway = with_apisix(EMPTY).set("client_body_timeout", "500ms").start();
    let [admin, _, apisix] = control_addresses(&gateway);
    for (address, start) in [
        (admin, "POST /services".to_owned()),
        (admin, "POST /config".to_owned()),
        (apisix, format!("PUT /apisix/admin/routes/1?api_key={KEY}")),
    ] {
        let head = "Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000";
        let mut peer = Peer::connect(address);
        peer.send(format!("{start} HTTP/1.1\r\n{head}\r\n\r\n{{"));
        let mut socket = peer.socket().try_clone().unwrap();
        let dripping = std::thread::spawn(move || {
            use std::io::Write;
            while socket.write_all(b" ").is_ok() {
                std::thread::park_timeout(std::time::Duration::from_millis(20));
            }
        });
        let answer = peer.response();
        assert_eq!(answer.status, 408, "{start}: {}", answer.text());
        drop(peer);
        dripping.join().expect("the gateway closes");
    }
}

#[test]
fn heads_that_are_too_long_are_refused() {
    let gateway = Gateway::start(EMPTY);
    let long = "a".repeat(500 << 10);
    let mut peer = Peer::connect(gateway.admin_addresses()[0]);
    peer.send(format!("GET /status HTTP/1.1\r\nHost: localhost\r\nX-Long: {long}\r\n\r\n"));
    let mut answer = Vec::new();
    // The connection may be reset, as not all that was sent is read.
    let _ = peer.reader().read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(gateway.admin("/status").status, 200);
}

#[test]
fn whoever_takes_no_answer_is_closed() {
    let gateway = Gateway::builder(EMPTY).set("send_timeout", "300ms").start();
    let mut peer = Peer::connect(gateway.admin_addresses()[0]);
    let request = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(peer.send(request).response().status, 200);
    let open = || fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap().count();
    let with_connection = open();
    // Far more than the sockets hold: while nobody reads, the gateway can neither send nor take more requests.
    peer.send(request.repeat(1000));
    eventually("the connection is closed", || open() < with_connection);
}

#[test]
fn a_crowd_takes_so_many_descriptors_and_no_more() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    let gateway =
        with_apisix(&one_route(upstream.address)).open_files(1024).set("client_header_timeout", "1s").start();
    let open = || fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap().count();
    let before = open();
    for address in control_addresses(&gateway) {
        let crowd: Vec<_> = (0..100).map(|_| Peer::connect(address)).collect();
        eventually("it is full", || gateway.log().contains("further ones wait until one ends"));
        assert!(open() <= before + 3 * 32, "{} files, {before} before", open());
        assert_eq!(gateway.get("/").status, 200, "traffic is served all the while");
        // Those in front of it end, as they say nothing.
        let mut late = Peer::connect(address);
        assert!(late.send("GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n").response().status > 0);
        drop(crowd);
    }
}

#[test]
fn whoever_sends_no_whole_head_makes_way() {
    let gateway = with_apisix(EMPTY).open_files(1024).start();
    let rest_of_request = "ET /status HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for address in control_addresses(&gateway) {
        let mut crowd: Vec<_> = (0..32).map(|_| Peer::connect(address)).collect();
        for peer in &mut crowd {
            peer.send("G");
        }
        let mut late = Peer::connect(address);
        assert!(late.send(format!("G{rest_of_request}")).response().status > 0);
        // That took nobody's time: the newest may still ask, and is not kept, as there is little room.
        let answer = crowd[31].send(rest_of_request).response();
        assert_eq!((answer.status > 0, answer.header("connection")), (true, Some("close")));
        // Reset where what it sent was not read.
        let end = crowd[0].reader().read(&mut [0]).map_err(|error| error.kind());
        assert!(matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)), "{end:?}");
    }
}

#[test]
fn plain_http_where_tls_is_spoken_is_answered_in_clear() {
    let identity = Identity::new("localhost");
    let gateway = with_apisix(EMPTY)
        .set("admin_listen", "127.0.0.1:0 ssl")
        .set("status_listen", "127.0.0.1:0 ssl")
        .set("apisix_admin_listen", "127.0.0.1:0 ssl")
        .set("client_header_timeout", "300ms")
        .set("ssl_cert", &identity.cert().display().to_string())
        .set("ssl_cert_key", &identity.key().display().to_string())
        .start();
    for address in control_addresses(&gateway) {
        let answer =
            Peer::connect(address).send("GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n").response();
        assert_eq!(answer.status, 400);
        assert_eq!(answer.json()["message"], "The plain HTTP request was sent to HTTPS port");
        // A handshake that does not end.
        assert_eq!(rest(Peer::connect(address).send([22, 3, 1])), "");
        let curl = Command::new("curl")
            .args(["--silent", "--noproxy", "*", "--write-out", "%{http_code}", "--output", "/dev/null"])
            .arg("--cacert")
            .arg(identity.cert())
            .arg(format!("https://{address}/status"))
            .output()
            .expect("curl runs");
        assert_ne!(String::from_utf8(curl.stdout).unwrap(), "000", "{address}: TLS is spoken");
    }
}
