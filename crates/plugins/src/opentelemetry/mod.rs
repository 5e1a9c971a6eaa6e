//! Sends spans of each request to an OpenTelemetry collector, and propagates the trace to the upstream.
//!
//! ```yaml
//! plugins:
//!   - name: opentelemetry
//!     config:
//!       traces_endpoint: http://collector.example.com:4318/v1/traces
//!       sampling_rate: 1
//!       resource_attributes: {service.name: shop}
//! ```
//!
//! ## Traces
//!
//! A client names the trace of its request in the headers of one of the formats `w3c`, `b3` (in one header or several),
//! `jaeger`, `ot`, `datadog`, `aws`, `gcp` and `instana`; otherwise a new trace begins. By default the upstream gets
//! the headers of the client's format. If the client says that its trace is not sampled, Weir does not sample it; of the
//! other traces, `sampling_rate` is the fraction that is sampled, chosen by the first eight bytes of the trace id as Kong
//! chooses, so that all gateways on the way of a request agree. If unset it is the node's `tracing_sampling_rate`, 0.01 by
//! default.
//!
//! `propagation` says which formats are read (`extract`), which headers the upstream does not get (`clear`), and which
//! formats the upstream gets (`inject`: `preserve` is the client's format, or `default_format`, which is required with
//! `propagation`). Without any of these, `header_type` decides: `preserve`, `ignore` (ignores what clients send), or a
//! format to use beside the client's. Kong 3.9 has all of this except `instana`.
//!
//! ## Spans
//!
//! | span | kind | attributes |
//! |---|---|---|
//! | `kong` | server | `http.method`, `http.url`, `http.host`, `http.scheme`, `http.flavor`, `http.client_ip`, `http.status_code`, `http.route`, `net.peer.ip`, `kong.request.id` |
//! | `kong.balancer`, for each attempt to reach the upstream | client | `try_count`, `net.peer.ip`, `net.peer.port`, `net.peer.name`, `http.method` |
//!
//! | `kong.router`, finding the route | internal | |
//! | `kong.dns`, each look-up of an upstream's name | internal | |
//! | `kong.rewrite.plugin.NAME`, `kong.access.plugin.NAME`, `kong.header_filter.plugin.NAME`: a plugin's hook | internal | |
//!
//! The node's `tracing_instrumentations` names the spans to send: `request` (`kong`), `balancer`, `router`, `dns_query`,
//! `plugin_rewrite`, `plugin_access`, `plugin_header_filter`, or `all`. With `off`, the default, `kong` and
//! `kong.balancer` are sent; Kong sends nothing then. `http_client` and `db_query` are accepted and have no spans: serving
//! a request queries no database, and requests of plugins to other servers are not traced.
//!
//! Spans are sent as OTLP in protobuf, up to 200 at once. As in Kong, a `queue` without `max_batch_size` sends them one
//! by one. `service.name` is `kong`; `service.version` and `service.instance.id` are those of this node.
//! `resource_attributes` overrides them. Requests never wait; `weir_plugin_dropped_total` in `/metrics` counts what is
//! dropped.
//!
//! ## Logs
//!
//! With `logs_endpoint`, the node's log messages are sent too, down to `log_level`: severity, message, and the fields
//! as attributes, such as `request.id`. Each instance of the plugin sends all messages, wherever it is configured.
//! Messages about deliveries, by queues and by this plugin, are not sent.
//!
//! ## Over gRPC
//!
//! ```yaml
//! plugins:
//!   - name: opentelemetry
//!     config:
//!       traces_endpoint: grpc://collector.example.com:4317
//! ```
//!
//! The same works for `logs_endpoint`. `grpc` is plaintext and `grpcs` uses TLS; the default port is 4317. `headers`
//! become metadata. The certificate of a `grpcs` or `https` server is verified against `lua_ssl_trusted_certificate`,
//! unless `log_tls_verify` is `off`. A batch is retried after the statuses that OTLP calls retryable, such as
//! `UNAVAILABLE`, and dropped after others, such as `INVALID_ARGUMENT`. Over HTTP it is retried after any failure, as
//! in Kong.

mod exporter;
mod logs;
mod otlp;
mod spans;
#[cfg(test)]
mod tests;

use super::trace_context::{Context, Onward, Propagation, TraceId, Traces};
use logs::Logs;
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_plugin::{
    BuildContext, Exchange, FieldError, Flow, Hooks, Instrumentations, NodeLog, Phases, Plugin, Queue,
    QueueConfig, Record, Tracing,
};

/// The collector, and how traces are propagated.
#[derive(Debug, Clone, Record)]
#[record(check = an_endpoint)]
#[record(old_name("endpoint", "traces_endpoint"))]
pub(super) struct Config {
    /// The URL that spans are sent to; for a gRPC service, `grpc://HOST:PORT` or `grpcs://HOST:PORT`.
    #[field(referenceable, check = exporter::endpoint)]
    pub traces_endpoint: Option<String>,
    /// The URL that the node's log messages are sent to; for a gRPC service as above.
    #[field(referenceable, check = exporter::endpoint)]
    pub logs_endpoint: Option<String>,
    /// Headers to send.
    #[field(secret, key_check = header)]
    pub headers: Option<BTreeMap<String, String>>,
    /// The attributes of this node.
    pub resource_attributes: Option<BTreeMap<String, String>>,
    /// How spans are queued, batched and retried; if unset, up to 200 are sent at once.
    #[field(default = { max_batch_size = 200 })]
    pub queue: QueueConfig,
    /// The former name of `queue.max_batch_size`. It takes precedence unless it is 200.
    pub batch_span_count: Option<i64>,
    /// The former name of `queue.max_coalescing_delay`. It takes precedence unless it is 3.
    pub batch_flush_delay: Option<i64>,
    /// The timeout for connecting, in milliseconds.
    #[field(nullable, default = 1000, between = [0, 2147483646])]
    pub connect_timeout: u32,
    /// The additional timeout for sending, in milliseconds.
    #[field(nullable, default = 5000, between = [0, 2147483646])]
    pub send_timeout: u32,
    /// The additional timeout for the response, in milliseconds.
    #[field(nullable, default = 5000, between = [0, 2147483646])]
    pub read_timeout: u32,
    /// The response header that gets the trace id.
    #[field(matches = header_name)]
    pub http_response_header_for_traceid: Option<String>,
    /// The format that the upstream gets, if `propagation` does not say.
    #[field(nullable, default = "preserve", one_of = [
        "preserve", "ignore", "b3", "b3-single", "w3c", "jaeger", "ot", "aws", "gcp", "datadog", "instana"
    ], extension_values = ["instana"])]
    pub header_type: String,
    /// The fraction of traces that is sampled, from 0 to 1.
    #[field(between = [0, 1])]
    pub sampling_rate: Option<f64>,
    /// How traces are propagated.
    #[field(default = { default_format = "w3c" })]
    pub propagation: Propagation,
}

impl Config {
    fn queue(&self) -> QueueConfig {
        let size = self.batch_span_count.filter(|count| *count != 200);
        let delay = self.batch_flush_delay.filter(|delay| *delay != 3);
        self.queue.clone().overridden(size, delay.map(|delay| delay as f64))
    }
}

fn header(name: &str) -> Result<(), String> {
    match ["Host", "Content-Length", "Transfer-Encoding"].iter().find(|own| own.eq_ignore_ascii_case(name)) {
        Some(own) => Err(format!("{own} is the message's own; leave it out")),
        None => weir_plugin::rule::header_name(name),
    }
}

fn an_endpoint(config: &Config) -> Vec<FieldError> {
    let is_there = config.traces_endpoint.is_some() || config.logs_endpoint.is_some();
    let missing = || FieldError::new("", "set traces_endpoint or logs_endpoint");
    (!is_there).then(missing).into_iter().collect()
}

/// The trace of a request, kept until its spans are sent.
#[derive(Clone, Copy)]
struct Trace {
    onward: Onward,
    /// The span of the whole request, and its parent.
    root: u64,
    parent: Option<u64>,
}

/// One configured instance.
pub(super) struct OpenTelemetry {
    traces: Traces,
    rate: f64,
    instrumentations: Instrumentations,
    response_header: Option<String>,
    queue: Option<Queue<otlp::Span>>,
    /// Receives the node's log messages as long as it exists.
    _logs: Option<Arc<Logs>>,
}

impl Plugin for OpenTelemetry {
    const NAME: &'static str = "opentelemetry";
    const PRIORITY: i32 = 14;
    const FAILS_OPEN: bool = true;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let queue = match &config.traces_endpoint {
            Some(endpoint) => Some(exporter::spans(&config, endpoint, build)?),
            None => None,
        };
        let logs = match &config.logs_endpoint {
            Some(endpoint) => Some(Arc::new(Logs(exporter::logs(&config, endpoint, build)?))),
            None => None,
        };
        let tracing = build.retained.get::<Tracing>();
        logs.iter().for_each(|logs| build.retained.get::<NodeLog>().add(logs));
        Ok(Self {
            traces: Traces::new(&config.propagation, &config.header_type, None),
            rate: config.sampling_rate.unwrap_or(tracing.sampling_rate),
            instrumentations: tracing.instrumentations,
            response_header: config.http_response_header_for_traceid,
            queue,
            _logs: logs,
        })
    }
}

impl Hooks for OpenTelemetry {
    fn phases(&self) -> Phases {
        let reports = Phases::LOG.only_if(self.queue.is_some());
        Phases::ACCESS | Phases::RESPONSE.only_if(self.response_header.is_some()) | reports
    }

    fn owns_request_header(&self, name: &[u8]) -> bool {
        self.traces.own(name)
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let found = self.traces.extract(&exchange.request.headers);
        let trace = self.begin(found.as_ref());
        self.traces.inject(exchange, found.as_ref(), &trace.onward);
        exchange.extensions.insert(trace);
        Flow::Continue
    }

    fn response(&self, exchange: &mut Exchange) {
        let Some(name) = &self.response_header else { return };
        if let Some(trace) = exchange.extensions.get::<Trace>().copied() {
            let id = format!("{:032x}", trace.onward.trace);
            exchange.response.headers.append(name, id.as_bytes());
        }
    }

    fn log(&self, exchange: &mut Exchange) {
        let Some(queue) = &self.queue else { return };
        // A request that was answered before the access hook ran has none yet.
        let trace = exchange.extensions.get::<Trace>().copied().unwrap_or_else(|| self.begin(None));
        if trace.onward.sampled {
            for span in spans::of(exchange, &trace, self.instrumentations) {
                let bytes = span.encoded_len();
                queue.push(span, bytes);
            }
        }
    }
}

impl OpenTelemetry {
    /// Begins a span of the trace that was found, or of a new one.
    fn begin(&self, found: Option<&Context>) -> Trace {
        let new = || TraceId { id: fastrand::u128(1..), bytes: 16 };
        let id = found.and_then(|found| found.trace).unwrap_or_else(new);
        let trace = id.id;
        let sampled = is_chosen(id, self.rate) && found.and_then(|found| found.sampled) != Some(false);
        let root = fastrand::u64(1..);
        let onward = Onward { trace, span: fastrand::u64(1..), parent: root, sampled };
        Trace { onward, root, parent: found.and_then(|found| found.span.or(found.parent)) }
    }
}

/// Whether a trace is of the fraction that is sampled. By Kong's rule, so that all gateways on a request's way decide alike:
/// the first eight bytes of its id are a number, the least significant byte first.
fn is_chosen(trace: TraceId, rate: f64) -> bool {
    let shift = if trace.bytes <= 8 { 0 } else { 64 };
    let number = ((trace.id >> shift) as u64).swap_bytes();
    rate >= 1.0 || (number as f64) < rate * 2f64.powi(64)
}
