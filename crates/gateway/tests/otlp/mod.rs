//! Spans over gRPC, to a collector by Python's grpcio.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Gateway, Identity, Upstream, closed_port, eventually, one_route};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// The collector; ends when it is dropped.
struct Collector {
    child: Child,
    lines: BufReader<ChildStdout>,
    port: u16,
}

impl Collector {
    /// One that does with its calls, one after another, as the plan says.
    fn start(plan: &str) -> Collector {
        Collector::at(0, plan, None)
    }

    fn at(port: u16, plan: &str, identity: Option<&Identity>) -> Collector {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-", &port.to_string(), plan]).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(identity) = identity {
            command.arg(identity.cert()).arg(identity.key());
        }
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(include_bytes!("server.py")).unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        Collector { child, lines, port: line.trim().parse().unwrap() }
    }

    /// What it was told next.
    fn call(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A gateway that tells a collector of each request, both of its spans at once.
fn telling(upstream: &Upstream, endpoint: &str, more: &str) -> crate::harness::Builder {
    let plugin = format!(
        "plugins:\n- name: opentelemetry\n  config:\n    traces_endpoint: {endpoint}\n    sampling_rate: 1\n    \
         queue: {{max_batch_size: 2, max_coalescing_delay: 3600, initial_retry_delay: 0.01{more}}}\n"
    );
    Gateway::builder(&(one_route(upstream.address) + &plugin))
}

fn dropped(gateway: &Gateway) -> u64 {
    let message = gateway.status("/metrics");
    let lines = message.text().lines().filter(|line| line.starts_with("weir_plugin_dropped_total{"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

#[test]
fn spans_arrive() {
    let (upstream, mut collector) = (Upstream::answering(OK), Collector::start(""));
    let endpoint = format!("grpc://127.0.0.1:{}\n    headers: {{X-Key: k}}", collector.port);
    let gateway = telling(&upstream, &endpoint, "").start();
    assert_eq!(gateway.get("/some?a=b").status, 200);
    let call = collector.call();
    assert_eq!(call["names"], serde_json::json!(["kong", "kong.balancer"]));
    assert_eq!(call["metadata"]["x-key"], "k");
    assert_eq!(call["resource"]["service.name"], "kong");
    assert!(call["urls"][0].as_str().unwrap().ends_with("/some?a=b"), "{call}");
    assert_eq!(call["traces"][0], call["traces"][1]);
}

#[test]
fn the_settings_say_which_spans_are_sent_and_of_how_many_traces() {
    let upstream = Upstream::answering(OK);
    for (instrumentations, names) in [
        ("balancer, router", &["kong.router", "kong.balancer"][..]),
        (
            "request,plugin_access",
            &["kong", "kong.access.plugin.correlation-id", "kong.access.plugin.opentelemetry"],
        ),
        ("request, dns_query", &["kong", "kong.dns"]),
    ] {
        let mut collector = Collector::start("");
        let plugins = format!(
            "plugins:\n- {{name: correlation-id}}\n- name: opentelemetry\n  config:\n    traces_endpoint: \
             grpc://127.0.0.1:{}\n    queue: {{max_batch_size: {}, max_coalescing_delay: 3600}}\n",
            collector.port,
            names.len()
        );
        let named = one_route(upstream.address).replace("127.0.0.1", "localhost");
        let gateway = Gateway::builder(&(named + &plugins))
            .set("tracing_instrumentations", instrumentations)
            .set("tracing_sampling_rate", "1")
            .start();
        assert_eq!(gateway.get("/").status, 200);
        assert_eq!(collector.call()["names"], serde_json::json!(names), "{instrumentations}");
    }
}

#[test]
fn the_nodes_log_arrives_and_what_is_said_of_deliveries_does_not() {
    let mut collector = Collector::start("");
    let plugins = format!(
        "plugins:\n- name: opentelemetry\n  config: {{logs_endpoint: \"grpc://127.0.0.1:{}\", queue: \
         {{max_batch_size: 1}}}}\n- name: http-log\n  config: {{http_endpoint: \"http://{}/\", queue: \
         {{max_retry_time: -1}}}}\n",
        collector.port,
        closed_port()
    );
    let gateway = Gateway::start(&(one_route(closed_port()) + &plugins));
    let mut told = Vec::new();
    for _ in 0..2 {
        let response = gateway.get("/");
        let id = response.header("X-Kong-Request-Id").unwrap();
        loop {
            told.push(collector.call());
            if told.last().unwrap()["attributes"]["request.id"] == *id {
                break;
            }
        }
        eventually("http-log has given up", || dropped(&gateway) > 0);
        eventually("which is in the log", || gateway.log().contains("entries are dropped"));
    }
    let failed =
        |told: &&Value| told["body"].as_str().unwrap().starts_with("connecting to the upstream failed");
    assert_eq!(told.iter().find(failed).unwrap()["severity"], "WARN");
    assert!(
        !told.iter().any(|told| told["body"].as_str().unwrap().contains("entries are dropped")),
        "{told:?}"
    );
}

#[test]
fn what_is_unavailable_is_tried_again() {
    let (upstream, mut collector) = (Upstream::answering(OK), Collector::start("14,14"));
    let gateway = telling(&upstream, &format!("grpc://127.0.0.1:{}", collector.port), "").start();
    gateway.get("/");
    let first = collector.call();
    for _ in 0..2 {
        assert_eq!(collector.call()["traces"], first["traces"]);
    }
    gateway.get("/");
    assert_ne!(collector.call()["traces"], first["traces"]);
    assert_eq!(dropped(&gateway), 0);
}

#[test]
fn what_is_refused_is_not_sent_again() {
    let (upstream, mut collector) = (Upstream::answering(OK), Collector::start("3"));
    let gateway = telling(&upstream, &format!("grpc://127.0.0.1:{}", collector.port), "").start();
    gateway.get("/");
    let first = collector.call();
    eventually("its spans are counted as dropped", || dropped(&gateway) == 2);
    assert!(gateway.log().contains("gRPC status 3 as planned"), "{}", gateway.log());
    gateway.get("/");
    assert_ne!(collector.call()["traces"], first["traces"]);
}

#[test]
fn spans_that_a_collector_does_not_take_are_told_of() {
    let (upstream, mut collector) = (Upstream::answering(OK), Collector::start("partial"));
    let gateway = telling(&upstream, &format!("grpc://127.0.0.1:{}", collector.port), "").start();
    gateway.get("/");
    let first = collector.call();
    eventually("the log says so", || {
        gateway.log().contains("the collector refused some of a batch: too old")
    });
    gateway.get("/");
    assert_ne!(collector.call()["traces"], first["traces"]);
}

#[test]
fn what_a_collector_had_when_it_died_goes_to_the_next() {
    let (upstream, mut collector) = (Upstream::answering(OK), Collector::start("hang"));
    let port = collector.port;
    let gateway = telling(&upstream, &format!("grpc://127.0.0.1:{port}"), "").start();
    gateway.get("/first");
    let first = collector.call();
    drop(collector);
    gateway.get("/second");
    let mut next = Collector::at(port, "", None);
    assert_eq!(next.call()["traces"], first["traces"]);
    assert!(next.call()["urls"][0].as_str().unwrap().ends_with("/second"));
    assert_eq!(dropped(&gateway), 0);
}

#[test]
fn a_collector_over_tls_is_verified() {
    let (upstream, authority) = (Upstream::answering(OK), Identity::new("authority"));
    let identity = Identity::signed("localhost", &authority);
    let mut collector = Collector::at(0, "", Some(&identity));
    let endpoint = format!("grpcs://localhost:{}", collector.port);
    let trusted = authority.cert().display().to_string();
    let gateway = telling(&upstream, &endpoint, "").set("lua_ssl_trusted_certificate", &trusted).start();
    gateway.get("/");
    assert_eq!(collector.call()["names"][0], "kong");
    let other = Identity::new("other");
    let stern = telling(&upstream, &endpoint, ", max_retry_time: -1");
    let stern = stern.set("lua_ssl_trusted_certificate", &other.cert().display().to_string()).start();
    stern.get("/");
    eventually("its spans are dropped", || dropped(&stern) == 2);
    assert!(stern.log().contains("certificate"), "{}", stern.log());
}

#[test]
fn a_server_that_speaks_something_else_is_told_of() {
    let (upstream, other) = (Upstream::answering(OK), Upstream::answering(OK));
    let endpoint = format!("grpc://127.0.0.1:{}", other.address.port());
    let gateway = telling(&upstream, &endpoint, ", max_retry_time: -1").start();
    assert_eq!(gateway.get("/").status, 200);
    eventually("its spans are dropped", || dropped(&gateway) == 2);
}
