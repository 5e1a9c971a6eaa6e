//! Tests of the acceptor at its limits: when the node is full, and when it closes.

use super::*;
use crate::listen::Complaint;
use crate::observe::access_log::{Format, Target};
use crate::testing::{Gateway, entity, id};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

fn start(options: Options) -> Proxy {
    start_with(options, Gateway::new().snapshot())
}

fn start_with(options: Options, snapshot: Snapshot) -> Proxy {
    let listen = |tls| Listen { tls, ..Listen::http(SocketAddr::from(([127, 0, 0, 1], 0))) };
    let options = Options { listen: vec![listen(false), listen(true)], ..options };
    let off = || AccessLog::open(Target::Stderr, Format::Off).unwrap();
    Proxy::start(options, AccessLogs { requests: off(), sessions: off() }, snapshot, &Arc::default()).unwrap()
}

#[tokio::test]
async fn a_drain_leaves_no_listener_open() {
    for _ in 0..20 {
        let proxy = start(Options::default());
        assert!(proxy.drain(DrainTimeouts { total: Duration::ZERO, idle: Duration::ZERO }).await);
        for Listening { address, .. } in proxy.listening() {
            assert!(TcpStream::connect(address.ip().unwrap()).is_err(), "{address} is still listened on");
        }
    }
}

/// Sends these bytes, and waits until the other side has received them.
fn pass(from: &mut TcpStream, to: &mut TcpStream, bytes: &[u8]) {
    from.write_all(bytes).unwrap();
    let mut received = vec![0; bytes.len()];
    to.read_exact(&mut received).unwrap();
    assert_eq!(received, bytes);
}

fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn a_tunnel_does_not_keep_the_configuration_that_it_began_with() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut gateway = Gateway::new();
    let port = upstream.local_addr().unwrap().port();
    let service = json!({ "id": id(0x51), "name": "orders", "host": "127.0.0.1", "port": port });
    gateway.document.services = vec![entity(service)];
    let proxy = start_with(Options::default(), gateway.snapshot());
    let mut client = TcpStream::connect(proxy.listening()[0].address.ip().unwrap()).unwrap();
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    write!(client, "GET / HTTP/1.1\r\nHost: a.test\r\n{upgrade}").unwrap();
    let (mut server, _) = upstream.accept().unwrap();
    read_head(&mut server);
    write!(server, "HTTP/1.1 101 Switching Protocols\r\n{upgrade}").unwrap();
    assert!(read_head(&mut client).starts_with("HTTP/1.1 101 "));
    pass(&mut client, &mut server, b"open");
    let began_with = Arc::downgrade(&proxy.snapshot());
    proxy.publish(gateway.snapshot()).await;
    assert!(began_with.upgrade().is_none());
    pass(&mut server, &mut client, b"still open");
}

#[test]
fn complaints_come_once_a_second() {
    let start = Instant::now();
    let mut complaint = Complaint::default();
    let due = |ms| start + Duration::from_millis(ms);
    let said: Vec<_> = [0, 50, 999, 1000, 1050, 3000].map(|ms| complaint.is_due(due(ms))).into();
    assert_eq!(said, [true, false, false, true, false, true]);
}
