//! Tells an OpenTelemetry collector of each request, and passes the trace that it belongs to on to the upstream.
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
//! A client says which trace its request is part of, by the headers of one of the formats `w3c`, `b3` (in one header or
//! several), `jaeger`, `ot`, `datadog`, `aws`, `gcp` and `instana`; otherwise one begins here. The upstream is told in
//! the format that the client uses, by default. What a client says not to be sampled is not; of the others,
//! `sampling_rate` says how many are, chosen by the id of their trace. It is 0.01 if it is not set, as Kong's
//! `tracing_sampling_rate`, which is no setting here.
//!
//! `propagation` says which formats are understood (`extract`), which headers the upstream does not get (`clear`), and
//! which formats it is told in (`inject`: `preserve` is that of the client, or `default_format`, which must be
//! there where `propagation` is). Without any of these, `header_type` decides: `preserve`, `ignore` (whatever clients say),
//! or a format to use beside that of the client. Kong 3.9 has all of this but for `instana`.
//!
//! ## Spans
//!
//! | span | kind | attributes |
//! |---|---|---|
//! | `kong` | server | `http.method`, `http.url`, `http.host`, `http.scheme`, `http.flavor`, `http.client_ip`, `http.status_code`, `http.route`, `net.peer.ip`, `kong.request.id` |
//! | `kong.balancer`, for each attempt to reach the upstream | client | `try_count`, `net.peer.ip`, `net.peer.port`, `net.peer.name`, `http.method` |
//!
//! They are sent as OTLP in protobuf, up to 200 at once. As in Kong, a `queue` that is given without `max_batch_size`
//! sends them one by one. `service.name` is `kong`,
//! `service.version` and `service.instance.id` those of this node, unless `resource_attributes` says otherwise. Requests
//! never wait; what is dropped is counted by `weir_plugin_dropped_total` in `/metrics`.
//!
//! ## Logs
//!
//! With `logs_endpoint`, what the node logs is sent too, as far as `log_level` says: its severity, the message, and what
//! stands behind it as attributes, such as `request.id`. Each instance of the plugin sends all of it, wherever it is
//! configured. What is said of deliveries, by queues and by this plugin, is not sent.
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
//! `logs_endpoint` takes the same. `grpc` speaks in clear and `grpcs` over TLS; the port is 4317 where none is given. `headers` become metadata. The
//! certificate of a server of `grpcs` or `https` is verified against `lua_ssl_trusted_certificate`, unless `log_tls_verify`
//! is `off`. A batch is sent again after the statuses that OTLP names for it, such as `UNAVAILABLE`, and dropped after
//! others, such as `INVALID_ARGUMENT`. Over HTTP, it is sent again whatever went wrong, as by Kong.

mod exporter;
mod logs;
mod otlp;
mod spans;
#[cfg(test)]
mod tests;

use super::trace_context::{Context, Onward, Propagation, Traces};
use logs::Logs;
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_plugin::{
    BuildContext, Exchange, FieldError, Flow, Hooks, NodeLog, Phases, Plugin, Queue, QueueConfig, Record,
};

/// The collector, and how traces are passed on.
#[derive(Debug, Clone, Record)]
#[record(check = an_endpoint)]
#[record(old_name("endpoint", "traces_endpoint"))]
pub(super) struct Config {
    /// The URL that spans are sent to; of a gRPC service, `grpc://HOST:PORT` or `grpcs://HOST:PORT`.
    #[field(check = exporter::endpoint)]
    pub traces_endpoint: Option<String>,
    /// The URL that the node's own messages are sent to; of a gRPC service likewise.
    #[field(check = exporter::endpoint)]
    pub logs_endpoint: Option<String>,
    /// Headers to send.
    #[field(secret, key_check = header)]
    pub headers: Option<BTreeMap<String, String>>,
    /// What is said of this node.
    pub resource_attributes: Option<BTreeMap<String, String>>,
    /// How spans wait, and how failures are mended; without it, 200 are sent at once.
    #[field(default = { max_batch_size = 200 })]
    pub queue: QueueConfig,
    /// `queue.max_batch_size` as it was once called: unless it is 200, it wins.
    pub batch_span_count: Option<i64>,
    /// `queue.max_coalescing_delay` as it was once called: unless it is 3, it wins.
    pub batch_flush_delay: Option<i64>,
    /// Milliseconds that connecting may take.
    #[field(default = 1000, between = [0, 2147483646])]
    pub connect_timeout: u32,
    /// Milliseconds that sending may take, beside.
    #[field(default = 5000, between = [0, 2147483646])]
    pub send_timeout: u32,
    /// Milliseconds that the answer may take, beside.
    #[field(default = 5000, between = [0, 2147483646])]
    pub read_timeout: u32,
    /// The header of responses that gets the id of the trace.
    #[field(matches = header_name)]
    pub http_response_header_for_traceid: Option<String>,
    /// How the upstream is told, where `propagation` does not say.
    #[field(default = "preserve", one_of = [
        "preserve", "ignore", "b3", "b3-single", "w3c", "jaeger", "ot", "aws", "gcp", "datadog", "instana"
    ])]
    pub header_type: String,
    /// How many of all traces are told of, from 0 to 1.
    #[field(between = [0, 1])]
    pub sampling_rate: Option<f64>,
    /// How traces are passed on.
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
    let missing = || FieldError::new("traces_endpoint", "set traces_endpoint or logs_endpoint");
    (!is_there).then(missing).into_iter().collect()
}

/// The trace of a request, kept until it is told of.
#[derive(Clone, Copy)]
struct Trace {
    onward: Onward,
    /// The span of the whole request, and the one that it is part of.
    root: u64,
    parent: Option<u64>,
}

/// One configured instance.
pub(super) struct OpenTelemetry {
    traces: Traces,
    rate: f64,
    response_header: Option<String>,
    queue: Option<Queue<otlp::Span>>,
    /// Hears the node's messages for as long as it is here.
    _logs: Option<Arc<Logs>>,
}

impl Plugin for OpenTelemetry {
    const NAME: &'static str = "opentelemetry";
    const PRIORITY: i32 = 14;
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
        logs.iter().for_each(|logs| build.retained.get::<NodeLog>().add(logs));
        Ok(Self {
            traces: Traces::new(&config.propagation, &config.header_type, None),
            rate: config.sampling_rate.unwrap_or(0.01),
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

    fn log(&self, exchange: &Exchange) {
        let Some(queue) = &self.queue else { return };
        // A request that was answered before its access hook could run has none yet.
        let trace = exchange.extensions.get::<Trace>().copied().unwrap_or_else(|| self.begin(None));
        if trace.onward.sampled {
            for span in spans::of(exchange, &trace) {
                let bytes = span.encoded_len();
                queue.push(span, bytes);
            }
        }
    }
}

impl OpenTelemetry {
    /// Begins a span of the trace that was found, or of a new one.
    fn begin(&self, found: Option<&Context>) -> Trace {
        let trace = found.and_then(|found| found.trace).map_or_else(|| fastrand::u128(1..), |trace| trace.id);
        // Ids are random in their last digits at least.
        let is_chosen = (trace as u32 as f64) < self.rate * f64::from(u32::MAX) || self.rate >= 1.0;
        let sampled = is_chosen && found.and_then(|found| found.sampled) != Some(false);
        let root = fastrand::u64(1..);
        let onward = Onward { trace, span: fastrand::u64(1..), parent: root, sampled };
        Trace { onward, root, parent: found.and_then(|found| found.span.or(found.parent)) }
    }
}
