//! What an exchange leaves behind: a line in the access log, and a warning where an upstream failed.

use crate::error::{ErrorOrigin, RelayError, RequestError};
use crate::exchange::{Exchange, Source};
use crate::observe::access_log::{self, Record, WorkerLog};
use crate::snapshot::{CompiledService, Destination};
use std::fmt::Display;
use tokio::time::Instant;
use weir_http1::{Known, Version};
use weir_plugin::engine;
use weir_upstream::UpstreamError;
use weir_upstream::endpoint::Endpoint;

/// Reports that the upstream gave no usable response. The service is the one that plugins have made of it.
pub(crate) fn failed(exchange: &Exchange, service: &CompiledService, error: &RequestError) {
    match (error, &service.destination) {
        (RequestError::Upstream(UpstreamError::NoTarget), Destination::Upstream(balancer))
            if !balancer.has_targets() =>
        {
            let name = &service.entity.host;
            let what = if balancer.endpoints.is_empty() { "no targets" } else { "no targets with a weight" };
            let text = format_args!("the upstream has {what}: add one with POST /upstreams/{name}/targets");
            warn(exchange, service, &text);
        }
        _ if error.origin() != ErrorOrigin::Client => warn(exchange, service, error),
        _ => {}
    }
}

/// Reports that the upstream broke off a response that the client has begun to receive.
pub(crate) fn broken(exchange: &Exchange, service: &CompiledService, broken: &RelayError) {
    warn(exchange, service, broken);
}

/// Reports that the upstream broke a tunnel off.
pub(crate) fn cut(exchange: &Exchange, service: &CompiledService, error: &std::io::Error) {
    warn(
        exchange,
        service,
        &format_args!("the upstream broke off the connection that had changed protocol: {error}"),
    );
}

/// Reports that an endpoint could not be connected to, and that another try follows.
pub(crate) fn passed_over(
    exchange: &Exchange,
    service: &CompiledService,
    endpoint: &Endpoint,
    failure: &RequestError,
) {
    let name = service.label();
    let target = format!("{}:{}", endpoint.host, endpoint.port);
    tracing::warn!(
        request_id = exchange.id(),
        service = name,
        target,
        "{failure}; it is tried again or passed over"
    );
}

fn warn(exchange: &Exchange, service: &CompiledService, what: &dyn Display) {
    let name = service.label();
    let asked = exchange.engine.upstream_addr.map(|address| address.to_string());
    let host = format!("{}:{}", service.entity.host, service.entity.port);
    let model = exchange.service_override().and_then(|change| change.model.as_deref());
    tracing::warn!(
        request_id = exchange.id(),
        service = name,
        host,
        model,
        address = asked.as_deref(),
        "{what}"
    );
}

/// The target as sent; without its query where that may hold the key to the node itself.
fn logged_target(exchange: &Exchange, hides_query: impl FnOnce() -> bool) -> &str {
    let target = exchange.request.target();
    match target.split_once('?') {
        Some((path, _)) if hides_query() => path,
        _ => target,
    }
}

/// Writes the exchange's line, if there is a log. The query is left out where it may hold a key.
pub(crate) fn log_access(log: &WorkerLog, exchange: &Exchange, hides_query: impl FnOnce() -> bool) {
    if !log.is_on() {
        return;
    }
    let timing = exchange.timing;
    let end = timing.end.unwrap_or_else(Instant::now);
    let since = |start: Instant, end: Instant| end.saturating_duration_since(start);
    let asked = timing.upstream_start;
    let upstream_end = timing.upstream_head.unwrap_or(end);
    let mut uri = Vec::new();
    if let (Some(route), Some(service)) = (exchange.route(), exchange.service()) {
        engine::write_target(&mut uri, exchange, route.strips_path, service);
    }
    let tls = exchange.engine.connection.tls.as_ref();
    log.write(&Record {
        client_ip: exchange.client_ip,
        remote_user: None,
        time: exchange.started_at(),
        method: exchange.request.method_str().as_bytes(),
        target: logged_target(exchange, hides_query).as_bytes(),
        version: version(exchange.request.version),
        scheme: exchange.scheme(),
        host: exchange.request.host().map(str::as_bytes),
        tls: tls.map(|tls| access_log::Tls { version: tls.version, cipher: &tls.cipher }),
        status: exchange.response.status,
        bytes_sent: exchange.bytes_out,
        request_size: exchange.bytes_in,
        response_size: exchange.bytes_out,
        referer: exchange.request.headers.get("Referer"),
        user_agent: exchange.header(Known::UserAgent),
        latency: since(timing.start, end),
        upstream_latency: asked.map(|asked| since(asked, upstream_end)),
        receive_latency: timing.upstream_head.map(|head| since(head, end)),
        request_id: exchange.id(),
        upstream: exchange.engine.upstream_addr.map(|address| access_log::Upstream {
            address,
            uri: &uri,
            status: exchange.upstream_status(),
        }),
        route: exchange
            .route()
            .map(|r| access_log::Entity { id: r.entity.id, name: r.entity.name.as_deref() }),
        service: exchange.service().map(|s| access_log::Entity { id: s.id, name: s.name.as_deref() }),
        consumer: exchange.consumer().map(|c| access_log::Consumer {
            id: c.entity.id,
            username: c.entity.username.as_deref(),
            custom_id: c.entity.custom_id.as_deref(),
        }),
        source: source(exchange),
        error: exchange.error(),
    });
}

fn version(version: Version) -> &'static str {
    match version {
        Version::Http10 => "HTTP/1.0",
        Version::Http11 => "HTTP/1.1",
        Version::Http2 => "HTTP/2.0",
        Version::Http3 => "HTTP/3.0",
    }
}

fn source(exchange: &Exchange) -> &'static str {
    match exchange.source {
        Source::Service => "upstream",
        Source::Kong if exchange.engine.failed => "error",
        Source::Kong => "exit",
    }
}
