//! Connections of the old process: they stay there until they end, or the drain timeout does.
use super::{Node, OK, runs};
use crate::grpc;
use crate::harness::{Gateway, Peer, Upstream, document, eventually, one_route, service, weir};
use crate::http3::client::Client;
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use tokio_stream::StreamExt;
use tonic::Request;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{ClientRequestBuilder, Message, WebSocket};

/// A server that echoes messages.
fn echo() -> Upstream {
    Upstream::start(|peer, _| {
        let Ok(mut socket) = tungstenite::accept(peer.into_socket()) else { return };
        socket.get_ref().set_read_timeout(None).unwrap();
        while let Ok(message) = socket.read() {
            if message.is_text() {
                socket.send(message).unwrap();
            }
        }
    })
}

fn connect(gateway: &Gateway) -> WebSocket<TcpStream> {
    let request = ClientRequestBuilder::new("ws://localhost/chat".parse().unwrap());
    tungstenite::client(request, gateway.connect().into_socket()).unwrap().0
}

fn says(socket: &mut WebSocket<TcpStream>, text: &str) {
    socket.send(text.into()).unwrap();
    assert_eq!(socket.read().unwrap(), Message::from(text));
}

#[test]
fn websockets_sessions_and_requests_in_flight_stay_on_the_old_process() {
    let (chat, (held, asked)) = (echo(), Upstream::holding(OK));
    let lines = Upstream::start(|mut peer, _| {
        while peer.request().is_some() {
            peer.send(OK);
        }
    });
    let raw = format!(
        "- {{name: raw, url: \"tcp://{}\", routes: [{{name: raw, protocols: [tcp], sources: [{{ip: 127.0.0.1}}]}}]}}\n",
        lines.address
    );
    let services = [service("/chat", chat.address, "", ""), service("/held", held.address, "", "")];
    let document = document(&services, "").replacen("services:\n", &format!("services:\n{raw}"), 1);
    let builder =
        Gateway::builder(&document).set("stream_listen", "127.0.0.1:0").set("upgrade_drain_timeout", "1h");
    let mut node = Node::start(builder);
    let old = node.pid();
    let mut socket = connect(&node.gateway);
    says(&mut socket, "before");
    let mut session = Peer::connect(node.gateway.stream(0));
    assert_eq!(session.send("GET / HTTP/1.1\r\n\r\n").response().text(), "hi");
    let mut client = node.gateway.connect();
    client.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    let go = asked.recv().unwrap();
    node.upgrade();
    node.upgrade();
    says(&mut socket, "after");
    says(&mut connect(&node.gateway), "over the new process");
    assert_eq!(session.send("GET / HTTP/1.1\r\n\r\n").response().text(), "hi");
    go.send(()).unwrap();
    let response = client.response();
    assert_eq!((response.text(), response.header("connection")), ("hi", Some("close")));
    assert!(runs(old));
    socket.close(None).unwrap();
    drop((socket, session, client));
    assert_eq!(node.gateway.exit().code(), Some(0));
}

#[test]
fn streams_of_grpc_stay_on_the_old_process() {
    grpc::run(async {
        let configuration = grpc::configuration(grpc::echo::serve(None).await, "", "", "");
        let mut node = Node::start(grpc::gateway(&configuration).set("upgrade_drain_timeout", "1h"));
        let old = node.pid();
        let mut caller = grpc::caller(&node.gateway).await;
        let (sender, messages) = caller.both().await;
        let mut messages = messages.unwrap().into_inner();
        for text in ["before", "after one upgrade", "after two"] {
            sender.send(text.into()).await.unwrap();
            assert_eq!(messages.next().await.unwrap().unwrap(), text);
            node.upgrade();
        }
        let request = Request::new("over the new process".into());
        let mut other = grpc::caller(&node.gateway).await;
        assert_eq!(other.unary("Unary", request).await.unwrap().into_inner(), "over the new process");
        assert!(runs(old));
        drop(sender);
        assert!(messages.next().await.is_none(), "the stream ends with its client");
        drop((messages, caller, other));
        assert_eq!(node.gateway.exit().code(), Some(0));
    });
}

#[test]
fn the_drain_timeout_of_upgrades_ends_what_does_not_end_by_itself() {
    let chat = echo();
    let builder = Gateway::builder(&document(&[service("/chat", chat.address, "", "")], ""))
        .set("drain_timeout", "1h")
        .set("upgrade_drain_timeout", "2s");
    let mut node = Node::start(builder);
    let mut socket = connect(&node.gateway);
    node.upgrade();
    let Message::Close(Some(frame)) = socket.read().unwrap() else { panic!("not a close frame") };
    assert_eq!(frame.code, CloseCode::Away);
    assert_eq!(node.gateway.exit().code(), Some(0));
}

#[test]
fn datagrams_of_old_connections_over_quic_reach_the_old_process() {
    let (upstream, asked) = Upstream::holding(OK);
    let listen = "127.0.0.1:0, 127.0.0.1:0 ssl, 127.0.0.1:0 quic";
    let builder = Gateway::builder(&one_route(upstream.address))
        .set("proxy_listen", listen)
        .set("workers", "2")
        .set("upgrade_drain_timeout", "1h");
    let mut node = Node::start(builder);
    let ask = |client: &mut Client| {
        client.ask("held", ("GET", "/"), &json!({"body": 100_000}));
        asked.recv().unwrap()
    };
    let mut clients: Vec<_> = (0..3).map(|_| Client::connect(node.gateway.proxy_quic())).collect();
    let mut held: Vec<_> = clients.iter_mut().map(ask).collect();
    for _ in 0..2 {
        node.upgrade();
        let mut client = Client::connect(node.gateway.proxy_quic());
        held.push(ask(&mut client));
        clients.push(client);
    }
    for (client, go) in clients.iter_mut().zip(held) {
        // From a new port, the datagrams may come to another socket.
        client.send(&json!({"do": "rebind"})).event("rebound", |_| true);
        go.send(()).unwrap();
        assert_eq!(client.response("held").text(), "hi");
    }
    drop(clients);
    assert_eq!(node.gateway.exit().code(), Some(0));
}

/// Its way to the newest process does not lead through the one between, which has nothing to drain.
#[test]
fn connections_over_quic_go_on_when_the_process_after_theirs_has_ended() {
    // More than is sent before the client has acknowledged some of it.
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", 1 << 20, "x".repeat(1 << 20));
    let (upstream, asked) = Upstream::holding(&answer);
    let builder = Gateway::builder(&one_route(upstream.address))
        .set("proxy_listen", "127.0.0.1:0, 127.0.0.1:0 ssl, 127.0.0.1:0 quic")
        .set("upgrade_drain_timeout", "1h");
    let node = Node::start(builder);
    let mut client = Client::connect(node.gateway.proxy_quic());
    client.ask("held", ("GET", "/"), &json!({"body": 100_000}));
    let go = asked.recv().unwrap();
    node.upgrade();
    let second = node.pid();
    node.upgrade();
    eventually("the second process ends", || !runs(second));
    client.send(&json!({"do": "rebind"})).event("rebound", |_| true);
    go.send(()).unwrap();
    assert_eq!(client.response("held").bytes(), 1 << 20);
}

/// A node that is stopped and started again need not wait for what the stopped one still drains.
#[test]
fn what_drains_does_not_keep_a_new_node_out() {
    let chat = echo();
    let builder = Gateway::builder(&document(&[service("/chat", chat.address, "", "")], ""))
        .set("upgrade_drain_timeout", "1h");
    let mut node = Node::start(builder);
    let mut socket = connect(&node.gateway);
    says(&mut socket, "before");
    for _ in 0..2 {
        node.upgrade();
    }
    assert_eq!(node.gateway.command("quit").status.code(), Some(0));
    let mut other = weir();
    other.args(["run", "--config"]).arg(node.gateway.file()).arg("--prefix").arg(node.gateway.prefix());
    let free = ["proxy_listen", "admin_listen", "status_listen"].map(|name| format!("{name}=127.0.0.1:0"));
    other.args(free.iter().flat_map(|setting| ["--set", setting])).args(["--set", "admin_gui_listen=off"]);
    let mut other = other.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(other.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("\"proxy\""), "it serves: {line}");
    assert_eq!(node.pid(), other.id());
    says(&mut socket, "after");
    socket.close(None).unwrap();
    drop(socket);
    assert_eq!(node.gateway.exit().code(), Some(0));
    assert_eq!(node.pid(), other.id(), "what ends last leaves the folder to the new node");
    assert_eq!(node.gateway.command("quit").status.code(), Some(0));
    assert!(other.wait().unwrap().success());
}

#[test]
fn the_number_of_workers_may_change() {
    let upstream = Upstream::answering(OK);
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("weir");
    let listen = "127.0.0.1:0, 127.0.0.1:0 ssl, 127.0.0.1:0 quic";
    let node = Node::start(Gateway::builder(&one_route(upstream.address)).set("proxy_listen", listen));
    for workers in [3, 1, 2] {
        let binary = env!("CARGO_BIN_EXE_weir");
        let script = format!("#!/bin/bash\nexec {binary} \"${{@/#workers=*/workers={workers}}}\"\n");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let output = node.try_upgrade(&["--program", program.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let threads = fs::read_dir(format!("/proc/{}/task", node.pid())).unwrap().flatten();
        let name = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        assert_eq!(threads.map(name).filter(|name| name.starts_with("weir-worker-")).count(), workers);
        for _ in 0..4 {
            assert_eq!(Client::connect(node.gateway.proxy_quic()).get("/").text(), "hi");
        }
    }
}
