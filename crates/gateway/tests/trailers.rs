//! What a client may say in the trailers of a request: nothing that headers say, and nothing that plugins say.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::http2::{block_on, connect, read, start};
use crate::harness::{Gateway, Upstream, document, service};
use crate::http3::client::Client;
use http::{HeaderMap, HeaderName, Request};
use serde_json::{Value, json};

/// What every client of these tests sends behind its body.
const TRAILERS: [&str; 16] = [
    "x-sum",
    "x-consumer-username",
    "x_userinfo",
    "x-id-token",
    "session-id",
    "secret-key",
    "x-user",
    "x-removed",
    "x-renamed",
    "x-rewritten",
    "x-by-lua",
    "x_sent",
    "authorization",
    "if-none-match",
    "max-forwards",
    "www-authenticate",
];

/// Plugins that own headers, each whether the request has them or not.
fn plugins() -> Value {
    json!([
        { "name": "openid-connect", "config": {
            "client_id": "a", "client_secret": "b", "discovery": "http://127.0.0.1:1/", "unauth_action": "pass",
            "session": { "secret": "a secret of sixteen letters" },
        } },
        { "name": "session", "config": { "secret": "a secret of sixteen letters", "request_headers": ["id"] } },
        { "name": "key-auth", "config": { "key_names": ["secret-key"], "hide_credentials": true, "anonymous": "guest" } },
        { "name": "request-transformer", "config": {
            "remove": { "headers": ["x-removed"] }, "rename": { "headers": ["x-old:x-renamed"] },
        } },
        { "name": "proxy-rewrite", "config": { "headers": { "remove": ["x-rewritten"] } } },
        { "name": "forward-auth", "config": { "url": "http://127.0.0.1:1/", "fail_open": true, "upstream_headers": ["X-User"] } },
        { "name": "post-function", "config": { "access": ["kong.request.get_raw_body() kong.service.request.clear_header('X-By-Lua')"] } },
    ])
}

/// A gateway whose upstream answers with the names of the trailers that it gets.
fn gateway(plugins: &Value) -> (Gateway, Upstream) {
    let upstream = Upstream::start(|mut peer, _| {
        while let Some(request) = peer.request() {
            let names: Vec<_> = request.trailers.into_iter().map(|(name, _)| name.to_lowercase()).collect();
            let names = names.join(" ");
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{names}", names.len()));
        }
    });
    let services = [service("/", upstream.address, "", &format!("plugins: {plugins}"))];
    let consumers = json!([{ "username": "guest" }]);
    let text = document(&services, &format!("consumers: {consumers}\n"));
    let listen = "127.0.0.1:0 http2, 127.0.0.1:0 ssl http2, 127.0.0.1:0 quic";
    let gateway = Gateway::builder(&text).set("proxy_listen", listen).set("untrusted_lua", "on").start();
    (gateway, upstream)
}

fn over_http1(gateway: &Gateway) -> String {
    trailers_over_http1(gateway, &TRAILERS)
}

fn trailers_over_http1(gateway: &Gateway, names: &[&str]) -> String {
    let trailers: String = names.iter().map(|name| format!("{name}: forged\r\n")).collect();
    let mut client = gateway.connect();
    client.send(
        "POST / HTTP/1.1\r\nHost: localhost\r\nX-Sent: a\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    let response = client.send(format!("2\r\nyo\r\n0\r\n{trailers}\r\n")).response();
    assert_eq!(response.status, 200, "{}", response.text());
    response.text().to_owned()
}

fn over_http2(gateway: &Gateway) -> String {
    post_over_http2(gateway, Request::post("http://localhost/"))
}

fn over_http2_with_length(gateway: &Gateway) -> String {
    post_over_http2(gateway, Request::post("http://localhost/").header("content-length", 2))
}

fn post_over_http2(gateway: &Gateway, request: http::request::Builder) -> String {
    let trailer = |name| (HeaderName::from_static(name), "forged".parse().unwrap());
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        let request = request.header("x-sent", "a").body(()).unwrap();
        let (response, mut body) = start(&requests, request, false).await.unwrap();
        body.send_data("yo".into(), false).unwrap();
        body.send_trailers(HeaderMap::from_iter(TRAILERS.map(trailer))).unwrap();
        let (response, _) = read(response.await.unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
        response.into_body()
    })
}

fn over_http3(gateway: &Gateway) -> String {
    let trailers: Vec<_> = TRAILERS.iter().map(|name| json!([name, "forged"])).collect();
    let mut client = Client::connect(gateway.proxy_quic());
    let more = json!({ "body": 2, "trailers": trailers, "add": [["x-sent", "a"]] });
    let said = client.ask("a", ("POST", "/"), &more).response("a");
    assert_eq!(said.status(), 200, "{said:?}");
    said.text().to_owned()
}

#[test]
fn trailers_do_not_speak_for_headers_of_plugins() {
    let (gateway, _upstream) = gateway(&plugins());
    for ask in [over_http1, over_http2, over_http2_with_length, over_http3] {
        assert_eq!(ask(&gateway), "x-sum");
    }
}

#[test]
fn trailers_that_no_plugin_owns_pass() {
    let (gateway, _upstream) = gateway(&json!([]));
    let expected =
        "x-sum x_userinfo x-id-token session-id secret-key x-user x-removed x-renamed x-rewritten x-by-lua";
    for ask in [over_http1, over_http2, over_http3] {
        let mut names: Vec<String> = ask(&gateway).split(' ').map(str::to_owned).collect();
        names.sort_unstable();
        let mut expected: Vec<&str> = expected.split(' ').collect();
        expected.sort_unstable();
        assert_eq!(names, expected);
    }
}

#[test]
fn trailers_do_not_name_another_trace() {
    const NAMES: [&str; 12] = [
        "x-sum",
        "traceparent",
        "tracestate",
        "b3",
        "x-b3-traceid",
        "x-b3-flags",
        "X_B3_Flags",
        "uber-trace-id",
        "uberctx-user",
        "ot-baggage-user",
        "x-datadog-trace-id",
        "x-cleared",
    ];
    let of = |inject: Value| json!({ "inject": inject, "clear": ["X-Cleared"], "default_format": "w3c" });
    let zipkin = |inject| json!([{ "name": "zipkin", "config": { "propagation": of(inject) } }]);
    let opentelemetry = |inject| {
        let config = json!({ "traces_endpoint": "http://127.0.0.1:1/v1/traces", "propagation": of(inject) });
        json!([{ "name": "opentelemetry", "config": config }])
    };
    for plugins in
        [zipkin(json!(["b3"])), opentelemetry(json!(["w3c", "jaeger"])), zipkin(json!(["preserve"]))]
    {
        let (gateway, _upstream) = gateway(&plugins);
        assert_eq!(trailers_over_http1(&gateway, &NAMES), "x-sum", "{plugins}");
    }
    let expected = NAMES.map(str::to_lowercase).join(" ");
    let (without, _upstream) = gateway(&json!([]));
    assert_eq!(trailers_over_http1(&without, &NAMES), expected);
    let (clears, _upstream) = gateway(&opentelemetry(Value::Null));
    assert_eq!(trailers_over_http1(&clears, &NAMES), expected.replace(" x-cleared", ""));
}
