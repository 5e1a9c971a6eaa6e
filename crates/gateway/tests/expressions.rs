//! Routes of the flavors `expressions` and `traditional`. What requests meet is data: `cases/expressions.toml`.
use crate::harness::{Gateway, Message, Peer, TlsPeer, Upstream, unescape, weir};
use crate::streams_tls::said_over_tls;
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::SocketAddr;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    case: Vec<Case>,
    refused: Vec<Refused>,
}

/// Routes, and requests.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(default)]
    flavor: Option<String>,
    /// The path of the service.
    #[serde(default)]
    service_path: Option<String>,
    routes: Vec<Value>,
    requests: Vec<Request>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    /// The request line without the version, and header lines.
    send: String,
    /// Whether over TLS, which can only get a path of `a.test`.
    #[serde(default)]
    tls: bool,
    /// `200 ROUTE PATH CAPTURED`, where the last is what `capture` of the route gives; or another status alone.
    expects: String,
}

/// A route that is not accepted in the flavor, and a part of the reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refused {
    route: Value,
    says: String,
    #[serde(default)]
    flavor: Option<String>,
}

fn cases() -> Cases {
    toml::from_str(include_str!("cases/expressions.toml")).unwrap()
}

/// A document of one service. Each route tells the upstream its name, and what its regex captured.
fn document(case: &Case, upstream: SocketAddr) -> String {
    let routes = case.routes.iter().map(|route| {
        let mut route = route.clone();
        let capture = route.as_object_mut().unwrap().remove("capture");
        let capture = capture.as_ref().and_then(Value::as_str).map(|capture| format!(" {capture}"));
        let header = format!("X-Route:{}{}", route["name"].as_str().unwrap(), capture.unwrap_or_default());
        route["plugins"] =
            json!([{ "name": "request-transformer", "config": { "add": { "headers": [header] } } }]);
        route
    });
    let path = case.service_path.as_deref().unwrap_or_default();
    let service = json!({ "name": "s", "url": format!("http://{upstream}{path}"), "routes": routes.collect::<Vec<_>>() });
    format!("_format_version: \"3.0\"\nservices: [{service}]\n")
}

impl Request {
    fn answer(&self, gateway: &Gateway) -> String {
        let (first, headers) = self.send.split_once("\r\n").unwrap_or((&self.send, ""));
        if self.tls {
            let path = first.strip_prefix("GET ").unwrap();
            let (status, body) = TlsPeer::connect(gateway.proxy_ssl(), "a.test").get(path);
            return shown(status.split(' ').nth(1).unwrap().parse().unwrap(), &body);
        }
        let host = if headers.to_ascii_lowercase().contains("host:") { "" } else { "Host: a.test\r\n" };
        let message = gateway.send(&format!("{first} HTTP/1.1\r\n{host}{headers}\r\n"));
        shown(message.status, message.text())
    }
}

/// The status, and of a request that was forwarded the route and the path that the upstream got.
fn shown(status: u16, echoed: &str) -> String {
    if status != 200 {
        return status.to_string();
    }
    let path = echoed.split(' ').nth(1).unwrap();
    let route = echoed.lines().find_map(|line| line.strip_prefix("X-Route: ")).unwrap();
    let (route, captured) = route.split_once(' ').unwrap_or((route, ""));
    format!("200 {route} {path} {captured}").trim_end().to_owned()
}

#[test]
fn requests_meet_the_routes_of_their_flavor() {
    let upstream = Upstream::echoing();
    for case in cases().case {
        let flavor = case.flavor.as_deref().unwrap_or("expressions");
        let builder = Gateway::builder(&document(&case, upstream.address)).set("router_flavor", flavor);
        let gateway = builder.start();
        for request in &case.requests {
            let request = Request {
                send: String::from_utf8(unescape(&request.send)).unwrap(),
                expects: request.expects.clone(),
                ..*request
            };
            assert_eq!(request.answer(&gateway), request.expects, "{}: {}", case.name, request.send);
        }
    }
}

fn send(gateway: &Gateway, method: &str, path: &str, body: &Value) -> Message {
    gateway.ask_admin(method, path, &body.to_string())
}

#[test]
fn routes_are_refused_in_kongs_words() {
    let of = |flavor: &str| Gateway::empty().set("router_flavor", flavor).start();
    let (expressions, compatible) = (of("expressions"), of("traditional_compatible"));
    for refused in cases().refused {
        let gateway = if refused.flavor.is_some() { &compatible } else { &expressions };
        for path in ["/routes", "/schemas/routes/validate"] {
            let answer = send(gateway, "POST", path, &refused.route);
            let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
            assert_eq!(answer.status, 400, "{}: {message}", refused.route);
            assert!(
                message.starts_with("schema violation (") && message.contains(&refused.says),
                "{message}"
            );
        }
    }
}

#[test]
fn the_admin_api_shows_and_changes_expressions() {
    let gateway = Gateway::empty().set("router_flavor", "expressions").start();
    let created =
        send(&gateway, "PUT", "/routes/r", &json!({ "expression": "http.path == \"/a\"", "priority": 7 }));
    assert_eq!(created.status, 200, "{}", created.text());
    let members =
        |message: &Message| (message.json()["expression"].clone(), message.json()["priority"].clone());
    assert_eq!(members(&created), (json!("http.path == \"/a\""), json!(7)));
    let changed = send(&gateway, "PATCH", "/routes/r", &json!({ "expression": "net.port == 80" }));
    assert_eq!(members(&changed), (json!("net.port == 80"), json!(7)));
    let refused = send(&gateway, "PATCH", "/routes/r", &json!({ "expression": "http.path ==" }));
    assert_eq!(refused.status, 400);
    let fields = gateway.admin("/schemas/routes").json()["fields"].to_string();
    assert!(fields.contains(r#""expression""#) && fields.contains(r#""priority":{"#), "{fields}");
    assert_eq!(gateway.admin("/").json()["configuration"]["router_flavor"], "expressions");
}

#[test]
fn other_flavors_show_no_expressions() {
    let gateway = Gateway::empty().start();
    let created = send(&gateway, "PUT", "/routes/r", &json!({ "paths": ["/"] })).json();
    assert!(created.get("expression").is_none() && created.get("priority").is_none(), "{created}");
    let fields = gateway.admin("/schemas/routes").json()["fields"].to_string();
    assert!(!fields.contains(r#""expression""#) && !fields.contains(r#""priority":{"#), "{fields}");
    assert_eq!(gateway.admin("/").json()["configuration"]["router_flavor"], "traditional_compatible");
}

#[test]
fn a_file_is_checked_and_explained() {
    let file = |expression: &str| {
        let service = json!({ "name": "s", "url": "http://s.test", "routes": [
            { "name": "r", "expression": expression },
            { "name": "criteria", "paths": ["/"] },
        ] });
        format!("_format_version: \"3.0\"\nservices: [{service}]\n")
    };
    let start = |text: &str| Gateway::builder(text).set("router_flavor", "expressions");
    let gateway = start(&file("http.path ^= \"/a\" && net.port == 80")).start();
    assert!(gateway.log().contains("the field 'net.port' of expressions is deprecated"), "{}", gateway.log());
    let explained =
        gateway.ask_admin("POST", "/explain", r#"{"path": "/a/b", "port": 80, "host": "a.test"}"#).json();
    assert_eq!(
        (&explained["route"]["name"], &explained["route"]["matched_path"]),
        (&json!("r"), &json!("/a"))
    );
    assert_eq!(explained["route"]["criteria"], json!(["expression"]));
    assert!(
        explained["others"][0]["reason"].as_str().unwrap().contains("routes with an expression come first")
    );
    let (_, errors) = start(&file("http.path ^= 1")).fail();
    let mismatch = "Type mismatch between the LHS and RHS values of predicate: `http.path` is a text (line 1, column 1); \
                    write \"1\"";
    assert!(
        errors.contains(mismatch) && errors.contains("routes[0].expression: Router Expression"),
        "{errors}"
    );
}

#[test]
fn an_explanation_names_the_predicates_that_fail() {
    let routes = json!([
        { "name": "v2", "expression": "http.path ^= \"/v2\" && http.method == \"GET\"" },
        { "name": "negated", "expression": "!(net.dst.port == 80 || http.headers.x_key == \"k\")" },
        { "name": "header", "expression": "http.headers.x_key == \"other\" && any(http.queries.q) == \"1\"" },
    ]);
    let file = |routes: &Value| {
        format!(
            "_format_version: \"3.0\"\nservices: [{}]\n",
            json!({ "name": "s", "url": "http://s.test", "routes": routes })
        )
    };
    let gateway = Gateway::builder(&file(&routes)).set("router_flavor", "expressions").start();
    let file = gateway.file();
    let explain = |arguments: &[&str]| {
        let request = ["explain", file.to_str().unwrap(), "GET", "http://a.test:80/v1/x", "-H", "X-Key: k"];
        weir().args(request).args(arguments).output().unwrap()
    };
    let json = explain(&["--set", "router_flavor=expressions", "--json"]);
    let explained: Value = serde_json::from_slice(&json.stdout).unwrap_or_else(|_| panic!("{json:?}"));
    let asked = json!({ "path": "/v1/x", "port": 80, "host": "a.test:80", "headers": { "X-Key": "k" } });
    assert_eq!(gateway.ask_admin("POST", "/explain", &asked.to_string()).json(), explained);
    let of =
        |name: &str| explained["others"].as_array().unwrap().iter().find(|it| it["name"] == name).unwrap();
    let failed =
        |predicate: &str, holds, value| json!({ "predicate": predicate, "holds": holds, "value": value });
    assert_eq!(of("v2")["predicates"], json!([failed("http.path ^= \"/v2\"", false, json!("/v1/x"))]));
    assert_eq!(of("v2")["reason"], "`http.path ^= \"/v2\"` is false: http.path is `/v1/x`");
    let negated = [
        failed("net.dst.port == 80", true, json!("80")),
        failed("http.headers.x_key == \"k\"", true, json!(null)),
    ];
    assert_eq!(of("negated")["predicates"], json!(negated));
    assert_eq!(
        of("header")["reason"],
        "`http.headers.x_key == \"other\"` is false: http.headers.x_key has another value; \
         `any(http.queries.q) == \"1\"` is false: the request has no http.queries.q"
    );
    let other_flavor = explain(&[]);
    let errors = String::from_utf8(other_flavor.stderr).unwrap();
    assert!(errors.contains("it needs the setting `router_flavor = expressions`"), "{errors}");
}

#[test]
fn doubtful_expressions_are_warned_of_where_they_stand() {
    let routes = json!([
        { "name": "capitals", "expression": "http.method == \"GET\" && lower(http.path) == \"/A\"" },
        { "name": "single", "expression": "any(http.path) == \"/a\"" },
        { "name": "good", "expression": "any(lower(http.headers.x)) != \"a\"" },
    ]);
    let routes: Vec<_> = routes.as_array().unwrap().iter().map(|route| format!("  - {route}\n")).collect();
    let text = format!(
        "_format_version: \"3.0\"\nservices:\n- name: s\n  url: http://s.test\n  routes:\n{}",
        routes.concat()
    );
    let gateway = Gateway::builder(&text).set("router_flavor", "expressions").start();
    let check =
        weir().args(["check", "--set", "router_flavor=expressions"]).arg(gateway.file()).output().unwrap();
    let warnings = String::from_utf8(check.stderr).unwrap();
    let lines: Vec<_> = warnings.lines().collect();
    let [capitals, single] = &*lines else { panic!("{warnings}") };
    assert!(
        capitals.contains(":6:")
            && capitals.contains("routes[0].expression: `lower(http.path)` never matches"),
        "{capitals}"
    );
    assert!(capitals.ends_with("(line 1, column 25); write \"/a\""), "{capitals}");
    assert!(single.contains("`any(http.path)` has no effect"), "{single}");
}

/// What a stream listener passes on to.
fn stream_route(name: &str, upstream: &Upstream, fields: &Value) -> Value {
    let mut route = fields.clone();
    route["name"] = name.into();
    let (host, port) = (upstream.address.ip().to_string(), upstream.address.port());
    json!({ "name": name, "protocol": "tcp", "host": host, "port": port, "routes": [route] })
}

#[test]
fn connections_of_streams_meet_expressions() {
    let [low, high, old] =
        ["low", "high", "old"].map(|name| Upstream::start(move |mut peer, _| _ = peer.send(name)));
    let services = json!([
        stream_route(
            "low",
            &low,
            &json!({ "protocols": ["tcp"], "expression": "net.src.ip in 127.0.0.0/8", "priority": 1 })
        ),
        stream_route(
            "high",
            &high,
            &json!({ "protocols": ["tls"], "expression": "net.src.ip == 127.0.0.1", "priority": 2 })
        ),
        stream_route(
            "udp",
            &low,
            &json!({ "protocols": ["udp"], "expression": "net.src.ip in 127.0.0.0/8", "priority": 3 })
        ),
        stream_route("old", &old, &json!({ "protocols": ["tcp"], "sources": [{ "ip": "127.0.0.1" }] })),
    ]);
    let text = |services: &Value| format!("_format_version: \"3.0\"\nservices: {services}\n");
    let start = |text: &str, flavor| {
        Gateway::builder(text)
            .set("router_flavor", flavor)
            .set("stream_listen", "127.0.0.1:0, 127.0.0.1:0 ssl")
    };
    let gateway = start(&text(&services), "expressions").start();
    let met = |gateway: &Gateway| String::from_utf8(Peer::connect(gateway.stream(0)).rest()).unwrap();
    assert_eq!(met(&gateway), "low", "neither a route for TLS nor criteria");
    let over_tls = said_over_tls(gateway.stream(1), "a.test", &[]);
    assert!(over_tls.contains("high"), "{over_tls}");
    let rest = |services: &Value, from: usize| text(&services.as_array().unwrap()[from..].into());
    gateway.reload(&rest(&services, 2));
    assert_eq!(met(&gateway), "old");
    let (_, errors) = start(&text(&services), "traditional").fail();
    assert!(errors.contains("unknown field `expression`"), "{errors}");
    let mut bad = services;
    bad[0]["routes"][0]["expression"] = json!("http.path == \"/\"");
    let (_, errors) = start(&text(&bad), "expressions").fail();
    assert!(errors.contains("Unknown LHS field: `http.path`"), "{errors}");
}
