use super::*;
use crate::PLUGINS;
use serde_json::json;
use std::time::Duration;
use weir_plugin::Json;
use weir_plugin::testing::{self, Gateway};
use weir_plugin::{FailedTry, Source};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

fn zipkin(config: Json) -> Zipkin {
    let config = Config::from_value(&config).unwrap();
    Zipkin {
        traces: Traces::new(&config.propagation, &config.header_type, Some(&config.default_header_type)),
        queue: None,
        node_id: "node".into(),
        config,
    }
}

/// A request after the plugin's access hook, and its trace.
fn met(zipkin: &Zipkin, request: &str) -> (Exchange, Trace) {
    let mut exchange = Gateway::new(PLUGINS).exchange(request);
    assert!(matches!(zipkin.access(&mut exchange), Flow::Continue));
    let trace = *exchange.extensions.get::<Trace>().unwrap();
    (exchange, trace)
}

fn header(exchange: &Exchange, name: &str) -> String {
    String::from_utf8_lossy(exchange.request.headers.get(name).unwrap_or_default()).into_owned()
}

/// The spans as they would be sent: of the attempts, of the proxy, of the request.
fn sent(zipkin: &Zipkin, exchange: &Exchange, trace: &Trace) -> Vec<Json> {
    let spans = spans::of_request(zipkin, exchange, trace).into_iter();
    let json = |span: span::Span<'_>| serde_json::from_slice(&span.json(&trace.text(), "kong")).unwrap();
    spans.map(json).collect()
}

#[test]
fn spans_describe_the_request_the_proxy_and_each_attempt() {
    let zipkin = zipkin(json!({ "sample_ratio": 1, "default_service_name": "unknown" }));
    let (mut exchange, trace) =
        met(&zipkin, &format!("POST /p?q=1\ntraceparent: 00-{TRACE}-{SPAN}-01\nZipkin-Tags: fg=blue; bg"));
    let start = exchange.timing.start;
    let after = |milliseconds| start + Duration::from_millis(milliseconds);
    testing::try_failed(
        &mut exchange,
        FailedTry { address: None, port: 81, start: after(1), end: after(2), code: 504 },
    );
    testing::upstream_asked(&mut exchange, "[2001:db8::7]:9000".parse().unwrap());
    exchange.timing.upstream_start = Some(after(2));
    (exchange.timing.upstream_head, exchange.timing.end) = (Some(after(5)), Some(after(10)));
    (exchange.response.status, exchange.source) = (201, Source::Service);
    exchange.extensions.insert(HeadAt(after(6)));
    let trace = Trace { access: Some(after(1)), ..trace };
    let spans = sent(&zipkin, &exchange, &trace);
    let [failed, reached, proxy, request] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((&request["name"], &request["kind"]), (&json!("POST"), &json!("SERVER")));
    assert_eq!((&request["traceId"], &request["parentId"]), (&json!(TRACE), &json!(SPAN)));
    assert_eq!(
        request["remoteEndpoint"],
        json!({ "serviceName": "unknown", "port": 50000, "ipv4": "192.0.2.1" })
    );
    assert_eq!(
        request["tags"],
        json!({
            "lc": "kong", "http.method": "POST", "http.host": "gateway.test", "http.path": "/p",
            "http.protocol": "HTTP/1.1", "http.status_code": "201", "kong.node.id": "node", "fg": "blue"
        })
    );
    assert_eq!(proxy["name"], "POST (proxy)");
    assert_eq!(
        proxy["remoteEndpoint"],
        json!({ "serviceName": "orders", "ipv6": "2001:db8::7", "port": 9000 })
    );
    assert_eq!(
        (
            &proxy["tags"]["kong.service_name"],
            &proxy["tags"]["kong.route_name"],
            &proxy["tags"]["peer.hostname"]
        ),
        (&json!("orders"), &json!("all"), &json!("orders.test"))
    );
    assert_eq!(proxy["id"], json!(header(&exchange, "traceparent")[36..52]));
    for (span, name, duration) in [
        (failed, "POST (balancer try 1)", 1000),
        (reached, "POST (balancer try 2)", 3000),
        (proxy, "POST (proxy)", 9000),
    ] {
        assert_eq!((&span["name"], &span["kind"]), (&json!(name), &json!("CLIENT")));
        assert_eq!((&span["duration"], &span["parentId"]), (&json!(duration), &request["id"]), "{name}");
    }
    assert_eq!(
        (&failed["tags"]["error"], &failed["tags"]["http.status_code"]),
        (&json!("true"), &json!("504"))
    );
    assert_eq!(reached["tags"]["error"], Json::Null);
    let began = request["timestamp"].as_u64().unwrap();
    let moments = |span: &Json| {
        let moment =
            |it: &Json| (it["value"].as_str().unwrap().to_owned(), it["timestamp"].as_u64().unwrap() - began);
        span["annotations"].as_array().unwrap().iter().map(moment).collect::<Vec<_>>()
    };
    let expected =
        |list: &[(&str, u64)]| list.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect::<Vec<_>>();
    assert_eq!(moments(request), expected(&[("krs", 0), ("krf", 1000)]));
    let phases = [("kas", 1000), ("kaf", 2000), ("khs", 6000), ("khf", 6000), ("kbs", 6000), ("kbf", 10_000)];
    assert_eq!(moments(proxy), expected(&phases));
}

#[test]
fn the_span_is_the_clients_where_the_format_has_it_so() {
    let zipkin = zipkin(json!({ "sample_ratio": 0 }));
    let (exchange, trace) = met(&zipkin, &format!("GET /\nb3: {TRACE}-{SPAN}-1-0000000000000007"));
    assert_eq!((trace.request, trace.parent, trace.sampled), (0x00f067aa0ba902b7, Some(7), true));
    assert_eq!(header(&exchange, "b3"), format!("{TRACE}-{:016x}-1-{SPAN}", trace.proxy));
    let (exchange, trace) = met(&zipkin, &format!("GET /\ntraceparent: 00-{TRACE}-{SPAN}-00"));
    assert_eq!((trace.parent, trace.sampled), (Some(0x00f067aa0ba902b7), false));
    assert_eq!(header(&exchange, "traceparent"), format!("00-{TRACE}-{:016x}-00", trace.proxy));
}

#[test]
fn who_is_sampled_is_decided_by_the_client_and_else_by_the_ratio() {
    let of = |ratio: f64| zipkin(json!({ "sample_ratio": ratio }));
    assert!(met(&of(0.0), "GET /\nb3: d").1.sampled && !met(&of(1.0), "GET /\nb3: 0").1.sampled);
    assert!(met(&of(1.0), "GET /").1.sampled && !met(&of(0.0), "GET /").1.sampled);
    let quarter = of(0.25);
    let chosen = (0..400).filter(|_| met(&quarter, "GET /").1.sampled).count();
    assert!((40..160).contains(&chosen), "{chosen}");
}

#[test]
fn new_ids_are_as_long_as_configured() {
    let (exchange, trace) = met(&zipkin(json!({ "traceid_byte_count": 8 })), "GET /");
    assert_eq!(trace.text().len(), 16);
    assert_eq!(header(&exchange, "X-B3-TraceId"), format!("{:032x}", trace.id), "as Kong pads it");
    assert_eq!(met(&zipkin(json!({})), "GET /").1.text().len(), 32);
}

#[test]
fn tags_of_clients_are_read() {
    let read = |text| tags::of(text).collect::<Vec<_>>();
    assert_eq!(read("foo=bar; baz=qux qux "), [("foo", "bar"), ("baz", "qux qux")]);
    assert_eq!(read("a = b"), [("a", "b")]);
    assert_eq!(read("a=b=c;a==;a=b c=d"), [("a=b", "c"), ("a", "="), ("a", "b c=d")]);
    assert_eq!(read("; ;=;a=;=b;a; a b = c;é=ü"), [("é", "ü")]);
}

#[test]
fn what_clients_say_cannot_break_the_json() {
    let zipkin = zipkin(json!({ "sample_ratio": 1 }));
    let (mut exchange, trace) =
        met(&zipkin, "GET /\"x\nZipkin-Tags: a\"b=\"}],; lc=mine; http.status_code=1");
    exchange.response.status = 200;
    let spans = sent(&zipkin, &exchange, &trace);
    let tags = &spans.last().unwrap()["tags"];
    assert_eq!(tags["a\"b"], "\"}],");
    assert_eq!((&tags["lc"], &tags["http.status_code"]), (&json!("mine"), &json!("200")));
}
