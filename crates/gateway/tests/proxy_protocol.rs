//! The PROXY protocol: who the client is said to be, by clients and proxies that are not ours.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Builder, Gateway, Haproxy, Peer, Upstream, curl, one_route};
use std::net::SocketAddr;

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn gateway(upstream: &Upstream) -> Builder {
    Gateway::builder(&one_route(upstream.address))
        .set("proxy_listen", "127.0.0.1:0 proxy_protocol, 127.0.0.1:0 ssl proxy_protocol")
        .set("trusted_ips", "127.0.0.1")
        .set("real_ip_header", "proxy_protocol")
}

fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[command, family], &length, body].concat()
}

/// What the upstream was told of the client, after these first bytes.
#[track_caller]
fn told(gateway: &Gateway, header: &[u8]) -> String {
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let response = gateway.connect().send([header, request].concat()).response();
    let text = response.text().to_owned();
    text.lines().find(|line| line.starts_with("X-Forwarded-For")).expect("a client is named").to_owned()
}

#[test]
fn the_header_names_the_client() {
    let upstream = Upstream::echoing();
    let gateway = gateway(&upstream).set("proxy_access_log", "access.log").start();
    let tlv = [0xee, 0, 2, 1, 2];
    let four = [203, 0, 113, 7, 127, 0, 0, 1, 0x30, 0x39, 0, 80];
    let six = [&[0x20, 0x01, 0x0d, 0xb8], &[0; 11][..], &[9], &[0; 16], &[1, 2, 3, 4]].concat();
    for (header, client) in [
        (b"PROXY TCP4 203.0.113.7 127.0.0.1 12345 80\r\n".to_vec(), "203.0.113.7"),
        (b"PROXY TCP6 2001:db8::9 ::1 12345 80\r\n".to_vec(), "2001:db8::9"),
        (v2(0x21, 0x11, &four), "203.0.113.7"),
        (v2(0x21, 0x11, &[&four[..], &tlv].concat()), "203.0.113.7"),
        (v2(0x21, 0x21, &six), "2001:db8::9"),
        // The proxy itself, and clients without an address: the connection's own.
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
        (v2(0x20, 0x00, &[]), "127.0.0.1"),
        (v2(0x20, 0x11, &four), "127.0.0.1"),
        (v2(0x21, 0x00, &tlv), "127.0.0.1"),
        (v2(0x21, 0x31, &[b'/'; 216]), "127.0.0.1"),
    ] {
        assert_eq!(
            told(&gateway, &header),
            format!("X-Forwarded-For: {client}"),
            "{}",
            header.escape_ascii()
        );
    }
}

#[test]
fn the_header_may_come_byte_by_byte() {
    let upstream = Upstream::echoing();
    let gateway = gateway(&upstream).start();
    let mut peer = gateway.connect();
    for byte in b"PROXY TCP4 203.0.113.7 127.0.0.1 12345 80\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n" {
        peer.send([*byte]);
    }
    assert!(peer.response().text().contains("X-Forwarded-For: 203.0.113.7\n"));
}

#[test]
fn only_trusted_peers_are_believed_and_only_where_the_setting_asks_for_it() {
    let upstream = Upstream::echoing();
    for (name, value) in [("trusted_ips", "10.0.0.1"), ("real_ip_header", "X-Real-IP")] {
        let gateway = gateway(&upstream).set(name, value).start();
        let header = b"PROXY TCP4 203.0.113.7 127.0.0.1 12345 80\r\n";
        assert_eq!(told(&gateway, header), "X-Forwarded-For: 127.0.0.1", "{name}={value}");
    }
}

#[test]
fn a_connection_without_a_good_header_is_closed_with_one_line_and_others_go_on() {
    let upstream = Upstream::echoing();
    let gateway = gateway(&upstream).start();
    let mut other = gateway.connect();
    other.send("PROXY UNKNOWN\r\n");
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let over_tls = Peer::connect(gateway.proxy_ssl());
    for (mut peer, bytes) in [
        (gateway.connect(), request.as_bytes().to_vec()),
        (over_tls, b"\x16\x03\x01\x00\xa5".to_vec()),
        (gateway.connect(), v2(0x31, 0x11, &[0; 12])),
        (gateway.connect(), b"PROXY TCP4 1.2.3.4\r\n".to_vec()),
        (gateway.connect(), [b"PROXY TCP4 ".to_vec(), vec![b'1'; 4096]].concat()),
    ] {
        assert!(peer.send(&bytes).is_closed(), "{}", bytes.escape_ascii());
    }
    assert!(gateway.connect().send("PROXY TC").finish_sending().is_closed());
    assert_eq!(other.send(request).response().status, 200);
    let log = gateway.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("PROXY protocol")).collect();
    // No more than one a second, whoever causes them.
    assert!((1..=6).contains(&lines.len()), "{lines:?}");
    assert!(lines[0].contains("there is no PROXY protocol header"), "{lines:?}");
}

#[test]
fn a_header_that_does_not_come_is_waited_for_no_longer_than_a_request() {
    let upstream = Upstream::echoing();
    let gateway = gateway(&upstream).set("client_header_timeout", "300ms").start();
    assert!(gateway.connect().send("PROXY TCP4").is_closed());
    assert!(gateway.log().contains("no PROXY protocol header came in time"));
    assert_eq!(gateway.acted("handshake_time"), 1);
}

#[test]
fn curl_and_haproxy_speak_it() {
    let upstream = Upstream::echoing();
    let gateway = gateway(&upstream).start();
    let ask = |arguments: &[&str], scheme: &str, address: SocketAddr| {
        curl(&[&["-k", "-s"], arguments, &[&format!("{scheme}://{address}/")]].concat())
    };
    for (scheme, address) in [("http", gateway.proxy()), ("https", gateway.proxy_ssl())] {
        let said = ask(&["--haproxy-protocol"], scheme, address);
        assert!(said.contains("X-Forwarded-For: 127.0.0.1\n"), "{scheme}: {said}");
    }
    for version in ["send-proxy", "send-proxy-v2", "send-proxy-v2-ssl"] {
        let haproxy = Haproxy::start(&format!("mode tcp\n  server s {} {version}", gateway.proxy()));
        let said = ask(&["--interface", "127.0.0.9"], "http", haproxy.address);
        assert!(said.contains("X-Forwarded-For: 127.0.0.9\n"), "{version}: {said}");
    }
}

#[test]
fn behind_the_header_a_client_may_speak_http2() {
    let upstream = Upstream::echoing();
    let gateway = gateway(&upstream)
        .set("proxy_listen", "127.0.0.1:0 proxy_protocol http2, 127.0.0.1:0 ssl proxy_protocol http2")
        .start();
    for (scheme, address, how) in [
        ("http", gateway.proxy(), "--http2-prior-knowledge"),
        ("https", gateway.proxy_ssl(), "--http2"),
        ("https", gateway.proxy_ssl(), "--http1.1"),
    ] {
        let haproxy = Haproxy::start(&format!("mode tcp\n  server s {address} send-proxy-v2"));
        let url = format!("{scheme}://{}/", haproxy.address);
        let said = curl(&["-k", "-s", "-w", "\n%{http_version}", how, "--interface", "127.0.0.9", &url]);
        assert!(said.contains("X-Forwarded-For: 127.0.0.9\n"), "{scheme} {how}: {said}");
        let version = if how == "--http1.1" { "\n1.1" } else { "\n2" };
        assert!(said.ends_with(version), "{scheme} {how}: {said}");
    }
}

#[test]
fn a_proxy_on_this_machine_opens_no_admin_api_to_those_it_speaks_for() {
    let key = "edd1c9f034335f136f87ad84b625c8f1";
    let start = |flags: &str| {
        Gateway::empty()
            .set("apisix_admin", "on")
            .set("apisix_admin_key", key)
            .set("apisix_admin_listen", "127.0.0.1:0")
            .set("apisix_proxy_listen", &format!("127.0.0.1:0{flags}"))
            .start()
    };
    let request = format!("GET /apisix/admin/routes HTTP/1.1\r\nHost: localhost\r\nX-API-KEY: {key}\r\n\r\n");
    let status = |gateway: &Gateway, header: &str| {
        Peer::connect(gateway.apisix_proxy()).send(format!("{header}{request}")).response().status
    };
    assert_eq!(status(&start(""), ""), 200);
    let gateway = start(" proxy_protocol");
    for header in ["PROXY TCP4 203.0.113.7 127.0.0.1 1 2\r\n", "PROXY UNKNOWN\r\n"] {
        assert_eq!(status(&gateway, header), 404, "{header}");
    }
}
