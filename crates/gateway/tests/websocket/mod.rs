//! WebSocket and other changes of protocol, between a client and a server that are not ours.
#![allow(clippy::unwrap_used, clippy::expect_used)]
mod http2;
mod refusals;
mod tunnels;

use crate::harness::{Gateway, Peer, Upstream, document, service};
use rustix::process::Signal;
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Bytes, ClientRequestBuilder, Error, Message, WebSocket};

const KEY: &str = "plugins: [{name: key-auth}, {name: rate-limiting, config: {hour: 2, policy: local}}]";
const METRICS: &str = "plugins: [{name: prometheus, config: {status_code_metrics: true}}]\n";
const CONSUMERS: &str = "consumers:\n- {username: ann, keyauth_credentials: [{key: ann-s}]}\n";

/// A server that echoes messages, and closes when a client does. To `flood:N` it answers with N messages of 64 KiB.
fn echo() -> Upstream {
    Upstream::start(|peer, _| {
        let Ok(mut socket) = tungstenite::accept(peer.into_socket()) else { return };
        // A reload under way may take as long as the machine likes.
        socket.get_ref().set_read_timeout(None).unwrap();
        loop {
            match socket.read() {
                Ok(Message::Text(text)) if text.starts_with("flood:") => {
                    let piece = Bytes::from(vec![7; 64 * 1024]);
                    for _ in 0..text[6..].parse().unwrap() {
                        socket.send(Message::Binary(piece.clone())).unwrap();
                    }
                }
                Ok(message @ (Message::Text(_) | Message::Binary(_))) => socket.send(message).unwrap(),
                Ok(_) => {}
                Err(_) => return,
            }
        }
    })
}

fn request(path: &str) -> ClientRequestBuilder {
    ClientRequestBuilder::new(format!("ws://localhost{path}").parse().unwrap())
}

fn connect(gateway: &Gateway, path: &str) -> WebSocket<TcpStream> {
    tungstenite::client(request(path), gateway.connect().into_socket()).unwrap().0
}

fn says(socket: &mut WebSocket<TcpStream>, text: &str) {
    socket.send(text.into()).unwrap();
    assert_eq!(socket.read().unwrap(), Message::from(text));
}

#[test]
fn messages_of_every_kind_and_size_pass_both_ways() {
    let upstream = echo();
    let gateway = Gateway::start(&document(&[service("/chat", upstream.address, "", "")], ""));
    let mut socket = connect(&gateway, "/chat");
    let large = "x".repeat(8 * 1024 * 1024);
    for message in [
        Message::from("hello"),
        Message::from(""),
        Message::Binary(vec![0, 255, 13, 10].into()),
        Message::from(large.as_str()),
        Message::Binary(vec![1; 1024 * 1024].into()),
    ] {
        socket.send(message.clone()).unwrap();
        assert!(socket.read().unwrap() == message);
    }
    socket.send(Message::Ping("are you there".into())).unwrap();
    assert_eq!(socket.read().unwrap(), Message::Pong("are you there".into()));
    let reason = CloseFrame { code: CloseCode::Library(4001), reason: "enough".into() };
    socket.close(Some(reason.clone())).unwrap();
    assert_eq!(socket.read().unwrap(), Message::Close(Some(reason)));
    assert!(matches!(socket.read(), Err(Error::ConnectionClosed)));
}

#[test]
fn plugins_see_the_request_and_the_response() {
    let upstream = echo();
    let service = service("/chat", upstream.address, "", KEY);
    let gateway = Gateway::start(&document(&[service], &format!("{CONSUMERS}{METRICS}")));
    let open = |key: &str| {
        let request = request("/chat").with_header("apikey", key);
        tungstenite::client(request, gateway.connect().into_socket()).map_err(Box::new)
    };
    for left in ["1", "0"] {
        let (mut socket, response) = open("ann-s").unwrap();
        assert_eq!(response.headers()["x-ratelimit-remaining-hour"], left);
        assert_eq!(response.headers()["via"], "1.1 weir");
        says(&mut socket, "hello");
    }
    for (key, status) in [("ann-s", 429), ("another", 401)] {
        match *open(key).unwrap_err() {
            tungstenite::HandshakeError::Failure(Error::Http(response)) => {
                assert_eq!(response.status(), status)
            }
            other => unreachable!("{other}"),
        }
    }
    assert_eq!(upstream.connections(), 2);
    let counted =
        "kong_http_requests_total{service=\"s-chat\",route=\"r-chat\",code=\"101\",source=\"service\"";
    crate::harness::eventually("both are counted", || {
        let metrics = gateway.status("/metrics");
        metrics.text().lines().any(|line| line.starts_with(counted) && line.ends_with(" 2"))
    });
}

#[test]
fn a_reload_leaves_open_tunnels_even_of_a_route_that_goes() {
    let upstream = echo();
    let all = ["/kept", "/gone"].map(|path| service(path, upstream.address, "", ""));
    let gateway = Arc::new(Gateway::start(&document(&all, "")));
    let mut sockets: Vec<_> =
        (0..40).map(|n| connect(&gateway, if n % 2 == 0 { "/kept" } else { "/gone" })).collect();
    let talk = |sockets: &mut Vec<WebSocket<TcpStream>>| {
        thread::scope(|scope| {
            for (number, socket) in sockets.iter_mut().enumerate() {
                scope.spawn(move || (0..50).for_each(|turn| says(socket, &format!("{number} {turn}"))));
            }
        });
    };
    talk(&mut sockets);
    assert!(gateway.reload(&document(&all[..1], "")).status.success());
    talk(&mut sockets);
    assert_eq!(gateway.get("/gone").status, 404);
    assert_eq!(upstream.connections(), 40);
}

#[test]
fn who_does_not_read_holds_its_sender_and_not_our_memory() {
    const PIECES: usize = 1024;
    let upstream = echo();
    let gateway = Gateway::start(&document(&[service("/chat", upstream.address, "", "")], ""));
    let mut socket = connect(&gateway, "/chat");
    says(&mut socket, "hello");
    let before = resident(&gateway);
    socket.send(format!("flood:{PIECES}").into()).unwrap();
    // 64 MiB are on their way: what sockets do not hold waits at their sender.
    thread::park_timeout(std::time::Duration::from_millis(300));
    let grown = resident(&gateway) - before;
    assert!(grown < 8 * 1024, "{grown} KiB");
    for _ in 0..PIECES {
        assert_eq!(socket.read().unwrap().len(), 64 * 1024);
    }
    says(&mut socket, "that was all");
}

fn resident(gateway: &Gateway) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_drain_waits_for_a_tunnel_and_its_line_is_logged() {
    let upstream = echo();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let mut gateway = Gateway::builder(&document(&[service("/chat", upstream.address, "", "")], ""))
        .set("proxy_access_log", log.to_str().unwrap())
        .set("proxy_access_log_format", "json")
        .start();
    let mut socket = connect(&gateway, "/chat");
    says(&mut socket, "before");
    gateway.signal(Signal::QUIT);
    crate::harness::eventually("the listener is closed", || TcpStream::connect(gateway.proxy()).is_err());
    says(&mut socket, &"x".repeat(100_000));
    socket.close(None).unwrap();
    assert!(matches!(socket.read(), Ok(Message::Close(_))));
    drop(socket);
    assert!(gateway.exit().success());
    let line: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&log).unwrap()).unwrap();
    assert_eq!(line["response"]["status"], 101);
    assert_eq!(line["route"]["name"], "r-chat");
    for size in [&line["request"]["size"], &line["response"]["size"]] {
        assert!((100_000..101_000).contains(&size.to_string().trim_matches('"').parse().unwrap()), "{line}");
    }
}

/// Asks for a change of protocol with these lines beside, and reads the head of the answer.
fn ask(gateway: &Gateway, path: &str, protocol: &str) -> (Peer, crate::harness::Head) {
    let mut peer = gateway.connect();
    peer.send(format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n"
    ));
    let head = peer.head().unwrap();
    (peer, head)
}
