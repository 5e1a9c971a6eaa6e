//! The listeners of the node's own APIs: slow clients, many clients, and clients that speak plainly where TLS is spoken.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Builder, Gateway, Identity, Peer, Upstream, curl, eventually, handshake, one_route};
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
        // Also that of a later request.
        let mut slow = Peer::connect(address);
        slow.send("GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n").response();
        assert_eq!(rest(slow.send("GET /status HT")), "");
    }
}

#[test]
fn idle_connections_end_with_the_time_they_have() {
    let gateway = Gateway::builder(EMPTY).set("nginx_admin_keepalive_timeout", "300ms").start();
    let mut patient = Peer::connect(gateway.status_address());
    for (start, status) in [
        ("GET /status", 200),
        ("HEAD /status", 200),
        ("OPTIONS /services", 204),
        ("GET /openapi.json", 200),
        ("GET /metrics", 200),
        ("GET /none", 404),
    ] {
        assert_eq!(patient.send("GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n").response().status, 200);
        let mut idle = Peer::connect(gateway.admin_addresses()[0]);
        let method = start.split(' ').next().unwrap();
        let answer = idle.send(format!("{start} HTTP/1.1\r\nHost: localhost\r\n\r\n")).response_to(method);
        assert_eq!((answer.status, answer.header("connection")), (status, None), "{start}");
        assert_eq!(rest(&mut idle), "", "{start}");
    }
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
    let answer = rest(&mut peer);
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert_eq!(gateway.admin("/status").status, 200);
}

/// A request with a body of zeros.
fn with_body(start: &str, length: usize, is_chunked: bool) -> Vec<u8> {
    let framing =
        if is_chunked { "Transfer-Encoding: chunked".into() } else { format!("Content-Length: {length}") };
    let head =
        format!("{start} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{framing}\r\n\r\n");
    let mut request = head.into_bytes();
    if is_chunked {
        request.extend_from_slice(format!("{length:x}\r\n").as_bytes());
    }
    request.resize(request.len() + length, b'0');
    if is_chunked {
        request.extend_from_slice(b"\r\n0\r\n\r\n");
    }
    request
}

#[test]
fn a_connection_goes_on_after_a_body_that_nothing_reads() {
    let made = Command::new(env!("CARGO_BIN_EXE_weir")).args(["admin", "token"]).output().unwrap();
    let made = String::from_utf8(made.stdout).unwrap();
    let hash = made.lines().find_map(|line| line.strip_prefix("admin_auth:")).unwrap().trim();
    let gateway = with_apisix(EMPTY).set("admin_auth", hash).start();
    let [admin, status, apisix] = control_addresses(&gateway);
    let guarded = Peer::connect(admin).send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").response();
    assert_eq!(guarded.status, 401);
    let cases = [
        (admin, "GET /", 401),
        (admin, "POST /services", 401),
        (status, "GET /status", 200),
        (status, "POST /status", 405),
        (status, "DELETE /none", 404),
        (apisix, "GET /apisix/admin/routes", 401),
        (apisix, "POST /none", 401),
    ];
    let open = Gateway::start(EMPTY);
    let admin = open.admin_addresses()[0];
    let cases_of_admin = [
        (admin, "GET /status", 200),
        (admin, "HEAD /services", 200),
        (admin, "GET /services/none", 404),
        (admin, "POST /none", 404),
        (admin, "POST /status", 405),
        (admin, "PATCH /services", 405),
        (admin, "DELETE /services/none", 405),
        (admin, "OPTIONS /services", 204),
    ];
    for (address, start, status) in cases.into_iter().chain(cases_of_admin) {
        let mut peer = Peer::connect(address);
        let method = start.split(' ').next().unwrap();
        for (length, is_chunked) in [(2, false), (2, true), (1 << 20, false), (1 << 20, true)] {
            let answer = peer.send(with_body(start, length, is_chunked)).response_to(method);
            assert_eq!(
                (answer.status, answer.header("connection")),
                (status, None),
                "{start}: {}",
                answer.text()
            );
        }
        let request = "GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n";
        assert!(peer.send(request).response().status > 0, "{start}");
    }
}

#[test]
fn a_body_that_is_expected_is_asked_for_and_thrown_away() {
    let gateway = Gateway::start(EMPTY);
    let mut peer = Peer::connect(gateway.admin_addresses()[0]);
    for _ in 0..2 {
        let head =
            "POST /none HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(peer.send(head).response().status, 100);
        assert_eq!(peer.send("12345").response().status, 404);
    }
    let head =
        "POST /none HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 99000000\r\n\r\n";
    let answer = peer.send(head).response();
    assert_eq!((answer.status, answer.header("connection")), (404, Some("close")));
}

#[test]
fn a_body_that_is_too_long_to_be_thrown_away_destroys_no_answer() {
    let (gateway, writable) = (with_apisix(EMPTY).start(), Gateway::empty().start());
    let [admin, status, apisix] = control_addresses(&gateway);
    for (address, start, expected) in [
        (admin, "POST /none", 404),
        (admin, "GET /status", 200),
        (writable.admin_addresses()[0], "POST /services", 413),
        (status, "POST /status", 405),
        (apisix, "POST /none", 413),
    ] {
        for is_chunked in [false, true] {
            let mut peer = Peer::connect(address);
            // Most clients read no answer before they have sent the whole body.
            let request = with_body(start, 32 << 20, is_chunked);
            peer.try_send(&request).unwrap_or_else(|error| panic!("{start}: {error}"));
            let answer = peer.response();
            assert_eq!((answer.status, answer.header("connection")), (expected, Some("close")), "{start}");
            assert_eq!(rest(&mut peer), "");
        }
    }
}

#[test]
fn a_body_that_does_not_come_is_not_awaited_for_long() {
    let gateway = Gateway::builder(EMPTY).set("client_body_timeout", "300ms").start();
    let mut peer = Peer::connect(gateway.admin_addresses()[0]);
    let head = "GET /status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n";
    let answer = peer.send(head).response();
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert_eq!(rest(&mut peer), "");
}

#[test]
fn idle_connections_make_way() {
    let gateway = with_apisix(EMPTY).open_files(1024).start();
    let request = "GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for address in control_addresses(&gateway) {
        // Half of the room is kept by those that are idle, and the other by those that say nothing.
        let mut idle: Vec<_> = (0..16).map(|_| Peer::connect(address)).collect();
        idle.iter_mut().for_each(|peer| assert!(peer.send(request).response().status > 0));
        let silent: Vec<_> = (0..16).map(|_| Peer::connect(address)).collect();
        for _ in 0..32 {
            assert!(Peer::connect(address).send(request).response().status > 0);
        }
        drop(silent);
        assert!(idle.iter_mut().any(Peer::is_closed));
    }
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

#[test]
fn each_api_has_its_own_certificate_and_http2_where_it_is_asked_for() {
    let [admin, status] = ["admin.test", "status.test"].map(Identity::new);
    let gateway = Gateway::builder(EMPTY)
        .set("admin_listen", "127.0.0.1:0, 127.0.0.1:0 ssl")
        .set("status_listen", "127.0.0.1:0 http2 ssl, 127.0.0.1:0 http2")
        .set("admin_ssl_cert", &admin.cert().display().to_string())
        .set("admin_ssl_cert_key", &admin.key().display().to_string())
        .set("status_ssl_cert", &status.cert().display().to_string())
        .set("status_ssl_cert_key", &status.key().display().to_string())
        .start();
    let (admin, status) = (gateway.admin_addresses()[1], gateway.status_address());
    assert!(handshake(admin, &[]).contains("subject=CN=admin.test"));
    assert!(handshake(status, &[]).contains("subject=CN=status.test"));
    for (arguments, address, version) in
        [(&["--http2"][..], status, "2"), (&["--http1.1"], status, "1.1"), (&["--http2"], admin, "1.1")]
    {
        let url = format!("https://{address}/status");
        let more = ["-sk", "-w", "%{http_code} %{http_version}", "-o", "/dev/null", &url];
        assert_eq!(curl(&[arguments, &more].concat()), format!("200 {version}"), "{arguments:?} {address}");
    }
    // A response that is longer than a window, and requests one after the other.
    let url = format!("https://{status}/metrics");
    let twice = curl(&[
        "-sk",
        "--http2",
        "-w",
        "%{http_code} %{num_connects}\n",
        "-o",
        "/dev/null",
        "-o",
        "/dev/null",
        &url,
        &url,
    ]);
    assert_eq!(twice, "200 1\n200 0\n");
    assert!(gateway.log().contains("`http2` has no effect without `ssl`"), "{}", gateway.log());
    let (_, said) = Gateway::builder(EMPTY).set("admin_ssl_cert", "/no/cert.pem").fail();
    assert!(said.contains("admin_ssl_cert: give `admin_ssl_cert_key` with it"), "{said}");
}
