//! The spans of a request, and those of a session of a stream listener.

use super::span::{Remote, Span, Tags};
use super::{HeadAt, Trace, Zipkin, tags};
use std::net::SocketAddr;
use std::time::SystemTime;
use tokio::time::Instant;
use weir_plugin::entity::{Route, Service};
use weir_plugin::{Exchange, Session, Version, without_port};

const SERVER: &str = "SERVER";
const CLIENT: &str = "CLIENT";

/// Converts instants to wall-clock time.
struct Clock(SystemTime, Instant);

impl Clock {
    fn at(&self, moment: Instant) -> u64 {
        microseconds(self.0 + moment.saturating_duration_since(self.1))
    }
}

fn microseconds(at: SystemTime) -> u64 {
    u64::try_from(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros())
        .unwrap_or(u64::MAX)
}

/// When a request passed Kong's phases.
struct Phases {
    start: Instant,
    access: Instant,
    asked: Instant,
    head: Instant,
    end: Instant,
}

impl Phases {
    fn of(exchange: &Exchange, trace: &Trace) -> Self {
        let timing = &exchange.timing;
        let end = timing.end.unwrap_or_else(Instant::now);
        let head = exchange.extensions.get::<HeadAt>().map_or(end, |HeadAt(at)| *at);
        let asked = timing.upstream_start.unwrap_or(head);
        Self { start: timing.start, access: trace.access.unwrap_or(asked), asked, head, end }
    }
}

/// The attempts to reach the upstream, the span of the proxy, and that of the request.
pub(super) fn of_request<'a>(zipkin: &'a Zipkin, exchange: &'a Exchange, trace: &Trace) -> Vec<Span<'a>> {
    let clock = Clock(exchange.started_at(), exchange.timing.start);
    let mut request = request(zipkin, exchange, trace);
    let mut spans = attempts(zipkin, exchange, (trace, &request.name), &clock);
    let mut proxy = proxy(zipkin, exchange, (trace, &request.name));
    let phases = Phases::of(exchange, trace);
    (request.start, request.end) = (clock.at(phases.start), clock.at(phases.end));
    (proxy.start, proxy.end) = (clock.at(phases.access), clock.at(phases.end));
    tell_phases(zipkin, (&mut request, &mut proxy), &phases, &clock);
    spans.extend([proxy, request]);
    spans
}

fn tell_phases(
    zipkin: &Zipkin,
    (request, proxy): (&mut Span<'_>, &mut Span<'_>),
    phases: &Phases,
    clock: &Clock,
) {
    let Phases { start, access, asked, head, end } = *phases;
    if zipkin.config.phase_duration_flavor == "annotations" {
        let at = |moments: &[(&'static str, Instant)]| {
            moments.iter().map(|(name, moment)| (*name, clock.at(*moment))).collect()
        };
        request.annotations = at(&[("krs", start), ("krf", access)]);
        proxy.annotations =
            at(&[("kas", access), ("kaf", asked), ("khs", head), ("khf", head), ("kbs", head), ("kbf", end)]);
    } else {
        let took = |from: Instant, to: Instant| to.saturating_duration_since(from).as_millis().to_string();
        request.tags.set("kong.rewrite.duration_ms", took(start, access));
        proxy.tags.set("kong.access.duration_ms", took(access, asked));
        proxy.tags.set("kong.header_filter.duration_ms", "0");
        proxy.tags.set("kong.body_filter.duration_ms", took(head, end));
    }
}

fn request<'a>(zipkin: &'a Zipkin, exchange: &'a Exchange, trace: &Trace) -> Span<'a> {
    let (config, head) = (&zipkin.config, &exchange.request);
    let name = match &*config.http_span_name {
        "method" => head.method_str().to_owned(),
        _ => format!("{} {}", head.method_str(), head.path()),
    };
    let mut tags = Tags::default();
    tags.set("lc", "kong");
    tags.set("http.method", head.method_str());
    tags.set("http.host", without_port(head.host().unwrap_or_default()));
    tags.set("http.path", head.path());
    tags.set("http.protocol", protocol(head.version));
    for tag in config.static_tags.iter().flatten() {
        tags.set(&*tag.name, &*tag.value);
    }
    let sent = head.headers.get_all(&config.tags_header).filter_map(|value| std::str::from_utf8(value).ok());
    sent.flat_map(tags::of).for_each(|(name, value)| tags.set(name, value));
    tags.set("http.status_code", exchange.response.status.to_string());
    tags.set_some("kong.consumer", exchange.consumer().map(|consumer| &*consumer.id_text));
    let credential = exchange.credential().filter(|_| config.include_credential);
    tags.set_some("kong.credential", credential.map(|id| id.to_string()));
    tags.set("kong.node.id", &*zipkin.node_id);
    Span {
        name,
        kind: SERVER,
        id: trace.request,
        parent: trace.parent,
        remote: Remote {
            service: config.default_service_name.as_deref(),
            ip: Some(exchange.client_ip),
            port: Some(exchange.peer.port()),
        },
        tags,
        ..Span::default()
    }
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::Http10 => "HTTP/1",
        Version::Http11 => "HTTP/1.1",
        Version::Http2 => "HTTP/2",
        Version::Http3 => "HTTP/3",
    }
}

fn proxy<'a>(zipkin: &'a Zipkin, exchange: &'a Exchange, (trace, name): (&Trace, &str)) -> Span<'a> {
    let failed = exchange.failed_tries().last();
    let address = exchange.upstream_address().or_else(|| failed.and_then(|failed| failed.address));
    let route = exchange.route().map(|route| &*route.entity);
    let mut proxy = client(zipkin, (route, exchange.service()), trace, format!("{name} (proxy)"));
    (proxy.id, proxy.remote.ip) = (trace.proxy, address.map(|address| address.ip()));
    proxy.remote.port = address.map(|address| address.port());
    proxy.tags.set_some("peer.hostname", address.and(exchange.service()).map(|service| &*service.host));
    proxy
}

fn attempts<'a>(
    zipkin: &'a Zipkin,
    exchange: &'a Exchange,
    (trace, name): (&Trace, &str),
    clock: &Clock,
) -> Vec<Span<'a>> {
    let route = exchange.route().map(|route| &*route.entity);
    let begin = |number: usize, (address, port): (Option<SocketAddr>, u16)| {
        let name = format!("{name} (balancer try {number})");
        let mut span = client(zipkin, (route, exchange.service()), trace, name);
        (span.remote.ip, span.remote.port) = (address.map(|address| address.ip()), Some(port));
        span.tags.set("kong.balancer.try", number.to_string());
        span
    };
    let failed = exchange.failed_tries();
    let mut spans: Vec<_> = failed
        .iter()
        .zip(1..)
        .map(|(tried, number)| {
            let mut span = begin(number, (tried.address, tried.port));
            (span.start, span.end) = (clock.at(tried.start), clock.at(tried.end));
            span.tags.set("error", "true");
            span.tags.set("kong.balancer.state", "failed");
            span.tags.set("http.status_code", tried.code.to_string());
            span
        })
        .collect();
    if let Some((address, start)) = exchange.upstream_address().zip(exchange.timing.upstream_start) {
        let mut span = begin(failed.len() + 1, (Some(address), address.port()));
        let end = exchange.timing.upstream_head.or(exchange.timing.end).unwrap_or(start);
        let start = failed.last().map_or(start, |last| last.end);
        (span.start, span.end) = (clock.at(start), clock.at(end));
        spans.push(span);
    }
    spans
}

/// A span towards a service, within that of the request.
fn client<'a>(
    zipkin: &'a Zipkin,
    (route, service): (Option<&'a Route>, Option<&'a Service>),
    trace: &Trace,
    name: String,
) -> Span<'a> {
    let mut tags = Tags::default();
    tags.set_some("kong.service", service.map(|service| service.id.to_string()));
    tags.set_some("kong.service_name", service.and_then(|service| service.name.as_deref()));
    tags.set_some("kong.route", route.map(|route| route.id.to_string()));
    tags.set_some("kong.route_name", route.and_then(|route| route.name.as_deref()));
    let named = service.and_then(|service| service.name.as_deref());
    Span {
        name,
        kind: CLIENT,
        id: fastrand::u64(1..),
        parent: Some(trace.request),
        remote: Remote {
            service: named.or(zipkin.config.default_service_name.as_deref()),
            ..Remote::default()
        },
        tags,
        ..Span::default()
    }
}

/// The attempts to connect to the upstream, the span of the proxy, and that of the session.
pub(super) fn of_session<'a>(zipkin: &'a Zipkin, session: &'a Session, trace: &Trace) -> Vec<Span<'a>> {
    let config = &zipkin.config;
    let start = session.started_at();
    let (start, end) = (microseconds(start), microseconds(start + session.duration()));
    let mut tags = Tags::default();
    tags.set("lc", "kong");
    config.static_tags.iter().flatten().for_each(|tag| tags.set(&*tag.name, &*tag.value));
    tags.set("kong.node.id", &*zipkin.node_id);
    let request = Span {
        name: "stream".to_owned(),
        kind: SERVER,
        id: trace.request,
        remote: Remote {
            service: config.default_service_name.as_deref(),
            ip: Some(session.client.ip()),
            port: Some(session.client.port()),
        },
        tags,
        start,
        end,
        ..Span::default()
    };
    let route = session.route();
    let service = route.and_then(|route| route.service.as_deref()).map(|service| &*service.entity);
    let mut proxy =
        client(zipkin, (route.map(|route| &*route.entity), service), trace, "stream (proxy)".to_owned());
    (proxy.id, proxy.start, proxy.end) = (trace.proxy, start, end);
    if config.phase_duration_flavor == "annotations" {
        proxy.annotations = vec![("kps", start)];
    }
    let mut spans = attempts_of_session(zipkin, session, trace);
    spans.extend([proxy, request]);
    spans
}

fn attempts_of_session<'a>(zipkin: &'a Zipkin, session: &'a Session, trace: &Trace) -> Vec<Span<'a>> {
    let (route, service) = (session.route().map(|route| &*route.entity), session.service());
    let service = service.map(|service| &*service.entity);
    let failed = session.failed_tries().iter().map(|it| (it.address, it.port, it.start, it.end, true));
    let reached = session.upstream().map(|(to, start, end)| (Some(to), to.port(), start, end, false));
    let span =
        |(number, (address, port, start, end, has_failed)): (usize, (Option<SocketAddr>, _, _, _, _))| {
            let name = format!("stream (balancer try {number})");
            let mut span = client(zipkin, (route, service), trace, name);
            (span.remote.ip, span.remote.port) = (address.map(|address| address.ip()), Some(port));
            span.tags.set("kong.balancer.try", number.to_string());
            let at = |moment| microseconds(session.time_of(moment));
            (span.start, span.end) = (at(start), at(end));
            if has_failed {
                span.tags.set("error", "true");
                span.tags.set("kong.balancer.state", "failed");
            }
            span
        };
    (1..).zip(failed.chain(reached)).map(span).collect()
}
