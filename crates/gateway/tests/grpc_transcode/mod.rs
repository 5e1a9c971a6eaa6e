//! grpc-transcode in front of a server by Python's grpcio, in Kong's files, in APISIX's Admin API and in `apisix.yaml`.

use crate::apisix::{KEY, ask, with_apisix, writable};
use crate::harness::{Gateway, Message};
use serde_json::{Value as Json, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The server of orders; ends when it is dropped.
struct Server {
    child: Child,
    lines: BufReader<ChildStdout>,
    _stdin: ChildStdin,
    port: u64,
    /// A `.proto` file, and the same as base64 of two that are compiled.
    text: String,
    compiled: String,
}

impl Server {
    fn start() -> Server {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/grpc_transcode/server.py");
        let mut command = Command::new("/usr/bin/python3");
        let mut child = command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut lines = BufReader::new(stdout);
        let first = next(&mut lines);
        let text = |name: &str| first[name].as_str().unwrap().to_owned();
        let (port, text, compiled) = (first["port"].as_u64().unwrap(), text("text"), text("compiled"));
        Server { child, lines, _stdin: stdin, port, text, compiled }
    }

    /// What the next call was.
    fn call(&mut self) -> Json {
        next(&mut self.lines)
    }

    /// A gateway whose routes `/METHOD` call the methods.
    fn gateway(&self, config: &Json) -> Gateway {
        let route = |method: &str| {
            let mut config = config.clone();
            config["service"] = "shop.Orders".into();
            config["method"] = method.into();
            if config["proto"].is_null() {
                config["proto"] = self.text.as_str().into();
            }
            let plugin = json!({ "name": "grpc-transcode", "config": config });
            json!({ "name": method, "paths": [format!("/{method}")], "protocols": ["http", "https"], "plugins": [plugin] })
        };
        let routes: Vec<Json> = ["Place", "Fail", "Watch"].into_iter().map(route).collect();
        let service = json!({ "name": "s", "protocol": "grpc", "host": "127.0.0.1", "port": self.port, "retries": 0, "routes": routes });
        Gateway::start(&json!({ "_format_version": "3.0", "services": [service] }).to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn next(lines: &mut BufReader<ChildStdout>) -> Json {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

fn send(gateway: &Gateway, method: &str, target: &str, content_type: &str, body: &str) -> Message {
    let length = body.len();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: a.test\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n"
    );
    gateway.connect().send(head + body).response_to(method)
}

/// What of an order is not as it is by default.
fn order(message: &Message) -> Json {
    let said = (message.status, message.header("content-type"));
    assert_eq!(said, (200, Some("application/json")), "{}", message.text());
    let defaults = json!({ "text": "", "count": 0, "tags": [], "kind": "PLAIN", "paid": false, "sizes": {}, "weight": 0.0 });
    let mut order = message.json();
    for (name, default) in defaults.as_object().unwrap() {
        assert!(order.get(name).is_some(), "{name}: {order}");
        order.as_object_mut().unwrap().retain(|member, value| member != name || value != default);
    }
    order
}

#[test]
fn queries_forms_and_json_make_messages() {
    let mut server = Server::start();
    for proto in [server.text.clone(), server.compiled.clone()] {
        let gateway = server.gateway(&json!({ "proto": proto, "deadline": 5000 }));
        let arguments = "text=J%C3%BCrgen&count=0x7&tags=a&tags=b%20c&kind=GIFT&paid=true&weight=1.5&none=1";
        let expected = json!({ "text": "J\u{fc}rgen", "count": 7, "tags": ["a", "b c"], "kind": "GIFT", "paid": true, "weight": 1.5 });
        let response = send(&gateway, "GET", &format!("/Place?{arguments}"), JSON, "");
        assert_eq!(order(&response), expected);
        let call = server.call();
        assert!(call["timed"] == true && call["order"].as_str().unwrap().contains("count: 7"), "{call}");
        assert_eq!(order(&send(&gateway, "POST", "/Place?text=unread", FORM, arguments)), expected);
        let body = r#"{"text":"x","count":"9","tags":["a"],"kind":1,"buyer":{"name":"Ann","age":7},"sizes":{"l":3},"none":{}}"#;
        let expected = json!({ "text": "x", "count": 9, "tags": ["a"], "kind": "GIFT", "buyer": { "name": "Ann", "age": 7 }, "sizes": { "l": 3 } });
        for method in ["POST", "PUT", "PATCH"] {
            let response =
                send(&gateway, method, "/Place?text=unread", "application/json; charset=utf-8", body);
            assert_eq!(order(&response), expected, "{method}");
        }
        assert_eq!(
            order(&send(&gateway, "PUT", "/Place?text=q", "text/plain", "text=b")),
            json!({ "text": "q" })
        );
        assert_eq!(order(&send(&gateway, "DELETE", "/Place?text=q", JSON, "")), json!({ "text": "q" }));
        assert_eq!(order(&send(&gateway, "POST", "/Place", JSON, "")), json!({}));
        (0..7).for_each(|_| drop(server.call()));
    }
}

#[test]
fn a_service_without_a_deadline_gets_none() {
    let mut server = Server::start();
    let gateway = server.gateway(&json!({}));
    assert_eq!(gateway.get("/Place").status, 200);
    assert_eq!(server.call()["timed"], false);
}

#[test]
fn options_say_how_messages_are_written() {
    let server = Server::start();
    let words = json!(["enum_as_value", "int64_as_string", "no_default_values"]);
    let gateway = server.gateway(&json!({ "pb_option": words }));
    let response = gateway.get("/Place?count=5000000000&kind=GIFT");
    assert_eq!(response.json(), json!({ "count": "#5000000000", "kind": 1 }));
}

#[test]
fn requests_that_are_no_messages_are_refused() {
    let server = Server::start();
    let gateway = server.gateway(&json!({}));
    for (target, content_type, body, why) in [
        ("/Place", JSON, "{", "the body is not JSON: "),
        ("/Place", JSON, "[]", "the body is no object of JSON"),
        ("/Place", JSON, r#"{"count":"many"}"#, "the field count: expected a whole number of 64 bits"),
        (
            "/Place",
            JSON,
            r#"{"buyer":{"age":[]}}"#,
            "the field buyer.age: expected a whole number of 32 bits",
        ),
        ("/Place", FORM, "kind=NONE", "the field kind: expected a name or a number of the enum"),
    ] {
        let response = send(&gateway, "POST", target, content_type, body);
        let said = response.json()["message"].as_str().unwrap().to_owned();
        assert!(response.status == 400 && said.starts_with(why), "{body}: {said}");
    }
    let long = format!("{{\"text\":\"{}\"}}", "x".repeat(1_100_000));
    assert_eq!(send(&gateway, "POST", "/Place", JSON, &long).status, 413);
}

#[test]
fn calls_that_fail_have_a_status_of_http() {
    let server = Server::start();
    let gateway = server.gateway(&json!({}));
    let statuses = [499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401];
    let calls =
        (1..).zip(statuses).flat_map(|(number, status)| [(number, status, ""), (number, status, "&paid=1")]);
    for (number, status, with_head) in calls {
        let response = gateway.get(&format!("/Fail?count={number}{with_head}"));
        assert_eq!((response.status, response.text()), (status, ""), "{number}");
        assert_eq!(response.header("grpc-status"), Some(&*number.to_string()));
        assert_eq!(response.header("grpc-message"), Some("Out of service"));
    }
}

#[test]
fn what_a_failed_call_says_is_the_body_if_that_is_wanted() {
    let server = Server::start();
    let encoded = "\u{8}\u{1}\u{12}\u{1c}The server is out of service\u{1a}\u{7}service";
    let plain = json!({ "type_url": "type.googleapis.com/shop.Failure", "value": encoded });
    let decoded = json!({ "code": 1, "message": "The server is out of service", "type": "service" });
    for (detail, expected) in [(Json::Null, plain), ("shop.Failure".into(), decoded)] {
        let gateway = server.gateway(&json!({ "show_status_in_body": true, "status_detail_type": detail }));
        for with_head in ["", "&paid=1"] {
            let response = gateway.get(&format!("/Fail?count=14{with_head}"));
            let error = json!({ "code": 14, "message": "Out of service", "details": [expected] });
            assert_eq!((response.status, response.json()), (503, json!({ "error": error })));
            assert_eq!(response.header("content-type"), Some("application/json"));
            let response = gateway.get(&format!("/Fail?count=14&text=none{with_head}"));
            assert_eq!((response.status, response.text()), (503, ""), "it says nothing");
            let response = gateway.get(&format!("/Fail?count=14&text=broken{with_head}"));
            let why = response.json()["message"].as_str().unwrap().to_owned();
            assert!(why.starts_with("grpc-status-details-bin cannot be decoded: "), "{why}");
        }
        assert_eq!(order(&gateway.get("/Place?text=x")), json!({ "text": "x" }));
    }
}

#[test]
fn messages_of_a_stream_are_lines() {
    let server = Server::start();
    let gateway = server.gateway(&json!({}));
    for (paid, end) in
        [("", None), ("&paid=1", Some(json!({ "error": { "code": 8, "message": "no more" } })))]
    {
        let response = gateway.get(&format!("/Watch?count=3&text=x{paid}"));
        let mut lines: Vec<Json> =
            response.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let last = if end.is_some() { lines.pop() } else { None };
        assert_eq!((response.status, last), (200, end));
        let counts: Vec<_> = lines.iter().map(|line| line["count"].as_u64().unwrap()).collect();
        assert_eq!(counts, [0, 1, 2]);
    }
}

#[test]
fn the_gateways_own_errors_are_no_answers_of_grpc() {
    let server = Server::start();
    let gateway = server.gateway(&json!({}));
    drop(server);
    let response = gateway.get("/Place");
    assert_eq!((response.status, response.header("grpc-status")), (502, None), "{}", response.text());
}

fn admin(gateway: &Gateway, method: &str, path: &str, body: &Json) -> Message {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let path = format!("/apisix/admin{path}");
    ask(gateway.apisix_admin(), method, &path, &format!("X-API-KEY: {KEY}\r\n"), &body)
}

fn refused(message: &Message) -> String {
    assert_eq!(message.status, 400, "{}", message.text());
    message.json()["error_msg"].as_str().unwrap().to_owned()
}

fn route(server: &Server, proto: &Json, method: &str) -> Json {
    let transcode = json!({ "proto_id": proto, "service": "shop.Orders", "method": method });
    let upstream = json!({ "scheme": "grpc", "type": "roundrobin", "nodes": { format!("127.0.0.1:{}", server.port): 1 } });
    json!({ "uri": "/orders", "methods": ["GET"], "plugins": { "grpc-transcode": transcode }, "upstream": upstream })
}

#[test]
fn protos_are_objects_of_apisix() {
    let (server, gateway) = (Server::start(), writable());
    let ask = |method: &str, path: &str, body: &Json| admin(&gateway, method, path, body);
    let broken = json!({ "content": "syntax = \"proto3\";\nmessage A {\n  strin name;\n}" });
    let why = refused(&ask("PUT", "/protos/1", &broken));
    assert_eq!(why, "invalid content: line 3, column 13: expected '=', but found ';'");
    assert!(refused(&ask("PUT", "/protos/1", &json!({}))).contains("\"content\""));
    let why = refused(&ask("PUT", "/routes/1", &route(&server, &json!(1), "Place")));
    assert_eq!(why, "failed to fetch proto info by proto id [1], response code: 404");

    let proto = json!({ "content": server.text, "desc": "orders" });
    let response = ask("PUT", "/protos/1", &proto);
    assert_eq!((response.status, &response.json()["value"]["id"]), (201, &json!("1")), "{}", response.text());
    assert_eq!(ask("POST", "/protos", &json!({ "content": server.compiled })).status, 201);
    assert_eq!(ask("GET", "/protos", &Json::Null).json()["total"], 2);
    assert_eq!(ask("PATCH", "/protos/1", &proto).status, 405);

    for id in [json!("1"), json!(1)] {
        let response = ask("PUT", "/routes/1?wait=true", &route(&server, &id, "Place"));
        assert!(matches!(response.status, 200 | 201), "{}", response.text());
        let shown = &ask("GET", "/routes/1", &Json::Null).json()["value"]["plugins"]["grpc-transcode"];
        assert_eq!((&shown["proto_id"], shown.get("proto"), &shown["deadline"]), (&id, None, &json!(0)));
        let response = gateway.get("/orders?text=x");
        assert_eq!(order(&response), json!({ "text": "x" }));
    }
    let why = refused(&ask("PUT", "/routes/1", &route(&server, &json!("1"), "Sell")));
    assert!(why.contains("config.method: shop.Orders has no method Sell"), "{why}");
    let less = json!({ "content": server.text.replace("rpc Place", "rpc Order") });
    let why = refused(&ask("PUT", "/protos/1", &less));
    assert!(why.contains("config.method: shop.Orders has no method Place"), "{why}");
    let more = json!({ "content": server.text.replace("string text = 1", "string words = 1") });
    assert_eq!(ask("PUT", "/protos/1?wait=true", &more).status, 200);
    assert_eq!(gateway.get("/orders?words=x").json()["words"], "x");

    let why = refused(&ask("DELETE", "/protos/1", &Json::Null));
    assert_eq!(why, "can not delete this proto, route [1] is still using it now");
    assert_eq!(ask("DELETE", "/routes/1", &Json::Null).status, 200);
    assert_eq!(ask("DELETE", "/protos/1", &Json::Null).status, 200);
}

#[test]
fn a_service_and_a_plugin_config_may_transcode_for_their_routes() {
    let (server, gateway) = (Server::start(), writable());
    let ask = |path: &str, body: &Json| {
        let response = admin(&gateway, "PUT", path, body);
        assert_eq!(response.status, 201, "{path}: {}", response.text());
    };
    ask("/protos/1", &json!({ "content": server.compiled }));
    let whole = route(&server, &json!(1), "Place");
    ask("/plugin_configs/1", &json!({ "plugins": whole["plugins"] }));
    ask("/services/1", &json!({ "plugins": whole["plugins"], "upstream": whole["upstream"] }));
    ask("/routes/1", &json!({ "uri": "/of-config", "plugin_config_id": "1", "upstream": whole["upstream"] }));
    ask("/routes/2?wait=true", &json!({ "uri": "/of-service", "service_id": "1" }));
    for path in ["/of-config", "/of-service"] {
        assert_eq!(order(&gateway.get(&format!("{path}?text=x"))), json!({ "text": "x" }), "{path}");
    }
    let why = refused(&admin(&gateway, "DELETE", "/protos/1", &Json::Null));
    assert!(why.starts_with("can not delete this proto, "), "{why}");
}

#[test]
fn a_standalone_file_has_protos() {
    let server = Server::start();
    let file = |content: &str| {
        let mut route = route(&server, &json!("1"), "Place");
        route["id"] = "r".into();
        let document = json!({ "protos": [{ "id": "1", "content": content }], "routes": [route] });
        format!("{document}\n#END\n")
    };
    let gateway = with_apisix(Gateway::builder(&file(&server.text))).start();
    assert_eq!(order(&gateway.get("/orders?text=x")), json!({ "text": "x" }));
    for (content, why) in [
        (server.text.replace("string text", "strin text"), "protos[0].content: line 6, column 3: "),
        (
            server.text.replace("rpc Place", "rpc Order"),
            "routes[0].plugins.grpc-transcode.method: shop.Orders has no method Place",
        ),
    ] {
        let (status, said) = Gateway::builder(&file(&content)).fail();
        assert!(!status.success() && said.contains(why), "{why}: {said}");
    }
}
