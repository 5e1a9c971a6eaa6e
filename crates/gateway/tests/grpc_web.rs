//! grpc-web in front of a service by tonic, and of upstreams whose frames come as a test sends them.
use crate::grpc::echo::serve;
use crate::harness::http2::{block_on, connect, start};
use crate::harness::http2_upstream::Http2Upstream;
use crate::harness::{Gateway, Message, PATIENCE, Upstream, closed_port};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use h2::server::Builder;
use http::{HeaderMap, Request, Response};
use serde_json::{Value as Json, json};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, mpsc};
use tokio::runtime::Runtime;

const PROTO: &str = r#"
syntax = "proto3";
package weir;
import "google/protobuf/timestamp.proto";
enum Kind { PLAIN = 0; BOLD = 1; }
message Note {
  string text = 1;
  int64 count = 2;
  repeated string tags = 3;
  Kind kind = 4;
  google.protobuf.Timestamp sent_at = 5;
}
service Echo { rpc Unary(Note) returns (Note); rpc Server(Note) returns (stream Note); }
"#;

fn proto() -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".proto").tempfile().unwrap();
    file.write_all(PROTO.as_bytes()).unwrap();
    file
}

/// The service by tonic; it lives as long as the runtime.
pub(crate) fn echo() -> (Runtime, SocketAddr) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let address = runtime.block_on(serve(None));
    (runtime, address)
}

fn gateway(upstream: SocketAddr, config: &str, route: &str) -> Gateway {
    let document = format!(
        "_format_version: \"3.0\"\nservices:\n- name: s\n  protocol: grpc\n  host: 127.0.0.1\n  port: {}\n  retries: 0\n  \
         routes: [{{name: r, protocols: [http, https], {route}}}]\n  plugins: [{{name: grpc-web, config: {{{config}}}}}]\n",
        upstream.port()
    );
    Gateway::builder(&document).set("proxy_listen", "127.0.0.1:0 http2, 127.0.0.1:0 ssl http2").start()
}

pub(crate) fn frame(flag: u8, message: &[u8]) -> Vec<u8> {
    [&[flag][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), message].concat()
}

fn request(path: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: gateway.test\r\nContent-Type: {content_type}\r\nX-Grpc-Web: 1\r\n\
         x-sent: 5\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn call(gateway: &Gateway, path: &str, content_type: &str, body: &[u8]) -> Message {
    gateway.connect().send(request(path, content_type, body)).response_to("POST")
}

/// The messages of a body, and the lines of its trailers.
fn frames(mut body: &[u8]) -> (Vec<Vec<u8>>, Vec<String>) {
    let mut messages = Vec::new();
    while let Some((prefix, rest)) = body.split_first_chunk::<5>() {
        let length = u32::from_be_bytes(prefix[1..].try_into().unwrap()) as usize;
        let (message, behind) = rest.split_at(length);
        if prefix[0] == 0x80 {
            assert!(behind.is_empty(), "something follows the trailers");
            let text = String::from_utf8(message.to_vec()).unwrap();
            return (messages, text.lines().map(str::to_owned).collect());
        }
        assert_eq!(prefix[0], 0);
        messages.push(message.to_vec());
        body = behind;
    }
    panic!("no trailers");
}

/// Base64 whose pieces are padded each.
fn decode(text: &[u8]) -> Vec<u8> {
    text.chunks(4).flat_map(|piece| STANDARD.decode(piece).unwrap()).collect()
}

#[test]
fn binary_messages_and_those_in_base64_are_translated() {
    let (_runtime, upstream) = echo();
    let gateway = gateway(upstream, "", "paths: [/weir.Echo]");
    let message = frame(0, b"hello");
    for content_type in ["application/grpc-web", "application/grpc-web+proto"] {
        let response = call(&gateway, "/weir.Echo/Unary", content_type, &message);
        assert_eq!((response.status, response.header("content-type")), (200, Some(content_type)));
        assert_eq!(response.header("access-control-allow-origin"), Some("*"));
        assert_eq!(response.header("x-sent"), Some("5"));
        let (messages, trailers) = frames(&response.body);
        assert_eq!(
            (messages, &*trailers[0], &*trailers[1]),
            (vec![b"hello".to_vec()], "grpc-status:0", "grpc-message:")
        );
        assert!(response.trailers.is_empty());
    }
    let [first, second] = [&message[..4], &message[4..]].map(|piece| STANDARD.encode(piece));
    for body in [STANDARD.encode(&message), first + &second] {
        let response = call(&gateway, "/weir.Echo/Unary", "application/grpc-web-text", body.as_bytes());
        assert_eq!(response.header("content-type"), Some("application/grpc-web-text"));
        let (messages, trailers) = frames(&decode(&response.body));
        assert_eq!((messages, &*trailers[0]), (vec![b"hello".to_vec()], "grpc-status:0"));
    }
}

#[test]
fn errors_and_streams_end_with_trailers() {
    let (_runtime, upstream) = echo();
    let gateway = gateway(upstream, "", "paths: [/weir.Echo]");
    let response = call(&gateway, "/weir.Echo/Unary", "application/grpc-web", &frame(0, b"fail"));
    let (messages, trailers) = frames(&response.body);
    assert_eq!((response.status, response.header("content-type")), (200, Some("application/grpc-web")));
    assert_eq!(
        (messages.len(), &trailers[..2]),
        (0, &["grpc-status:9".to_owned(), "grpc-message:as%20%E2%80%9Casked%E2%80%9D".to_owned()][..])
    );
    assert_eq!(response.header("x-more"), Some("1"));
    let response = call(
        &gateway,
        "/weir.Echo/Nothing",
        "application/grpc-web-text",
        &STANDARD.encode(frame(0, b"")).into_bytes(),
    );
    assert_eq!(frames(&decode(&response.body)).1[0], "grpc-status:12");
    let response = call(&gateway, "/weir.Echo/Server", "application/grpc-web", &frame(0, b"300 1000"));
    let (messages, trailers) = frames(&response.body);
    assert_eq!((messages.len(), messages[299].len(), &*trailers[0]), (300, 1000, "grpc-status:0"));
}

#[test]
fn clients_of_http2_get_trailers_in_the_body_alone() {
    let (_runtime, upstream) = echo();
    let gateway = gateway(upstream, "", "paths: [/weir.Echo]");
    block_on(async {
        let (requests, _connection) = connect(gateway.proxy()).await;
        for (sent, status) in [("hello", "grpc-status:0"), ("fail", "grpc-status:9")] {
            let request = Request::post("http://localhost/weir.Echo/Unary")
                .header("content-type", "application/grpc-web");
            let (response, mut body) = start(&requests, request.body(()).unwrap(), false).await.unwrap();
            body.send_data(frame(0, sent.as_bytes()).into(), true).unwrap();
            let response = response.await.unwrap();
            assert_eq!(
                (response.status().as_u16(), &response.headers()["content-type"]),
                (200, &"application/grpc-web".parse().unwrap())
            );
            let (mut body, mut bytes) = (response.into_body(), Vec::new());
            while let Some(data) = body.data().await {
                bytes.extend(data.unwrap());
            }
            assert_eq!(body.trailers().await.unwrap(), None);
            assert_eq!(frames(&bytes).1[0], status);
        }
    });
}

#[test]
fn messages_may_be_json() {
    let (_runtime, upstream) = echo();
    let file = proto();
    let gateway = gateway(upstream, &format!("proto: '{}'", file.path().display()), "paths: [/weir.Echo]");
    let note = json!({ "text": "é", "count": "9007199254740993", "tags": ["a"], "kind": "BOLD", "sentAt": "2026-11-28T07:00:00Z", "other": 1 });
    let expected = json!({ "text": "é", "count": 9007199254740993_i64, "tags": ["a"], "kind": "BOLD", "sent_at": "2026-11-28T07:00:00Z" });
    let response =
        call(&gateway, "/weir.Echo/Unary", "application/json; charset=utf-8", note.to_string().as_bytes());
    assert_eq!(
        (response.status, response.header("content-type"), response.json()),
        (200, Some("application/json"), expected.clone())
    );
    let framed = frame(0, note.to_string().as_bytes());
    let response = call(&gateway, "/weir.Echo/Unary", "application/grpc-web+json", &framed);
    let (messages, trailers) = frames(&response.body);
    assert_eq!(
        (serde_json::from_slice::<Json>(&messages[0]).unwrap(), &*trailers[0]),
        (expected.clone(), "grpc-status:0")
    );
    let response = call(
        &gateway,
        "/weir.Echo/Unary",
        "application/grpc-web-text+json",
        STANDARD.encode(framed).as_bytes(),
    );
    assert_eq!(serde_json::from_slice::<Json>(&frames(&decode(&response.body)).0[0]).unwrap(), expected);
    let defaults = call(&gateway, "/weir.Echo/Unary", "application/json", b"{}").json();
    assert_eq!(defaults, json!({ "text": "", "count": 0, "tags": [], "kind": "PLAIN" }));
    for (path, body, why) in [
        ("/weir.Echo/Other", "{}", "Unknown path \"/weir.Echo/Other\""),
        ("/weir.Echo/Unary", "{", "the message is not valid: "),
        ("/weir.Echo/Unary", "{\"count\":\"x\"}", "the message is not valid: "),
        ("/weir.Echo/Unary", "{}{}", "the message is not valid: "),
    ] {
        let response = call(&gateway, path, "application/json", body.as_bytes());
        assert!(response.status == 400 && response.text().starts_with(why), "{}", response.text());
    }
    let response = call(&gateway, "/weir.Echo/Unary", "application/grpc-web+json", b"\0\0\0");
    assert_eq!((response.status, response.text()), (400, "the body has no message"));
}

/// An upstream that answers with pieces of a body, each once it is let, and then with trailers.
pub(crate) fn pieces(trailers: Option<HeaderMap>) -> (Http2Upstream, mpsc::Sender<Vec<u8>>) {
    let (sender, receiver) = mpsc::channel::<Vec<u8>>();
    let receiver = Arc::new(Mutex::new(receiver));
    let upstream = Http2Upstream::start(Builder::new(), usize::MAX, move |(_, mut respond), _| {
        let (receiver, trailers) = (receiver.clone(), trailers.clone());
        async move {
            let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
            let mut body = respond.send_response(head, false).unwrap();
            loop {
                let next = receiver.lock().unwrap().try_recv();
                match next {
                    Ok(piece) => body.send_data(Bytes::from(piece), false).unwrap(),
                    Err(mpsc::TryRecvError::Empty) => {
                        tokio::time::sleep(std::time::Duration::from_millis(2)).await
                    }
                    Err(mpsc::TryRecvError::Disconnected) => break,
                }
            }
            match trailers {
                Some(trailers) => body.send_trailers(trailers).unwrap(),
                None => body.send_reset(h2::Reason::INTERNAL_ERROR),
            }
        }
    });
    (upstream, sender)
}

/// The next chunk of a response.
pub(crate) fn chunk(reader: &mut impl Read) -> Vec<u8> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        reader.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    let length = usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim(), 16).unwrap();
    let mut data = vec![0; length + 2];
    reader.read_exact(&mut data).unwrap();
    data.truncate(length);
    data
}

#[test]
fn each_message_of_a_stream_is_sent_as_it_comes() {
    let file = proto();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    trailers.insert("x-last", "1".parse().unwrap());
    let (upstream, sender) = pieces(Some(trailers));
    let gateway =
        gateway(upstream.address, &format!("proto: '{}'", file.path().display()), "paths: [/weir.Echo]");
    let mut peer = gateway.connect();
    peer.send(request("/weir.Echo/Server", "application/grpc-web+json", &frame(0, b"{}")));
    assert_eq!(peer.head().unwrap().start, "HTTP/1.1 200 OK");
    for text in ["one", "two"] {
        let message = [&[10, 3], text.as_bytes()].concat();
        let framed = frame(0, &message);
        let (first, second) = framed.split_at(3);
        sender.send(first.to_vec()).unwrap();
        sender.send(second.to_vec()).unwrap();
        let json: Json = serde_json::from_slice(&chunk(peer.reader())[5..]).unwrap();
        assert_eq!(json["text"], text);
    }
    drop(sender);
    let text = b"grpc-status:0\r\ngrpc-message:\r\nx-last:1\r\n";
    assert_eq!(chunk(peer.reader()), frame(0x80, text));
    assert!(chunk(peer.reader()).is_empty());
}

#[test]
fn a_stream_that_breaks_off_has_no_end() {
    let (upstream, sender) = pieces(None);
    let gateway = gateway(upstream.address, "", "paths: [/weir.Echo]");
    let mut peer = gateway.connect();
    peer.send(request("/weir.Echo/Server", "application/grpc-web", &frame(0, b"")));
    peer.head().unwrap();
    sender.send(frame(0, b"one")).unwrap();
    assert_eq!(chunk(peer.reader()), frame(0, b"one"));
    drop(sender);
    assert_eq!(peer.rest(), b"", "neither trailers nor an end");
}

#[test]
fn messages_that_cannot_be_translated_end_the_call() {
    let file = proto();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    for wrong in [frame(1, b"compressed"), frame(0, &[255, 255]), [0, 255, 255, 255, 255].to_vec()] {
        let (upstream, sender) = pieces(Some(trailers.clone()));
        let gateway =
            gateway(upstream.address, &format!("proto: '{}'", file.path().display()), "paths: [/weir.Echo]");
        sender.send(wrong).unwrap();
        drop(sender);
        let response = call(&gateway, "/weir.Echo/Server", "application/grpc-web+json", &frame(0, b"{}"));
        let (messages, trailers) = frames(&response.body);
        assert_eq!((messages.len(), &*trailers[0]), (0, "grpc-status:13"));
    }
}

#[test]
fn the_path_may_be_without_what_the_route_strips() {
    let (_runtime, upstream) = echo();
    let stripping = gateway(upstream, "pass_stripped_path: true", "paths: [/api], strip_path: true");
    let response = call(&stripping, "/api/weir.Echo/Unary", "application/grpc-web", &frame(0, b"x"));
    assert_eq!(frames(&response.body).1[0], "grpc-status:0");
    let whole = gateway(upstream, "", "paths: [/weir], strip_path: true");
    let response = call(&whole, "/weir.Echo/Unary", "application/grpc-web", &frame(0, b"x"));
    assert_eq!(frames(&response.body).1[0], "grpc-status:0");
}

#[test]
fn an_upstream_that_is_not_there_is_an_error_of_http() {
    let gateway = gateway(closed_port(), "", "paths: [/weir.Echo]");
    let response = call(&gateway, "/weir.Echo/Unary", "application/grpc-web", &frame(0, b"x"));
    assert_eq!(response.status, 502);
    assert_eq!(response.header("access-control-allow-origin"), Some("*"));
    assert!(response.header("content-type").unwrap().starts_with("application/json"));
}

/// Binary messages pass as they come where grpc-web alone wants bodies.
#[test]
fn plugins_beside_it_get_the_bodies_that_they_want() {
    let (_runtime, upstream) = echo();
    let (copied, copies) = mpsc::channel();
    let mirror = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            copied.send(request.body).unwrap();
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let document = format!(
        "_format_version: \"3.0\"\nservices:\n- name: s\n  protocol: grpc\n  host: 127.0.0.1\n  port: {}\n  routes: [{{name: r, \
         protocols: [http, https], paths: [/weir.Echo]}}]\n  plugins: [{{name: grpc-web}}, {{name: proxy-mirror, config: {{host: 'http://{}'}}}}]\n",
        upstream.port(),
        mirror.address
    );
    let gateway = Gateway::start(&document);
    let message = frame(0, b"hello");
    let response = call(&gateway, "/weir.Echo/Unary", "application/grpc-web+proto", &message);
    assert_eq!(frames(&response.body).1[0], "grpc-status:0");
    assert_eq!(copies.recv_timeout(PATIENCE).unwrap(), message);
}
