//! The spans of a request.

use super::Trace;
use super::otlp::{KeyValue, Span, SpanKind, Status, StatusCode, Value, attribute, valued};
use std::net::SocketAddr;
use std::time::SystemTime;
use tokio::time::Instant;
use weir_plugin::{Exchange, Instrumentations, TracedStep, Version, without_port};

/// The span of the whole request, one for each recorded step, and one for each attempt to reach the upstream: those
/// that `tracing_instrumentations` has.
pub(super) fn of(exchange: &Exchange, trace: &Trace, on: Instrumentations) -> Vec<Span> {
    let clock = Clock { at_start: exchange.started_at(), start: exchange.timing.start };
    let mut spans: Vec<_> = on.request.then(|| root(exchange, trace, &clock)).into_iter().collect();
    spans.extend(exchange.traced_steps().iter().map(|step| of_step(step, trace, &clock)));
    if on.balancer {
        spans.extend(attempts(exchange, trace, &clock));
    }
    spans
}

/// A step within the gateway.
fn of_step(step: &TracedStep, trace: &Trace, clock: &Clock) -> Span {
    Span {
        trace_id: trace.onward.trace.to_be_bytes().to_vec(),
        span_id: id(fastrand::u64(1..)),
        parent_span_id: id(trace.root),
        name: step.name.clone().into_owned(),
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: clock.nanoseconds(step.start),
        end_time_unix_nano: clock.nanoseconds(step.end),
        ..Span::default()
    }
}

/// The attempts to reach the upstream.
fn attempts(exchange: &Exchange, trace: &Trace, clock: &Clock) -> Vec<Span> {
    let mut spans = Vec::new();
    let failed = exchange.failed_tries();
    for (at, tried) in failed.iter().enumerate() {
        let mut span = attempt(exchange, trace, at + 1, (tried.address, tried.port));
        // The last attempt uses the span id that the upstream got, or would have got.
        let is_last = at + 1 == failed.len() && exchange.upstream_address().is_none();
        span.span_id = id(if is_last { trace.onward.span } else { fastrand::u64(1..) });
        (span.start_time_unix_nano, span.end_time_unix_nano) =
            (clock.nanoseconds(tried.start), clock.nanoseconds(tried.end));
        span.attributes.push(valued("http.status_code", Value::IntValue(tried.code.into())));
        span.status = Some(Status { code: StatusCode::Error.into(), ..Status::default() });
        spans.push(span);
    }
    if let Some((address, start)) = exchange.upstream_address().zip(exchange.timing.upstream_start) {
        let mut span = attempt(exchange, trace, failed.len() + 1, (Some(address), address.port()));
        let end = exchange.timing.end.unwrap_or(start);
        (span.start_time_unix_nano, span.end_time_unix_nano) =
            (clock.nanoseconds(start), clock.nanoseconds(end));
        spans.push(span);
    }
    spans
}

/// Converts instants to wall-clock time.
struct Clock {
    at_start: SystemTime,
    start: Instant,
}

impl Clock {
    fn nanoseconds(&self, moment: Instant) -> u64 {
        let at = self.at_start + moment.saturating_duration_since(self.start);
        let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

fn id(id: u64) -> Vec<u8> {
    id.to_be_bytes().to_vec()
}

fn root(exchange: &Exchange, trace: &Trace, clock: &Clock) -> Span {
    let end = exchange.timing.end.unwrap_or(exchange.timing.start);
    Span {
        trace_id: trace.onward.trace.to_be_bytes().to_vec(),
        span_id: id(trace.root),
        parent_span_id: trace.parent.map(id).unwrap_or_default(),
        name: "kong".to_owned(),
        kind: SpanKind::Server.into(),
        start_time_unix_nano: clock.nanoseconds(exchange.timing.start),
        end_time_unix_nano: clock.nanoseconds(end),
        attributes: of_request(exchange),
        ..Span::default()
    }
}

fn of_request(exchange: &Exchange) -> Vec<KeyValue> {
    let (request, scheme) = (&exchange.request, exchange.scheme());
    let host = without_port(request.host().unwrap_or_default());
    let flavor = match request.version {
        Version::Http10 => "1.0",
        Version::Http11 => "1.1",
        Version::Http2 => "2.0",
        Version::Http3 => "3.0",
    };
    let paths = exchange.route().and_then(|route| route.entity.paths.as_ref());
    let route = paths.and_then(|paths| paths.first()).map_or("", String::as_str);
    vec![
        attribute("http.method", request.method_str()),
        attribute("http.url", format!("{scheme}://{host}{}", request.target())),
        attribute("http.host", host),
        attribute("http.scheme", scheme),
        attribute("http.flavor", flavor),
        attribute("http.client_ip", exchange.client_ip.to_string()),
        attribute("net.peer.ip", exchange.peer.ip().to_string()),
        attribute("kong.request.id", exchange.id()),
        valued("http.status_code", Value::IntValue(exchange.response.status.into())),
        attribute("http.route", route),
    ]
}

/// The common part of all attempts, including the one whose span id the upstream got.
fn attempt(
    exchange: &Exchange,
    trace: &Trace,
    number: usize,
    (address, port): (Option<SocketAddr>, u16),
) -> Span {
    let mut attributes = vec![
        valued("try_count", Value::DoubleValue(number as f64)),
        valued("net.peer.port", Value::DoubleValue(port.into())),
        attribute("http.method", exchange.request.method_str()),
    ];
    attributes.extend(address.map(|address| attribute("net.peer.ip", address.ip().to_string())));
    attributes.extend(exchange.service().map(|service| attribute("net.peer.name", &*service.host)));
    Span {
        trace_id: trace.onward.trace.to_be_bytes().to_vec(),
        span_id: id(trace.onward.span),
        parent_span_id: id(trace.root),
        name: "kong.balancer".to_owned(),
        kind: SpanKind::Client.into(),
        attributes,
        ..Span::default()
    }
}
