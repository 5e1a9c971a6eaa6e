use super::*;
use crate::PLUGINS;
use serde_json::json;
use std::time::Duration;
use weir_plugin::Json;
use weir_plugin::testing::{self, Gateway};
use weir_plugin::{FailedTry, Source};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

/// A request after the plugin's access hook, and its trace.
fn met(config: Json, request: &str) -> (Exchange, Trace) {
    let gateway = Gateway::new(PLUGINS);
    let mut config = config;
    config["traces_endpoint"] = json!("http://collector.test/v1/traces");
    let plugin = gateway.plugin("opentelemetry", config).unwrap();
    let mut exchange = gateway.exchange(request);
    assert!(matches!(plugin.access(&mut exchange), Flow::Continue));
    let trace = *exchange.extensions.get::<Trace>().unwrap();
    (exchange, trace)
}

fn upstream_header<'e>(exchange: &'e Exchange, name: &str) -> Option<&'e str> {
    exchange.request.headers.get(name).map(|value| std::str::from_utf8(value).unwrap())
}

#[test]
fn the_upstream_gets_the_format_of_the_client() {
    let (exchange, trace) =
        met(json!({ "sampling_rate": 1 }), &format!("GET /\ntraceparent: 00-{TRACE}-{SPAN}-01"));
    assert_eq!(trace.parent, Some(0x00f067aa0ba902b7));
    let expected = format!("00-{TRACE}-{:016x}-01", trace.onward.span);
    assert_eq!(
        (upstream_header(&exchange, "traceparent"), upstream_header(&exchange, "b3")),
        (Some(&*expected), None)
    );
    let (exchange, trace) = met(json!({ "sampling_rate": 1 }), &format!("GET /\nb3: {SPAN}-{SPAN}-1"));
    let expected = format!("{SPAN}-{:016x}-1-{:016x}", trace.onward.span, trace.root);
    assert_eq!(
        (upstream_header(&exchange, "b3"), upstream_header(&exchange, "traceparent")),
        (Some(&*expected), None)
    );
    let (exchange, _) =
        met(json!({}), &format!("GET /\nX-B3-TraceId: {TRACE}\nX-B3-SpanId: {SPAN}\nX-B3-Sampled: 0"));
    assert_eq!(
        (upstream_header(&exchange, "X-B3-TraceId"), upstream_header(&exchange, "X-B3-Sampled")),
        (Some(TRACE), Some("0"))
    );
    let (exchange, trace) = met(json!({ "sampling_rate": 0 }), "GET /");
    assert!(upstream_header(&exchange, "traceparent").unwrap().ends_with("-00"));
    assert_eq!(trace.parent, None);
}

#[test]
fn propagation_says_what_is_read_cleared_and_written() {
    let both = format!("GET /\ntraceparent: 00-{TRACE}-{SPAN}-01\nb3: {SPAN}-{SPAN}-1");
    let read = |config: Json| met(config, &both).1.onward.trace;
    assert_eq!(read(json!({})), 0x00f067aa0ba902b7, "B3 comes first");
    assert_eq!(
        read(json!({ "propagation": { "extract": ["w3c", "b3"], "default_format": "w3c" } })),
        0x4bf92f3577b34da6a3ce929d0e0e4736
    );
    assert_ne!(read(json!({ "header_type": "ignore" })) >> 64, 0);
    let config = json!({ "propagation": {
        "extract": ["w3c"], "clear": ["b3"], "inject": ["b3", "jaeger"], "default_format": "w3c",
    } });
    let (exchange, _) = met(config, &both);
    assert_eq!(
        (upstream_header(&exchange, "b3"), upstream_header(&exchange, "X-B3-TraceId")),
        (None, Some(TRACE))
    );
    assert!(upstream_header(&exchange, "traceparent").unwrap().contains(SPAN), "it must not be cleared");
    let (exchange, _) = met(json!({ "header_type": "b3-single" }), "GET /");
    assert!(
        upstream_header(&exchange, "traceparent").is_some() && upstream_header(&exchange, "b3").is_some()
    );
}

#[test]
fn clients_and_the_rate_decide_what_is_sampled() {
    let sampled = |config: Json, flags: &str| {
        met(config, &format!("GET /\ntraceparent: 00-{TRACE}-{SPAN}-{flags}")).1.onward.sampled
    };
    assert!(sampled(json!({ "sampling_rate": 1 }), "01"));
    assert!(!sampled(json!({ "sampling_rate": 1 }), "00"));
    assert!(!sampled(json!({ "sampling_rate": 0 }), "01"));
    let config = json!({ "sampling_rate": 0.25 });
    let chosen = (0..400).filter(|_| met(config.clone(), "GET /").1.onward.sampled).count();
    assert!((40..160).contains(&chosen), "{chosen}");
}

#[test]
fn spans_describe_the_request_and_each_attempt() {
    let (mut exchange, trace) =
        met(json!({ "sampling_rate": 1 }), &format!("GET /p?q=1\ntraceparent: 00-{TRACE}-{SPAN}-01"));
    let start = exchange.timing.start;
    let after = |milliseconds| start + Duration::from_millis(milliseconds);
    testing::try_failed(
        &mut exchange,
        FailedTry { address: None, port: 81, start: after(1), end: after(2), code: 504 },
    );
    testing::upstream_asked(&mut exchange, "192.0.2.7:9000".parse().unwrap());
    (exchange.timing.upstream_start, exchange.timing.end) = (Some(after(2)), Some(after(10)));
    (exchange.response.status, exchange.source) = (201, Source::Service);
    let spans = spans::of(&exchange, &trace, Instrumentations::default());
    let [root, failed, succeeded] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((root.parent_span_id.as_slice(), root.kind), (&0x00f067aa0ba902b7u64.to_be_bytes()[..], 2));
    assert_eq!(root.end_time_unix_nano - root.start_time_unix_nano, 10_000_000);
    let attribute = |span: &otlp::Span, key: &str| {
        span.attributes.iter().find(|it| it.key == key).and_then(|it| it.value.clone()?.value)
    };
    let text = |text: &str| Some(otlp::Value::StringValue(text.to_owned()));
    assert_eq!(attribute(root, "http.url"), text("http://gateway.test/p?q=1"));
    assert_eq!(attribute(root, "http.status_code"), Some(otlp::Value::IntValue(201)));
    assert_eq!(attribute(root, "http.route"), text("/"));
    for span in [failed, succeeded] {
        assert_eq!((&*span.name, &span.parent_span_id, span.kind), ("kong.balancer", &root.span_id, 3));
        assert_eq!(span.trace_id, 0x4bf92f3577b34da6a3ce929d0e0e4736u128.to_be_bytes());
    }
    assert_eq!(failed.status, Some(otlp::Status { code: 2, ..otlp::Status::default() }));
    assert_eq!(
        (&succeeded.status, succeeded.span_id.as_slice()),
        (&None, &trace.onward.span.to_be_bytes()[..])
    );
    assert_ne!(failed.span_id, succeeded.span_id);
    assert_eq!(attribute(succeeded, "net.peer.ip"), text("192.0.2.7"));
}
