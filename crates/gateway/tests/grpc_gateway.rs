//! grpc-gateway in front of a service by tonic that returns what it gets, and of upstreams whose frames come as a test
//! sends them.
use crate::grpc_web::{chunk, echo, frame, pieces};
use crate::harness::http2_upstream::Http2Upstream;
use crate::harness::{Gateway, Message};
use h2::server::Builder;
use http::{HeaderMap, Response};
use serde_json::{Value as Json, json};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, mpsc};

const PROTO: &str = r#"
syntax = "proto3";
package weir;
import "google/api/annotations.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Kind { PLAIN = 0; BOLD = 1; }
message Author { string name = 1; int32 age = 2; }
message Chain { string text = 1; Chain next = 2; }
message Note {
  string text = 1;
  int64 count = 2;
  repeated string tags = 3;
  Kind kind = 4;
  bool shown = 5;
  Author author = 6;
  google.protobuf.Timestamp sent_at = 7;
  google.protobuf.Int32Value rank = 8;
  double weight = 9;
  bytes data = 10;
}
service Echo {
  rpc Unary(Note) returns (Note) {
    option (google.api.http) = {
      get: "/v1/notes/{text}"
      additional_bindings { post: "/v1/notes" body: "*" }
      additional_bindings { put: "/v1/notes/{text}" body: "author" }
      additional_bindings { patch: "/v1/{text=notes/*/parts/**}" body: "*" response_body: "author" }
      additional_bindings { delete: "/v1/authors/{author.name}:retire" }
    };
  }
  rpc Server(Note) returns (stream Note) { option (google.api.http).get = "/v1/stream"; }
  rpc Chained(Chain) returns (Note) { option (google.api.http).get = "/v1/chain"; }
  rpc Hidden(Note) returns (Note);
}
"#;

fn proto(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".proto").tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn gateway(upstream: SocketAddr) -> Gateway {
    let file = proto(PROTO);
    let document = format!(
        "_format_version: \"3.0\"\nservices:\n- name: s\n  protocol: grpc\n  host: 127.0.0.1\n  port: {}\n  retries: 0\n  \
         routes: [{{name: r, protocols: [http, https], paths: [/v1]}}]\n  plugins: [{{name: grpc-gateway, config: {{proto: '{}'}}}}]\n",
        upstream.port(),
        file.path().display()
    );
    Gateway::start(&document)
}

fn send(gateway: &Gateway, method: &str, target: &str, body: &str) -> Message {
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: a.test\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    gateway.connect().send(head + body).response_to(method)
}

/// What of a note is not as it is by default.
fn note(message: &Message) -> Json {
    assert_eq!(
        (message.status, message.header("content-type")),
        (200, Some("application/json")),
        "{}",
        message.text()
    );
    let defaults = json!({ "text": "", "count": 0, "tags": [], "kind": "PLAIN", "shown": false, "weight": 0.0, "data": "" });
    let mut note = message.json();
    note.as_object_mut().unwrap().retain(|name, value| defaults.get(name) != Some(value));
    note
}

#[test]
fn paths_queries_and_bodies_make_messages() {
    let (_runtime, upstream) = echo();
    let gateway = gateway(upstream);
    let query = "count=7&tags=a&tags=b%20c&kind=BOLD&shown=1&author.name=J%C3%BCrgen&author.age=3&unknown=1\
                 &sent_at=2026-11-28T07:00:00Z&rank=5&weight=1.5";
    let response = send(&gateway, "GET", &format!("/v1/notes/hi%2Fthere?{query}"), "");
    assert_eq!(
        note(&response),
        json!({ "text": "hi/there", "count": 7, "tags": ["a", "b c"], "kind": "BOLD", "shown": true, "rank": 5,
            "author": { "name": "J\u{fc}rgen", "age": 3 }, "sent_at": "2026-11-28T07:00:00Z", "weight": 1.5 })
    );
    assert_eq!(response.header("access-control-allow-origin"), Some("*"));
    assert!(response.trailers.is_empty());
    let response = send(&gateway, "GET", "/v1/notes/x?shown=false&kind=1&sentAt=2026-11-28T07:00:00Z", "");
    assert_eq!(note(&response), json!({ "text": "x", "kind": "BOLD", "sent_at": "2026-11-28T07:00:00Z" }));
    let response = send(
        &gateway,
        "POST",
        "/v1/notes?text=unread",
        r#"{"text":"é","count":"9","other":{},"sentAt":null}"#,
    );
    assert_eq!(note(&response), json!({ "text": "é", "count": 9 }));
    let response = send(&gateway, "PUT", "/v1/notes/x?count=2", r#"{"name":"A","age":4}"#);
    assert_eq!(note(&response), json!({ "text": "x", "count": 2, "author": { "name": "A", "age": 4 } }));
    let response = send(&gateway, "PATCH", "/v1/notes/1/parts/2/3", r#"{"author":{"name":"B"}}"#);
    assert_eq!((response.status, response.json()), (200, json!({ "name": "B", "age": 0 })));
    let response = send(&gateway, "DELETE", "/v1/authors/Ann:retire", "");
    assert_eq!(note(&response), json!({ "author": { "name": "Ann", "age": 0 } }));
    assert_eq!(note(&send(&gateway, "POST", "/v1/notes", "")), json!({}));
}

#[test]
fn requests_that_mean_nothing_are_refused() {
    let (_runtime, upstream) = echo();
    let gateway = gateway(upstream);
    let deep = format!("/v1/chain?{}text=x", "next.".repeat(1_000));
    for (method, target, body, why) in [
        ("GET", &*deep, "", "an argument names a field that is too deep"),
        ("GET", "/v1/other/x", "", "failed to transcode .proto file Unknown path \"/v1/other/x\""),
        ("HEAD", "/v1/notes/x", "", ""),
        ("GET", "/v1/Echo/Hidden", "", "failed to transcode .proto file Unknown path"),
        ("GET", "/v1/notes/x?count=many", "", "the message is not valid: "),
        ("POST", "/v1/notes", "{", "the body is not JSON: "),
        ("POST", "/v1/notes", "[]", "body must be a table"),
        ("POST", "/v1/notes", r#"{"count":[]}"#, "the message is not valid: "),
    ] {
        let response = send(&gateway, method, target, body);
        assert!(response.status == 400 && response.text().starts_with(why), "{target}: {}", response.text());
        assert_eq!(response.header("access-control-allow-origin"), Some("*"));
    }
    let response =
        send(&gateway, "POST", "/v1/notes", &format!("{{\"text\":\"{}\"}}", "x".repeat(1_100_000)));
    assert_eq!(response.status, 413);
}

#[test]
fn calls_that_fail_have_a_status_of_http() {
    let code = Arc::new(AtomicU16::new(0));
    let now = code.clone();
    let upstream = Http2Upstream::start(Builder::new(), usize::MAX, move |(_, mut respond), _| {
        let code = now.load(Ordering::SeqCst);
        async move {
            let head = Response::builder().header("content-type", "application/grpc");
            let head = head.header("grpc-status", code).header("grpc-message", "so it is").body(()).unwrap();
            respond.send_response(head, true).unwrap();
        }
    });
    let gateway = gateway(upstream.address);
    let statuses = [200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 500, 500, 503, 500, 401, 500];
    for (number, status) in (0..).zip(statuses) {
        code.store(number, Ordering::SeqCst);
        let response = gateway.get("/v1/notes/x");
        assert_eq!((response.status, response.text()), (status, ""), "{number}");
        assert_eq!(response.header("content-type"), Some("application/json"));
        assert_eq!(response.header("grpc-status"), Some(&*number.to_string()));
        assert_eq!(response.header("grpc-message"), Some("so it is"));
    }
}

fn trailers(status: &str) -> HeaderMap {
    let fields = [("grpc-status", status), ("grpc-message", "at%20last")];
    fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect::<HeaderMap>()
}

/// A message with a text.
fn message(text: &str) -> Vec<u8> {
    frame(0, &[&[10, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat())
}

fn stream(status: &str) -> (Gateway, mpsc::Sender<Vec<u8>>, Http2Upstream) {
    let (upstream, sender) = pieces(Some(trailers(status)));
    (gateway(upstream.address), sender, upstream)
}

#[test]
fn each_message_of_a_stream_is_a_line_that_is_sent_as_it_comes() {
    for (status, end) in [("0", None), ("8", Some(json!({ "error": { "code": 8, "message": "at last" } })))] {
        let (gateway, sender, _upstream) = stream(status);
        let mut peer = gateway.connect();
        peer.send("GET /v1/stream HTTP/1.1\r\nHost: a.test\r\n\r\n");
        for text in ["one", "two"] {
            let framed = message(text);
            let (first, second) = framed.split_at(6);
            sender.send(first.to_vec()).unwrap();
            sender.send(second.to_vec()).unwrap();
            if text == "one" {
                assert_eq!(peer.head().unwrap().start, "HTTP/1.1 200 OK");
            }
            let line = chunk(peer.reader());
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            assert_eq!(serde_json::from_slice::<Json>(&line).unwrap()["text"], text);
        }
        drop(sender);
        if let Some(end) = end {
            assert_eq!(serde_json::from_slice::<Json>(&chunk(peer.reader())).unwrap(), end);
        }
        assert!(chunk(peer.reader()).is_empty());
    }
}

#[test]
fn a_call_that_fails_behind_its_head_has_a_status_too() {
    for path in ["/v1/notes/x", "/v1/stream"] {
        let (gateway, sender, _upstream) = stream("5");
        drop(sender);
        let response = gateway.get(path);
        assert_eq!((response.status, response.text()), (404, ""));
        assert_eq!(response.header("grpc-status"), Some("5"));
        assert_eq!(response.header("grpc-message"), Some("at%20last"));
    }
    let (gateway, sender, _upstream) = stream("0");
    drop(sender);
    assert_eq!(gateway.get("/v1/stream").status, 200);
}

#[test]
fn messages_before_one_that_cannot_be_translated_are_sent_and_the_upstream_is_left() {
    let (gateway, sender, _upstream) = stream("0");
    sender.send([message("one"), frame(0, &[255, 255]), message("two")].concat()).unwrap();
    // The upstream does not end.
    let response = gateway.get("/v1/stream");
    let lines: Vec<Json> = response.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((response.status, lines.len()), (200, 2), "{}", response.text());
    assert_eq!((&lines[0]["text"], &lines[1]["error"]["code"]), (&json!("one"), &json!(13)));
    drop(sender);
}

#[test]
fn responses_that_cannot_be_translated_end_with_an_error() {
    for wrong in [
        frame(1, b"compressed"),
        frame(0, &[255, 255]),
        vec![0, 255, 255, 255, 255],
        message("x")[..6].to_vec(),
    ] {
        let (gateway, sender, _upstream) = stream("0");
        sender.send(wrong).unwrap();
        drop(sender);
        let response = gateway.get("/v1/notes/x");
        assert_eq!((response.status, &response.json()["error"]["code"]), (500, &json!(13)));
    }
}

#[test]
fn files_that_cannot_be_used_are_refused() {
    for (text, why) in [
        ("syntax = \"proto3\"; message", "cannot be used"),
        ("syntax = \"proto3\"; import \"nowhere.proto\";", "nowhere.proto"),
        (&*PROTO.replace("{text}", "{txt}"), "names \"txt\", which the message does not have"),
        (&*PROTO.replace("/v1/stream", "v1"), "does not begin with a slash"),
    ] {
        let file = proto(text);
        let document = format!(
            "_format_version: \"3.0\"\nplugins: [{{name: grpc-gateway, config: {{proto: '{}'}}}}]\n",
            file.path().display()
        );
        let (status, said) = Gateway::builder(&document).fail();
        assert!(!status.success() && said.contains(why), "{why}: {said}");
    }
}
