//! Services by grpc-go, its examples, behind grpc-gateway and grpc-web. `make test` builds them from the versions that
//! `counterparts/go.mod` names.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod browser;

use crate::harness::{Counterpart, Gateway, Message};
use serde_json::{Value as Json, json};
use std::io::Write;
use std::net::SocketAddr;
use tempfile::NamedTempFile;

/// The messages are those of grpc-go's files; the annotations are ours. `Missing` is no method of the server.
const PROTO: &str = r#"
syntax = "proto3";
package routeguide;
import "google/api/annotations.proto";
service RouteGuide {
  rpc GetFeature(Point) returns (Feature) {
    option (google.api.http) = {
      get: "/v1/features/{latitude}/{longitude}"
      additional_bindings { get: "/v1/names/{latitude}/{longitude}" response_body: "name" }
    };
  }
  rpc ListFeatures(Rectangle) returns (stream Feature) {
    option (google.api.http) = {
      get: "/v1/features"
      additional_bindings { post: "/v1/features:within" body: "*" }
      additional_bindings { put: "/v1/features/up/to/{hi.latitude}/{hi.longitude}" body: "lo" }
    };
  }
  rpc RecordRoute(stream Point) returns (RouteSummary) {
    option (google.api.http) = { post: "/v1/routes" body: "*" };
  }
  rpc RouteChat(stream RouteNote) returns (stream RouteNote) {
    option (google.api.http) = { post: "/v1/notes" body: "*" };
  }
  rpc Missing(Point) returns (Feature) { option (google.api.http).get = "/v1/missing"; }
}
message Point { int32 latitude = 1; int32 longitude = 2; }
message Rectangle { Point lo = 1; Point hi = 2; }
message Feature { string name = 1; Point location = 2; }
message RouteNote { Point location = 1; string message = 2; }
message RouteSummary { int32 point_count = 1; int32 feature_count = 2; int32 distance = 3; int32 elapsed_time = 4; }
"#;

const GREETER: &str = r#"
syntax = "proto3";
package helloworld;
import "google/api/annotations.proto";
service Greeter {
  rpc SayHello (HelloRequest) returns (HelloReply) {
    option (google.api.http) = {
      get: "/v1/hello/{name=people/*}"
      additional_bindings { get: "/v1/hello" }
      additional_bindings { post: "/v1/hello" body: "name" }
    };
  }
}
message HelloRequest { string name = 1; }
message HelloReply { string message = 1; }
"#;

/// A gateway in front of a service of gRPC.
fn gateway(upstream: SocketAddr, route: &str, plugins: &str) -> Gateway {
    Gateway::start(&format!(
        "_format_version: \"3.0\"\nservices:\n- name: s\n  protocol: grpc\n  host: 127.0.0.1\n  port: {}\n  retries: 0\n  \
         routes: [{{name: r, protocols: [http, https], {route}}}]\n  plugins: [{plugins}]\n",
        upstream.port()
    ))
}

/// One of the examples behind grpc-gateway, with such a file.
fn transcoded(example: &str, proto: &str) -> (Counterpart, Gateway, NamedTempFile) {
    let mut file = tempfile::Builder::new().suffix(".proto").tempfile().unwrap();
    file.write_all(proto.as_bytes()).unwrap();
    let server = Counterpart::example(example);
    let plugin = format!("{{name: grpc-gateway, config: {{proto: '{}'}}}}", file.path().display());
    let gateway = gateway(server.address, "paths: [/v1]", &plugin);
    (server, gateway, file)
}

fn send(gateway: &Gateway, method: &str, target: &str, body: &str) -> Message {
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: a.test\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    gateway.connect().send(head + body).response_to(method)
}

/// The body of a response that went well.
#[track_caller]
fn json_of(response: &Message) -> Json {
    let seen = (response.status, response.header("content-type"));
    assert_eq!(seen, (200, Some("application/json")), "{}", response.text());
    response.json()
}

/// The lines of a response that is a stream.
#[track_caller]
fn lines_of(response: &Message) -> Vec<Json> {
    assert_eq!((response.status, response.header("content-type")), (200, Some("application/json")));
    response.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn feature(name: &str, latitude: i32, longitude: i32) -> Json {
    json!({ "name": name, "location": { "latitude": latitude, "longitude": longitude } })
}

#[test]
fn unary_methods_are_called_by_path_query_and_body() {
    let (_server, gateway, _file) = transcoded("server", PROTO);
    let found = feature("Patriots Path, Mendham, NJ 07945, USA", 407_838_351, -746_143_763);
    assert_eq!(json_of(&gateway.get("/v1/features/407838351/-746143763")), found);
    assert_eq!(json_of(&gateway.get("/v1/names/407838351/-746143763")), found["name"]);
    assert_eq!(json_of(&gateway.get("/v1/features/1/2")), feature("", 1, 2));
    let (_server, gateway, _file) = transcoded("greeter_server", GREETER);
    for (method, target, body, name) in [
        ("GET", "/v1/hello/people/J%C3%BCrgen%2F1", "", "people/Jürgen/1"),
        ("GET", "/v1/hello?name=a%20b+c%26d", "", "a b c&d"),
        ("POST", "/v1/hello", r#""\u00e9 \"x\"""#, "é \"x\""),
        ("GET", "/v1/hello", "", ""),
    ] {
        let response = send(&gateway, method, target, body);
        assert_eq!(json_of(&response), json!({ "message": format!("Hello {name}") }), "{target}");
    }
}

#[test]
fn streams_of_the_server_are_lines() {
    let (_server, gateway, _file) = transcoded("server", PROTO);
    let expected = [
        feature("6324 8th Avenue, Brooklyn, NY 11220, USA", 406_337_092, -740_122_226),
        feature("100 Mount Pleasant Avenue, Newark, NJ 07104, USA", 407_586_880, -741_670_168),
        feature("3387 Richmond Terrace, Staten Island, NY 10303, USA", 406_411_633, -741_722_051),
    ];
    let (lo, hi) = ((405_000_000, -742_000_000), (408_000_000, -740_000_000));
    let query =
        format!("lo.latitude={}&lo.longitude={}&hi.latitude={}&hi.longitude={}", lo.0, lo.1, hi.0, hi.1);
    assert_eq!(lines_of(&gateway.get(&format!("/v1/features?{query}"))), expected);
    let point = |(latitude, longitude)| json!({ "latitude": latitude, "longitude": longitude });
    let both = json!({ "lo": point(lo), "hi": point(hi) }).to_string();
    assert_eq!(lines_of(&send(&gateway, "POST", "/v1/features:within", &both)), expected);
    let target = format!("/v1/features/up/to/{}/{}", hi.0, hi.1);
    assert_eq!(lines_of(&send(&gateway, "PUT", &target, &point(lo).to_string())), expected);
    let all = "lo.latitude=400000000&lo.longitude=-750000000&hi.latitude=420000000&hi.longitude=-730000000";
    assert_eq!(lines_of(&gateway.get(&format!("/v1/features?{all}"))).len(), 100);
    let nowhere = gateway.get("/v1/features?lo.latitude=1&hi.latitude=1");
    assert_eq!((lines_of(&nowhere), nowhere.text()), (vec![], ""));
}

#[test]
fn streams_of_the_client_have_one_message() {
    let (_server, gateway, _file) = transcoded("server", PROTO);
    let point = json!({ "latitude": 407_838_351, "longitude": -746_143_763 });
    let mut summary = json_of(&send(&gateway, "POST", "/v1/routes", &point.to_string()));
    summary.as_object_mut().unwrap().remove("elapsed_time").expect("in seconds");
    assert_eq!(summary, json!({ "point_count": 1, "feature_count": 1, "distance": 0 }));
    let note = |message: &str| json!({ "location": { "latitude": 1, "longitude": 2 }, "message": message });
    assert_eq!(lines_of(&send(&gateway, "POST", "/v1/notes", &note("first").to_string())), [note("first")]);
    let both = [note("first"), note("second")];
    assert_eq!(lines_of(&send(&gateway, "POST", "/v1/notes", &both[1].to_string())), both);
}

#[test]
fn what_the_server_refuses_has_a_status_of_http() {
    let (_server, gateway, _file) = transcoded("server", PROTO);
    let response = gateway.get("/v1/missing");
    assert_eq!((response.status, response.text(), response.header("grpc-status")), (500, "", Some("12")));
    assert_eq!(
        response.header("grpc-message"),
        Some("unknown method Missing for service routeguide.RouteGuide")
    );
    let response = gateway.get_with("/v1/features/1/2", "grpc-timeout: soon\r\n");
    assert_eq!((response.status, response.header("grpc-status")), (500, Some("13")));
    assert!(response.header("grpc-message").unwrap().starts_with("malformed grpc-timeout: "));
}
