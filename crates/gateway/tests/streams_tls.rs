//! TLS of streams: ended here, begun here, or passed through by the name in the client's hello.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Builder, Gateway, Identity, Peer, TlsUpstream, Upstream, eventually, handshake};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread;

/// What the other side says until it closes, by OpenSSL's client.
#[track_caller]
pub(crate) fn said_over_tls(address: SocketAddr, name: &str, arguments: &[&str]) -> String {
    let mut child = Command::new("openssl")
        .args(["s_client", "-quiet", "-connect", &address.to_string(), "-servername", name])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl runs");
    let mut input = child.stdin.take().unwrap();
    let _ = input.write_all(b"GET / HTTP/1.0\r\n\r\n");
    let output = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn gateway(configuration: &str, listen: &str) -> Builder {
    Gateway::builder(configuration).set("stream_listen", listen).set("proxy_stream_access_log", "/dev/stderr")
}

/// Answers the first bytes with its name, and closes.
fn named(name: &'static str) -> Upstream {
    Upstream::start(move |mut peer, _| {
        let _ = peer.head();
        peer.send(name);
    })
}

fn service(name: &str, protocol: &str, address: SocketAddr, route: &str) -> String {
    let (ip, port) = (address.ip(), address.port());
    format!(
        "- name: {name}\n  host: {ip}\n  port: {port}\n  protocol: {protocol}\n  routes: [{{ name: {name}, {route} }}]\n"
    )
}

#[test]
fn names_choose_where_tls_ends_and_where_it_passes_through() {
    let (plain, other) = (named("plain upstream"), named("the other"));
    let identity = Identity::new("secret.test");
    let own = Identity::new("a.test");
    let secret = TlsUpstream::start(&identity, &[]);
    let terminated = service("a", "tcp", plain.address, "protocols: [tls], snis: [a.test]");
    let rest = service("rest", "tcp", other.address, "protocols: [tls], sources: [{ ip: 127.0.0.0/8 }]");
    let passed = service("b", "tcp", secret.address, "protocols: [tls_passthrough], snis: ['*.secret.test']");
    let certificates = format!(
        "certificates:\n- cert: {}\n  key: {}\n  snis: [{{ name: a.test }}]\n",
        own.cert_yaml(),
        own.key_yaml()
    );
    let start = |services: &[&str]| {
        let text = format!("_format_version: \"3.0\"\nservices:\n{}{certificates}", services.concat());
        gateway(&text, "127.0.0.1:0 ssl").start()
    };
    for gateway in [start(&[&terminated, &rest]), start(&[&terminated, &rest, &passed])] {
        let address = gateway.stream(0);
        assert_eq!(said_over_tls(address, "a.test", &[]), "plain upstream");
        assert_eq!(said_over_tls(address, "A.TEST", &["-tls1_2"]), "plain upstream");
        assert_eq!(said_over_tls(address, "x.test", &["-alpn", "h2,postgresql"]), "the other");
        assert!(handshake(address, &["-servername", "a.test"]).contains("subject=CN=a.test"));
    }
    let gateway = start(&[&terminated, &rest, &passed]);
    let address = gateway.stream(0);
    let seen = handshake(address, &["-servername", "x.secret.test"]);
    assert!(seen.contains("subject=CN=secret.test"), "{seen}");
    assert!(said_over_tls(address, "y.secret.test", &[]).contains("s_server"));
    // Who does not speak TLS is told so, by an alert.
    eventually("it is logged, if nothing else was within the last second", || {
        let alert = Peer::connect(address).send("GET / HTTP/1.1\r\n\r\n").rest();
        assert_eq!((alert[0], alert.len()), (21, 7), "{alert:?}");
        gateway.log().contains("the client does not speak TLS")
    });
    let mut slow = Peer::connect(address);
    assert!(slow.send(b"\x16\x03\x01\x02\x00\x01").finish_sending().is_closed());
}

/// Passes on what clients send byte by byte.
fn byte_by_byte(to: SocketAddr) -> Upstream {
    Upstream::start(move |mut peer, _| {
        let mut gateway = TcpStream::connect(to).unwrap();
        gateway.set_nodelay(true).unwrap();
        let (mut answers, mut client) = (gateway.try_clone().unwrap(), peer.socket().try_clone().unwrap());
        thread::spawn(move || {
            let _ = std::io::copy(&mut answers, &mut client);
            let _ = client.shutdown(Shutdown::Write);
        });
        let mut byte = [0];
        while matches!(peer.reader().read(&mut byte), Ok(1)) {
            let _ = gateway.write_all(&byte);
        }
    })
}

#[test]
fn a_hello_may_come_byte_by_byte() {
    let plain = named("plain upstream");
    let secret = TlsUpstream::start(&Identity::new("secret.test"), &[]);
    let text = format!(
        "_format_version: \"3.0\"\nservices:\n{}{}",
        service("a", "tcp", plain.address, "protocols: [tls], snis: [a.test]"),
        service("b", "tcp", secret.address, "protocols: [tls_passthrough], snis: [secret.test]"),
    );
    let gateway = gateway(&text, "127.0.0.1:0 ssl").start();
    let slowly = byte_by_byte(gateway.stream(0));
    assert_eq!(said_over_tls(slowly.address, "a.test", &[]), "plain upstream");
    assert!(handshake(slowly.address, &["-servername", "secret.test"]).contains("subject=CN=secret.test"));
}

#[test]
fn a_name_that_no_route_has_is_refused() {
    let upstream = named("a");
    let text = service("a", "tcp", upstream.address, "protocols: [tls], snis: [a.test]");
    let gateway = gateway(&format!("_format_version: \"3.0\"\nservices:\n{text}"), "127.0.0.1:0 ssl").start();
    assert_eq!(said_over_tls(gateway.stream(0), "b.test", &[]), "");
    assert_eq!(said_over_tls(gateway.stream(0), "a.test", &[]), "a");
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn a_service_of_tls_is_reached_over_tls_and_verified() {
    let identity = Identity::new("upstream.test");
    let upstream = TlsUpstream::start(&identity, &[]);
    let trusted = format!("ca_certificates:\n- id: {ID}\n  cert: {}\n", identity.cert_yaml());
    let verified = |authority: &str| {
        let text = service("s", "tls", upstream.address, "protocols: [tcp], sources: [{ ip: 127.0.0.1 }]");
        format!("_format_version: \"3.0\"\nservices:\n{text}  tls_verify: true\n{authority}")
    };
    let with_authority =
        verified(&trusted).replace("  tls_verify", &format!("  ca_certificates: [{ID}]\n  tls_verify"));
    let gateway = gateway(&with_authority, "127.0.0.1:0").start();
    let ask = || {
        let mut peer = Peer::connect(gateway.stream(0));
        String::from_utf8_lossy(&peer.send("GET / HTTP/1.0\r\n\r\n").rest()).into_owned()
    };
    assert!(ask().contains("s_server"), "over TLS, the page of openssl");
    gateway.reload(&verified(""));
    assert_eq!(ask(), "");
    assert!(gateway.log().contains("connecting to the upstream failed"));
}

const ID: &str = "5a0ab05e-6a4a-4d35-b9b4-5bd9a1b4b3a1";
