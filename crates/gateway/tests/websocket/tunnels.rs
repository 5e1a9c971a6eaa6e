//! Tunnels at the level of bytes.
use super::{ask, echo, request};
use crate::harness::{Gateway, Identity, PATIENCE, Upstream, document, service};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lines\r\n";
const LINES: &str = "headers: {upgrade: [lines]}";

#[test]
fn each_direction_ends_on_its_own() {
    let upstream = Upstream::start(|mut peer, number| {
        peer.request();
        peer.send(format!("{SWITCH}Content-Length: 3\r\n\r\nfirst "));
        if number == 0 {
            let heard = peer.rest();
            peer.send([b"heard ", &heard[..]].concat());
        } else {
            peer.finish_sending();
            peer.rest();
        }
    });
    let gateway = Gateway::start(&document(&[service("/a", upstream.address, "", LINES)], ""));
    let (mut peer, head) = ask(&gateway, "/a", "lines");
    assert_eq!(head.start, "HTTP/1.1 101 Switching Protocols");
    assert_eq!((head.field("connection"), head.field("upgrade")), (Some("Upgrade"), Some("lines")));
    assert_eq!(head.field("content-length"), None);
    peer.send("GET / HTTP/1.1\r\n\r\n").finish_sending();
    assert_eq!(peer.rest(), b"first heard GET / HTTP/1.1\r\n\r\n");
    let (mut peer, _) = ask(&gateway, "/a", "lines");
    assert_eq!(peer.rest(), b"first ");
    assert!(peer.try_send(b"still").is_ok());
}

#[test]
fn nothing_goes_up_before_the_upstream_agrees() {
    let (early, was_early) = std::sync::mpsc::channel();
    let upstream = Upstream::start(move |mut peer, _| {
        peer.request();
        peer.socket().set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
        early.send(peer.reader().read(&mut [0; 16]).is_ok()).unwrap();
        peer.send(format!("{SWITCH}\r\n"));
        let mut bytes = [0; 4];
        peer.reader().read_exact(&mut bytes).unwrap();
        peer.send(bytes);
    });
    let gateway = Gateway::start(&document(&[service("/a", upstream.address, "", LINES)], ""));
    let mut peer = gateway.connect();
    peer.send("GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\nsoon");
    assert_eq!(peer.head().unwrap().start, "HTTP/1.1 101 Switching Protocols");
    assert!(!was_early.recv().unwrap());
    assert_eq!(peer.rest(), b"soon");
}

#[test]
fn a_tunnel_in_which_nothing_moves_is_closed_after_read_timeout() {
    let upstream = Upstream::start(|mut peer, _| {
        peer.request();
        peer.send(format!("{SWITCH}\r\n"));
        peer.rest();
    });
    let services = [service("/a", upstream.address, "read_timeout: 300", LINES)];
    let gateway = Gateway::start(&document(&services, ""));
    let (mut peer, _) = ask(&gateway, "/a", "lines");
    assert!(peer.is_closed());
    assert!(!gateway.log().contains("WARN"), "{}", gateway.log());
}

#[test]
fn an_upstream_that_dies_ends_the_tunnel_and_is_reported() {
    let upstream = Upstream::start(|mut peer, _| {
        peer.request();
        peer.send(format!("{SWITCH}\r\n"));
        peer.reader().read_exact(&mut [0; 2]).unwrap();
        peer.reset();
    });
    let gateway = Gateway::start(&document(&[service("/a", upstream.address, "", LINES)], ""));
    let (mut peer, _) = ask(&gateway, "/a", "lines");
    peer.send("hi");
    assert!(peer.is_closed());
    assert!(
        gateway.log().contains("broke off the connection that had changed protocol"),
        "{}",
        gateway.log()
    );
}

/// Otherwise half of what it had to say would look like all of it.
#[test]
fn a_reset_by_the_upstream_reaches_the_client_as_one() {
    let upstream = Upstream::start(|mut peer, _| {
        peer.request();
        peer.send(format!("{SWITCH}\r\nhalf of it"));
        peer.reader().read_exact(&mut [0; 2]).unwrap();
        peer.reset();
    });
    let gateway = Gateway::start(&document(&[service("/a", upstream.address, "", LINES)], ""));
    let (mut peer, _) = ask(&gateway, "/a", "lines");
    let mut bytes = [0; 10];
    peer.reader().read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"half of it");
    peer.send("go");
    let end = peer.reader().read(&mut bytes).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::ConnectionReset));
}

/// Its frames say whether all was said, and a reset would take away what is on its way.
#[test]
fn a_websocket_that_the_upstream_resets_is_closed() {
    let upstream = Upstream::start(|mut peer, _| {
        peer.request();
        peer.send(format!("{}\r\n\x01\x02hi", SWITCH.replace("lines", "websocket")));
        peer.reader().read_exact(&mut [0; 2]).unwrap();
        peer.reset();
    });
    let gateway = Gateway::start(&document(&[service("/a", upstream.address, "", "")], ""));
    let (mut peer, _) = ask(&gateway, "/a", "websocket");
    let mut bytes = [0; 4];
    peer.reader().read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"\x01\x02hi");
    peer.send("go");
    assert_eq!(peer.reader().read(&mut bytes).map_err(|error| error.kind()), Ok(0));
}

#[test]
fn a_reset_by_the_client_reaches_the_upstream_as_one() {
    let (read, was_read) = std::sync::mpsc::channel();
    let upstream = Upstream::start(move |mut peer, _| {
        peer.request();
        peer.send(format!("{SWITCH}\r\n"));
        for length in [10, 1] {
            let piece = peer.reader().read_exact(&mut vec![0; length]);
            read.send(piece.map_err(|error| error.kind())).unwrap();
        }
    });
    let gateway = Gateway::start(&document(&[service("/a", upstream.address, "", LINES)], ""));
    let (mut peer, _) = ask(&gateway, "/a", "lines");
    peer.send("half of it");
    assert_eq!(was_read.recv_timeout(PATIENCE).unwrap(), Ok(()));
    peer.reset();
    assert_eq!(was_read.recv_timeout(PATIENCE).unwrap(), Err(ErrorKind::ConnectionReset));
}

#[test]
fn over_tls_too() {
    let (upstream, authority) = (echo(), Identity::new("authority"));
    let identity = Identity::signed("localhost", &authority);
    let certificates = format!(
        "certificates:\n- {{cert: {}, key: {}, snis: [{{name: localhost}}]}}\n",
        identity.cert_yaml(),
        identity.key_yaml()
    );
    let gateway = Gateway::start(&document(&[service("/chat", upstream.address, "", "")], &certificates));
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.cert()).unwrap()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let session = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let tcp = super::TcpStream::connect(gateway.proxy_ssl()).unwrap();
    let (mut socket, _) = tungstenite::client(request("/chat"), StreamOwned::new(session, tcp)).unwrap();
    for size in [1, 1000, 100_000, 4_000_000] {
        let message = tungstenite::Message::Binary(vec![9; size].into());
        socket.write(message.clone()).unwrap();
        socket.flush().unwrap();
        assert!(socket.read().unwrap() == message);
    }
    socket.get_mut().conn.send_close_notify();
    socket.get_mut().flush().unwrap();
    let mut rest = Vec::new();
    assert!(socket.get_mut().read_to_end(&mut rest).is_ok(), "the end is a proper one");
}
