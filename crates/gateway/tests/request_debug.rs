//! `X-Kong-Request-Debug`: where the time of a request went.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Builder, Gateway, Upstream, eventually, one_route};
use crate::upgrade::Node;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const ASK: &str = "X-Kong-Request-Debug: *\r\n";
const OUTPUT: &str = "X-Kong-Request-Debug-Output";

fn gateway(upstream: &Upstream, more: &str) -> Builder {
    Gateway::builder(&(one_route(upstream.address) + more)).set("trusted_ips", "127.0.0.1")
}

fn output(gateway: &Gateway, headers: &str) -> Option<Value> {
    let response = gateway.get_with("/", headers);
    response.header(OUTPUT).map(|output| serde_json::from_str(output).unwrap())
}

fn token(gateway: &Gateway) -> String {
    std::fs::read_to_string(gateway.prefix().join(".request_debug_token")).unwrap()
}

/// What comes from elsewhere, as a trusted proxy says.
fn elsewhere(token: &str) -> String {
    format!("{ASK}X-Real-IP: 192.0.2.1\r\nX-Kong-Request-Debug-Token: {token}\r\n")
}

#[test]
fn clients_here_may_ask_and_others_with_the_token() {
    let upstream = Upstream::echoing();
    let gateway = gateway(&upstream, "").start();
    assert!(output(&gateway, "").is_none());
    assert!(output(&gateway, "X-Kong-Request-Debug: access\r\n").is_none());
    assert!(output(&gateway, ASK).is_some());
    assert!(output(&gateway, &elsewhere("guess")).is_none());
    let token = token(&gateway);
    let response = gateway.get_with("/", &elsewhere(&token));
    assert!(response.header(OUTPUT).is_some());
    assert!(!response.text().to_lowercase().contains("request-debug"), "{}", response.text());
    assert!(!gateway.log().contains(&token), "the token is in the log");
    let file = gateway.prefix().join(".request_debug_token");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn the_token_may_be_set_and_the_whole_turned_off() {
    let upstream = Upstream::answering(OK);
    let own = gateway(&upstream, "").set("request_debug_token", "my-token").start();
    assert_eq!(token(&own), "my-token");
    assert!(output(&own, &elsewhere("my-token")).is_some());
    let upstream = Upstream::echoing();
    let off = gateway(&upstream, "").set("request_debug", "off").set("request_debug_token", "t").start();
    let response = off.get_with("/", &elsewhere("t"));
    assert!(response.header(OUTPUT).is_none());
    assert!(response.text().to_lowercase().contains("x-kong-request-debug: *"), "{}", response.text());
    assert!(!off.prefix().join(".request_debug_token").exists());
}

#[test]
fn the_token_outlives_upgrades_whether_they_succeed_or_not() {
    let upstream = Upstream::answering(OK);
    let node = Node::start(gateway(&upstream, "").set("request_debug", "on"));
    let first = token(&node.gateway);
    let is_known = || {
        assert_eq!(token(&node.gateway), first);
        assert!(output(&node.gateway, &elsewhere(&first)).is_some());
    };
    let good = std::fs::read_to_string(node.gateway.file()).unwrap();
    std::fs::write(node.gateway.file(), "_format_version: \"3.0\"\nservices: [{name: s}]\n").unwrap();
    assert!(node.refused(&[]).contains("did not start"));
    is_known();
    std::fs::write(node.gateway.file(), good).unwrap();
    node.upgrade();
    is_known();
    node.upgrade();
    is_known();
}

#[test]
fn phases_plugins_names_and_connections_are_told() {
    let upstream = Upstream::answering(OK);
    let plugins = "plugins:\n- {name: correlation-id, id: 11111111-0000-4000-8000-000000000001}\n\
                   - {name: response-transformer, id: 11111111-0000-4000-8000-000000000002, config: {add: {headers: ['a:b']}}}\n";
    let configuration = one_route(upstream.address).replace("127.0.0.1", "localhost") + plugins;
    let gateway = Gateway::start(&configuration);
    let output = output(&gateway, &format!("{ASK}X-Kong-Request-Debug-Log: true\r\n")).unwrap();
    let id = output["request_id"].as_str().unwrap();
    let child = &output["child"];
    for phase in ["rewrite", "access", "balancer", "header_filter", "upstream"] {
        assert!(child[phase]["total_time"].is_f64(), "{phase}: {output}");
    }
    let access = &child["access"]["child"];
    assert!(access["router"]["total_time"].is_f64(), "{output}");
    assert!(access["dns"]["child"]["localhost"]["child"]["resolve"]["cache_hit"].is_boolean(), "{output}");
    let plugin =
        &access["plugins"]["child"]["correlation-id"]["child"]["11111111-0000-4000-8000-000000000001"];
    assert!(plugin["total_time"].is_f64(), "{output}");
    let filter = &child["header_filter"]["child"]["plugins"]["child"]["response-transformer"]["child"];
    assert!(filter["11111111-0000-4000-8000-000000000002"]["total_time"].is_f64(), "{output}");
    let connections = child["balancer"]["child"]["connections"]["child"].as_object().unwrap();
    assert!(connections.keys().any(|to| to.ends_with(&format!(":{}", upstream.address.port()))), "{output}");
    assert!(child["upstream"]["child"]["streaming"].is_null() && child["log"].is_null());
    let line =
        || gateway.log().lines().find(|line| line.contains("[request-debug] output:")).map(str::to_owned);
    eventually("the log tells it", || line().is_some());
    let line = line().unwrap();
    assert!(line.contains(id) && line.contains("streaming") && line.contains("body_filter"), "{line}");
}

#[test]
fn an_answer_of_the_gateway_itself_is_told_of_too() {
    let upstream = Upstream::answering(OK);
    let gateway =
        gateway(&upstream, "plugins: [{name: request-termination, config: {status_code: 418}}]\n").start();
    let output = output(&gateway, ASK).unwrap();
    assert!(output["child"]["upstream"].is_null(), "{output}");
    assert!(
        output["child"]["access"]["child"]["plugins"]["child"]["request-termination"].is_object(),
        "{output}"
    );
    let nowhere = Gateway::start("_format_version: \"3.0\"\n");
    assert!(nowhere.get_with("/", ASK).header(OUTPUT).is_some());
}

/// What the log has of a request, put together from its parts.
fn logged(gateway: &Gateway, id: &str) -> Option<Value> {
    let log = gateway.log();
    let lines = log.lines().filter(|line| line.contains("[request-debug]") && line.contains(id));
    let piece = |line: &str| Some(line.split_once("output: ")?.1.rsplit_once(" request_id=")?.0.to_owned());
    serde_json::from_str(&lines.filter_map(piece).collect::<String>()).ok()
}

#[test]
fn a_long_output_goes_to_the_log() {
    let upstream = Upstream::answering(OK);
    // An id of its own for each makes it long.
    let plugins = [
        "zipkin, config: {}",
        "correlation-id, config: {}",
        "request-id, config: {}",
        "bot-detection, config: {}",
        "cors, config: {}",
        "ip-restriction, config: {allow: [127.0.0.1, 192.0.2.1]}",
        "request-size-limiting, config: {}",
        "rate-limiting, config: {minute: 100}",
        "response-ratelimiting, config: {limits: {a: {minute: 100}}}",
        "request-transformer, config: {add: {headers: ['a:b']}}",
        "response-transformer, config: {add: {headers: ['a:b']}}",
        "proxy-cache, config: {strategy: memory}",
        "opentelemetry, config: {traces_endpoint: 'http://127.0.0.1:1/', sampling_rate: 0}",
        "file-log, config: {path: /dev/null}",
    ];
    let plugins = plugins.map(|plugin| format!("- {{name: {plugin}}}\n")).concat();
    let gateway = gateway(&upstream, &format!("plugins:\n{plugins}")).set("request_debug_token", "t").start();
    let cut = output(&gateway, &elsewhere("t")).unwrap();
    assert_eq!(cut["truncated"], true, "{cut}");
    let id = cut["request_id"].as_str().unwrap();
    eventually("the log has all of it", || logged(&gateway, id).is_some());
    let logged = logged(&gateway, id).unwrap();
    assert!(logged["child"]["log"]["child"]["plugins"]["child"]["file-log"].is_object(), "{logged}");
    assert!(output(&gateway, ASK).unwrap()["child"].is_object(), "a client here gets whatever there is");
}
