//! The headers that the gateway adds to responses, and the responses that need no plugin.

use crate::exchange::Exchange;
use crate::observe::{request_debug, server_timing};
use crate::pipeline::grpc;
use crate::snapshot::CompiledRoute;
use crate::worker::{AddedHeaders, Worker};
use std::time::Duration;
use tokio::time::Instant;
use weir_http1::{Framing, Headers, Known, Version};
use weir_plugin::LocalResponse;

/// The name in `Server` and `Via`.
const SERVER: &[u8] = concat!("weir/", env!("CARGO_PKG_VERSION")).as_bytes();
const VIA: &[u8] = b"1.1 weir";
const VIA_HTTP2: &[u8] = b"2 weir";

/// The answer to a request whose protocol its route does not serve, if so.
pub(crate) fn require_protocol(route: &CompiledRoute, exchange: &Exchange) -> Option<LocalResponse> {
    if route.grpc {
        return grpc::refuse(route, exchange);
    }
    if route.http || !route.https {
        return None;
    }
    // A trusted peer that has taken the TLS off says so.
    let forwarded = |known| exchange.header(known).filter(|_| exchange.engine.connection.trusted);
    let scheme = forwarded(Known::XForwardedProto).unwrap_or(exchange.scheme().as_bytes());
    if scheme == b"https" {
        return None;
    }
    let status = route.entity.https_redirect_status_code;
    if status == 426 {
        let answer = LocalResponse::message(426, "Please use HTTPS protocol");
        return Some(answer.header("Connection", "Upgrade").header("Upgrade", "TLS/1.2, HTTP/1.1"));
    }
    let own = weir_plugin::without_port(exchange.request.host().unwrap_or_default());
    let host =
        forwarded(Known::XForwardedHost).and_then(|host| std::str::from_utf8(host).ok()).unwrap_or(own);
    let mut location = format!("https://{host}{}", exchange.request.path());
    if let Some(query) = exchange.request.query() {
        location.push('?');
        location.push_str(query);
    }
    Some(LocalResponse::message(status, "Moved").header("Location", location))
}

/// The answer to an OPTIONS request that is for the gateway: one about the server as a whole, or one that may not be
/// forwarded once more (RFC 9110, 9.3.7). Counts the hop of others.
pub(crate) fn to_options(exchange: &mut Exchange) -> Option<LocalResponse> {
    let is_whole_server = exchange.request.path() == "*";
    let headers = &mut exchange.request.headers;
    let hops = headers.get("Max-Forwards").filter(|hops| hops.iter().all(u8::is_ascii_digit));
    let hops: Option<u64> = hops.and_then(|hops| str::from_utf8(hops).ok()?.parse().ok());
    if is_whole_server || hops == Some(0) {
        return Some(LocalResponse::raw(200, None, ""));
    }
    headers.set("Max-Forwards", (hops? - 1).to_string().as_bytes());
    None
}

/// Removes from an upstream's response what concerns its connection alone. Trailer stays for clients that take trailers,
/// and Upgrade in a 426, because it names what to change to (RFC 9110, 15.5.22).
pub(crate) fn remove_hop_by_hop(exchange: &mut Exchange) {
    let takes_trailers = exchange.engine.takes_trailers;
    let response = &mut exchange.response;
    let keeps_trailer = takes_trailers && response.framing == Framing::Chunked;
    let trailer = if keeps_trailer { response.headers.announced_trailers() } else { None };
    let upgrade = if response.status == 426 { protocols(&response.headers) } else { Vec::new() };
    response.headers.remove_hop_by_hop();
    if let Some(names) = trailer {
        response.headers.append_known(Known::Trailer, "Trailer", &names);
    }
    if !upgrade.is_empty() {
        response.headers.append_known(Known::Connection, "Connection", b"Upgrade");
        response.headers.append_known(Known::Upgrade, "Upgrade", &upgrade);
    }
}

/// What Upgrade names.
fn protocols(headers: &Headers) -> Vec<u8> {
    headers.get_all_known(Known::Upgrade).collect::<Vec<_>>().join(&b", "[..])
}

/// Adds to an upstream's response.
pub(crate) fn decorate_proxied(worker: &Worker, exchange: &mut Exchange) {
    let start = exchange.timing.upstream_start.unwrap_or(exchange.timing.start);
    let latencies = decorate_as_proxied(worker, exchange, start);
    if worker.recorder.is_some() {
        exchange.decision.measured(latencies);
    }
}

/// Adds to a cached response, which Kong takes for the upstream's.
pub(crate) fn decorate_cached(worker: &Worker, exchange: &mut Exchange) {
    let start = exchange.timing.upstream_start.unwrap_or_else(Instant::now);
    decorate_as_proxied(worker, exchange, start);
}

/// Adds to a response of an upstream that was asked, or would have been, at `start`. Returns what the gateway and the
/// upstream took, if a header or a record says so.
#[inline]
fn decorate_as_proxied(worker: &Worker, exchange: &mut Exchange, start: Instant) -> [Duration; 2] {
    let added = &worker.options.headers;
    let timing = exchange.timing;
    let head = timing.upstream_head.unwrap_or(start);
    let status = exchange.response.status;
    let via = if exchange.response.version == Version::Http2 { VIA_HTTP2 } else { VIA };
    let headers = &mut exchange.response.headers;
    if status >= 200 && !headers.contains_known(Known::Date) {
        headers.append_unchecked(Known::Date, "Date", &worker.date.at(head));
    }
    if added.via {
        headers.append_unchecked(Known::Via, "Via", via);
    }
    if added.upstream_status {
        append_number(headers, Known::Other, "X-Kong-Upstream-Status", status.into());
    }
    let is_wanted = added.upstream_latency || added.proxy_latency || worker.recorder.is_some();
    let latencies = if is_wanted { latencies([timing.start, start, head]) } else { Default::default() };
    append_latencies(added, headers, latencies);
    append_common(worker, exchange);
    latencies
}

/// How long the gateway took until it asked the upstream, and the upstream until it answered or failed.
fn latencies([start, asked, answered]: [Instant; 3]) -> [Duration; 2] {
    [asked.saturating_duration_since(start), answered.saturating_duration_since(asked)]
}

/// What the gateway and the upstream took, in milliseconds.
fn append_latencies(added: &AddedHeaders, headers: &mut Headers, latencies: [Duration; 2]) {
    let [gateway, upstream] = latencies.map(|latency| latency.as_millis() as u64);
    if added.upstream_latency {
        append_number(headers, Known::XKongUpstreamLatency, "X-Kong-Upstream-Latency", upstream);
    }
    if added.proxy_latency {
        append_number(headers, Known::XKongProxyLatency, "X-Kong-Proxy-Latency", gateway);
    }
}

/// When the upstream was asked that failed. A 503 says that there was none to ask.
fn asked_upstream(exchange: &Exchange) -> Option<Instant> {
    let has_failed = exchange.engine.failed && exchange.response.status != 503;
    exchange.timing.upstream_start.filter(|_| has_failed)
}

/// Adds to the gateway's own response, which may be one that a plugin got from another server.
pub(crate) fn decorate_own(worker: &Worker, exchange: &mut Exchange, relayed: bool) {
    let (added, now) = (&worker.options.headers, Instant::now());
    let asked = asked_upstream(exchange);
    let start = exchange.timing.start;
    let waited = if relayed { exchange.latencies().proxy.unwrap_or_default() } else { Duration::ZERO };
    let headers = &mut exchange.response.headers;
    if !headers.contains_known(Known::Date) {
        headers.append_unchecked(Known::Date, "Date", &worker.date.at(now));
    }
    if relayed && added.via {
        headers.append_unchecked(Known::Via, "Via", VIA);
    } else if added.server && !headers.contains_known(Known::Server) {
        headers.append("Server", SERVER);
    }
    match asked {
        Some(asked) => append_latencies(added, headers, latencies([start, asked, now])),
        None if added.response_latency => {
            let name = "X-Kong-Response-Latency";
            append_number(headers, Known::XKongResponseLatency, name, millis(start + waited, now));
        }
        None => {}
    }
    append_common(worker, exchange);
}

fn append_common(worker: &Worker, exchange: &mut Exchange) {
    let options = &worker.options;
    if !worker.node.alternatives.is_empty() {
        append_alternative(&worker.node.alternatives, exchange);
    }
    if options.headers.request_id {
        let exchange = &mut exchange.public;
        exchange.response.headers.append_unchecked(Known::XKongRequestId, "X-Kong-Request-Id", &exchange.id);
    }
    server_timing::append(exchange);
    request_debug::append(exchange);
    if options.allow_debug_header && exchange.request.headers.get("Kong-Debug") == Some(b"1") {
        append_debug(exchange);
    }
}

/// Says that the port is served over HTTP/3 too: to clients that come over TLS, and not to those who were asked for a
/// certificate, which HTTP/3 does not do.
fn append_alternative(alternatives: &[(u16, String)], exchange: &mut Exchange) {
    let connection = &exchange.engine.connection;
    let over_tls = connection.tls.as_ref().is_some_and(|tls| !tls.asked);
    if !over_tls || exchange.request.version == Version::Http3 {
        return;
    }
    let own = alternatives.iter().find(|(port, _)| *port == connection.local_port);
    let headers = &mut exchange.response.headers;
    if let Some((_, alternative)) = own
        && headers.get("Alt-Svc").is_none()
    {
        headers.append_unchecked(Known::Other, "Alt-Svc", alternative.as_bytes());
    }
}

fn append_debug(exchange: &mut Exchange) {
    let snapshot = exchange.snapshot.clone();
    let Some(route) = exchange.engine.route.map(|index| &snapshot.routes[index as usize]) else { return };
    let headers = &mut exchange.response.headers;
    headers.append("Kong-Route-Id", route.id_text.as_bytes());
    if let Some(name) = &route.entity.name {
        headers.append("Kong-Route-Name", name.as_bytes());
    }
    let Some(service) = &route.service else { return };
    headers.append("Kong-Service-Id", service.view.id_text.as_bytes());
    if let Some(name) = &service.entity.name {
        headers.append("Kong-Service-Name", name.as_bytes());
    }
}

#[inline(always)]
fn append_number(headers: &mut Headers, known: Known, name: &'static str, number: u64) {
    headers.append_unchecked(known, name, itoa::Buffer::new().format(number).as_bytes());
}

fn millis(from: Instant, to: Instant) -> u64 {
    to.saturating_duration_since(from).as_millis() as u64
}
