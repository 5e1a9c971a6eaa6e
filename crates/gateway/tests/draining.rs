//! How a node that is to stop lets its clients go: readiness, then listeners, then connections.
use crate::harness::http2::Frames;
use crate::harness::{Gateway, Peer, Upstream, document, eventually, one_route, service, weir};
use rustix::process::Signal;
use std::net::TcpStream;
use std::sync::mpsc;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{ClientRequestBuilder, Message};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// A GOAWAY that takes no request back.
const ALL_STREAMS: u32 = u32::MAX >> 1;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;

fn is_ready(gateway: &Gateway) -> bool {
    gateway.status("/status/ready").status == 200
}

#[test]
fn readiness_fails_first_while_connections_are_accepted() {
    let upstream = Upstream::answering(OK);
    let mut gateway = Gateway::builder(&one_route(upstream.address)).set("shutdown_delay", "1h").start();
    let mut before = gateway.connect();
    gateway.signal(Signal::TERM);
    eventually("the node is not ready", || !is_ready(&gateway));
    for peer in [&mut before, &mut gateway.connect()] {
        let response = peer.send(GET).response();
        assert_eq!((response.status, response.header("connection")), (200, None));
    }
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit().code(), Some(1), "a second signal stops it at once");
}

#[test]
fn after_the_delay_the_node_drains_and_stops() {
    let mut gateway = Gateway::builder("_format_version: \"3.0\"\n").set("shutdown_delay", "50ms").start();
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit().code(), Some(0));
    let log = gateway.log();
    let place = |text| log.find(text).unwrap_or_else(|| panic!("no {text} in {log}"));
    assert!(place("shutdown_delay") < place("draining timeout_s"), "{log}");
}

#[test]
fn quit_waits_as_long_as_it_is_told_to() {
    let mut gateway = Gateway::builder("_format_version: \"3.0\"\n").set("shutdown_delay", "1h").start();
    let quit =
        |wait| weir().args(["quit", "--wait", wait, "--prefix"]).arg(gateway.prefix()).output().unwrap();
    assert_eq!(quit("a while").status.code(), Some(2));
    let output = quit("0.05");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("(gracefully)"));
    assert_eq!(gateway.exit().code(), Some(0));
    assert!(gateway.log().contains("shutdown_delay_s=0.05"), "{}", gateway.log());
}

#[test]
fn http1_is_told_with_its_last_response() {
    let upstream = Upstream::answering(OK);
    let mut gateway = Gateway::start(&one_route(upstream.address));
    let mut client = gateway.connect();
    let (first, rest) = GET.split_at(8);
    client.send(first);
    gateway.signal(Signal::TERM);
    eventually("no connection is taken", || TcpStream::connect(gateway.proxy()).is_err());
    let response = client.send(rest).response();
    assert_eq!((response.status, response.header("connection")), (200, Some("close")));
    assert!(client.is_closed());
    assert_eq!(gateway.exit().code(), Some(0));
}

#[test]
fn http2_is_told_in_two_steps() {
    let (upstream, asked) = Upstream::holding(OK);
    let mut gateway = Gateway::builder(&one_route(upstream.address))
        .set("proxy_listen", "127.0.0.1:0 http2, 127.0.0.1:0 ssl http2")
        .set("drain_timeout", "1h")
        .start();
    let mut client = Frames::connect(gateway.proxy());
    assert!(client.send(&Frames::get(1)));
    let first = asked.recv().unwrap();
    gateway.signal(Signal::TERM);
    assert_eq!(last_stream(&mut client), ALL_STREAMS);
    let ping = loop {
        let (kind, payload) = client.next().unwrap();
        if kind == PING {
            break payload;
        }
    };
    // Sent before the client could know.
    assert!(client.send(&Frames::get(3)));
    let late = asked.recv().unwrap();
    assert!(client.send(&Frames::frame(PING, ACK, 0, &ping)));
    assert_eq!(last_stream(&mut client), 3);
    for go in [first, late] {
        go.send(()).unwrap();
    }
    let mut ended = Vec::new();
    while let Some((kind, flags, stream)) = client.next_head() {
        if kind == 0 && flags & 1 != 0 {
            ended.push(stream);
        }
    }
    ended.sort_unstable();
    assert_eq!(ended, [1, 3]);
    assert_eq!(gateway.exit().code(), Some(0));
}

/// The last stream of the GOAWAY that comes next.
fn last_stream(client: &mut Frames) -> u32 {
    loop {
        let (kind, payload) = client.next().expect("a GOAWAY");
        if kind == GOAWAY {
            assert_eq!(payload[4..8], [0; 4], "no error");
            return u32::from_be_bytes(payload[..4].try_into().unwrap());
        }
    }
}

#[test]
fn websockets_are_closed_with_1001_at_the_end() {
    let (end, ended) = mpsc::channel();
    let upstream = Upstream::start(move |peer, _| {
        let Ok(mut socket) = tungstenite::accept(peer.into_socket()) else { return };
        loop {
            match socket.read() {
                Ok(message @ Message::Text(_)) => socket.send(message).unwrap(),
                Ok(Message::Close(frame)) => end.send(frame.map(|frame| frame.code)).unwrap(),
                Ok(_) => {}
                Err(_) => return,
            }
        }
    });
    let mut gateway = Gateway::builder(&document(&[service("/chat", upstream.address, "", "")], ""))
        .set("drain_timeout", "4s")
        .start();
    let request = ClientRequestBuilder::new("ws://localhost/chat".parse().unwrap());
    let (mut socket, _) = tungstenite::client(request, gateway.connect().into_socket()).unwrap();
    gateway.signal(Signal::TERM);
    eventually("no connection is taken", || TcpStream::connect(gateway.proxy()).is_err());
    match socket.read().unwrap() {
        Message::Close(frame) => assert_eq!(frame.map(|frame| frame.code), Some(CloseCode::Away)),
        other => panic!("{other}"),
    }
    assert_eq!(ended.recv().unwrap(), Some(CloseCode::Away));
    drop(socket);
    assert_eq!(gateway.exit().code(), Some(0));
    assert!(!gateway.log().contains("drain_timeout ended"), "{}", gateway.log());
}

#[test]
fn a_websocket_is_not_closed_in_the_middle_of_a_frame() {
    let (begun, has_begun) = mpsc::channel();
    let upstream = Upstream::start(move |mut peer: Peer, _| {
        peer.request();
        peer.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        peer.send([0x82, 4, b'h', b'a']);
        begun.send(()).unwrap();
        // The gateway's close frame comes when the drain is about to end.
        assert_eq!(peer.rest().len(), 8);
    });
    let mut gateway = Gateway::builder(&document(&[service("/chat", upstream.address, "", "")], ""))
        .set("drain_timeout", "2s")
        .start();
    let mut client = gateway.connect();
    client.send("GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(client.head().unwrap().start, "HTTP/1.1 101 Switching Protocols");
    has_begun.recv().unwrap();
    gateway.signal(Signal::TERM);
    assert_eq!(client.rest(), [0x82, 4, b'h', b'a'], "nothing is put into the frame");
    assert_eq!(gateway.exit().code(), Some(0));
}
