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
//! A client says by `traceparent`, `b3` or `X-B3-*` which trace its request is part of; otherwise one begins here. The
//! upstream is told in the format that the client uses, by default. What a client says not to be sampled is not; of the
//! others, `sampling_rate` says how many are, chosen by the id of their trace. It is 0.01 if it is not set, as Kong's
//! `tracing_sampling_rate`, which is no setting here.
//!
//! `propagation` says which formats are understood (`extract`), which headers the upstream does not get (`clear`), and
//! which formats it is told in (`inject`: `preserve` is that of the client, or `default_format`). Without any of these,
//! `header_type` decides: `preserve`, `ignore` (whatever clients say), or a format to use beside that of the client. Of
//! the formats, `w3c`, `b3` and `b3-single` are understood; the others are accepted and have no effect.
//!
//! ## Spans
//!
//! | span | kind | attributes |
//! |---|---|---|
//! | `kong` | server | `http.method`, `http.url`, `http.host`, `http.scheme`, `http.flavor`, `http.client_ip`, `http.status_code`, `http.route`, `net.peer.ip`, `kong.request.id` |
//! | `kong.balancer`, for each attempt to reach the upstream | client | `try_count`, `net.peer.ip`, `net.peer.port`, `net.peer.name`, `http.method` |
//!
//! They are sent as OTLP over HTTP, in protobuf, 200 at once if `queue` does not say otherwise. `service.name` is
//! `kong`, `service.version` that of this node, unless `resource_attributes` says otherwise. Requests never wait; what
//! is dropped is counted by `weir_plugin_dropped_total` in `/metrics`.

mod otlp;
mod spans;
#[cfg(test)]
mod tests;

use super::log_record::TraceId;
use super::trace_context::{Context, Format, Onward};
use crate::plugin::{
    Build, Bytes, Define, Exchange, Flow, Hooks, HttpClient, Json, Queue, QueueConfig, Record, Violation,
};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Uri};
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The collector, and how traces are passed on.
#[derive(Debug, Clone, Record)]
#[record(check = an_endpoint)]
#[record(
    old_name("endpoint", "traces_endpoint"),
    old_name("batch_span_count", "queue.max_batch_size"),
    old_name("batch_flush_delay", "queue.max_coalescing_delay")
)]
pub(super) struct Config {
    /// The URL that spans are sent to.
    #[field(matches = url)]
    pub traces_endpoint: Option<String>,
    /// Nothing: the node's log is not sent.
    #[field(matches = url)]
    pub logs_endpoint: Option<String>,
    /// Headers to send.
    #[field(secret, key_check = header)]
    pub headers: Option<BTreeMap<String, String>>,
    /// What is said of this node.
    pub resource_attributes: Option<BTreeMap<String, String>>,
    /// How spans wait, and how failures are mended; without it, 200 are sent at once.
    pub queue: Option<QueueConfig>,
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
        "preserve", "ignore", "b3", "b3-single", "w3c", "jaeger", "ot", "aws", "gcp", "datadog"
    ])]
    pub header_type: String,
    /// How many of all traces are told of, from 0 to 1.
    #[field(between = [0, 1])]
    pub sampling_rate: Option<f64>,
    /// How traces are passed on.
    #[field(default = {})]
    pub propagation: Propagation,
}

/// How traces are passed on.
#[derive(Debug, Clone, Record)]
pub(super) struct Propagation {
    /// The formats that are understood, the first that is found before the others.
    #[field(one_of = ["w3c", "b3", "jaeger", "ot", "datadog", "aws", "gcp"])]
    pub extract: Option<Vec<String>>,
    /// Headers that the upstream does not get.
    #[field(check = weir_model::rule::header_name)]
    pub clear: Option<Vec<String>>,
    /// The formats that the upstream is told in.
    #[field(one_of = ["preserve", "w3c", "b3", "b3-single", "jaeger", "ot", "datadog", "aws", "gcp"])]
    pub inject: Option<Vec<String>>,
    /// The format where the client's is to be preserved and there is none.
    #[field(default = "w3c", one_of = ["w3c", "b3", "b3-single", "jaeger", "ot", "datadog", "aws", "gcp"])]
    pub default_format: String,
}

fn header(name: &str) -> Result<(), String> {
    match ["Host", "Content-Length", "Transfer-Encoding"].iter().find(|own| own.eq_ignore_ascii_case(name)) {
        Some(own) => Err(format!("{own} is the message's own; leave it out")),
        None => weir_model::rule::header_name(name),
    }
}

fn an_endpoint(config: &Config) -> Vec<Violation> {
    let is_there = config.traces_endpoint.is_some() || config.logs_endpoint.is_some();
    let missing = || Violation::new("traces_endpoint", "set traces_endpoint or logs_endpoint");
    (!is_there).then(missing).into_iter().collect()
}

/// How headers are read and written.
struct Headers {
    extract: Vec<Format>,
    clear: Vec<String>,
    /// None is the client's.
    inject: Vec<Option<Format>>,
    default: Format,
}

impl Headers {
    fn new(config: &Config) -> Self {
        let Propagation { extract, clear, inject, default_format } = &config.propagation;
        let default = Format::of(default_format).unwrap_or(Format::W3c);
        let every = vec![Format::B3, Format::W3c];
        if extract.is_none() && clear.is_none() && inject.is_none() {
            let (extract, inject) = match &*config.header_type {
                "preserve" => (every, vec![None]),
                "ignore" => (Vec::new(), vec![Some(default)]),
                format => (every, [None].into_iter().chain(Format::of(format).map(Some)).collect()),
            };
            return Self { extract, clear: Vec::new(), inject, default };
        }
        let known = |name: &String| if name == "preserve" { Some(None) } else { Format::of(name).map(Some) };
        Self {
            extract: extract.iter().flatten().filter_map(|name| Format::of(name)).collect(),
            clear: clear.clone().unwrap_or_default(),
            inject: inject.iter().flatten().filter_map(known).collect(),
            default,
        }
    }
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
    headers: Headers,
    rate: f64,
    response_header: Option<String>,
    queue: Option<Queue<otlp::Span>>,
}

impl Define for OpenTelemetry {
    const NAME: &'static str = "opentelemetry";
    const PRIORITY: i32 = 14;
    type Config = Config;

    fn not_in_force(config: &Json) -> Vec<Violation> {
        let without_effect = |path: &str| Violation::new(path, "use w3c, b3 or b3-single");
        let formats = ["extract", "inject"].into_iter().filter(|list| {
            let names =
                config["propagation"][*list].as_array().into_iter().flatten().filter_map(Json::as_str);
            names.into_iter().any(|name| name != "preserve" && Format::of(name).is_none())
        });
        let mut found: Vec<_> = formats.map(|list| without_effect(&format!("propagation.{list}"))).collect();
        let header_type = config["header_type"].as_str().unwrap_or("preserve");
        if !["preserve", "ignore"].contains(&header_type) && Format::of(header_type).is_none() {
            found.push(without_effect("header_type"));
        }
        if config["logs_endpoint"].is_string() {
            found.push(Violation::new("logs_endpoint", "logs are not sent"));
        }
        found
    }

    fn new(config: Config, build: &Build<'_>) -> Result<Self, String> {
        let queue = match &config.traces_endpoint {
            Some(endpoint) => Some(exporting(&config, endpoint, build)?),
            None => None,
        };
        Ok(Self {
            headers: Headers::new(&config),
            rate: config.sampling_rate.unwrap_or(0.01),
            response_header: config.http_response_header_for_traceid,
            queue,
        })
    }
}

impl Hooks for OpenTelemetry {
    fn access(&self, exchange: &mut Exchange) -> Flow {
        let headers = &exchange.request.headers;
        let found = self.headers.extract.iter().find_map(|format| format.extract(headers));
        let trace = self.begin(found.as_ref());
        for name in &self.headers.clear {
            exchange.request.headers.remove(name);
        }
        let own = found.map_or(self.headers.default, |found| found.format);
        let formats = self.headers.inject.iter().map(|format| format.unwrap_or(own));
        let mut told = TraceId::default();
        for format in formats {
            trace.onward.inject(exchange, format);
            told.add(format.name(), trace.onward.trace_text(format));
        }
        exchange.keep(told);
        exchange.keep(trace);
        Flow::Continue
    }

    fn response(&self, exchange: &mut Exchange) {
        let Some(name) = &self.response_header else { return };
        if let Some(trace) = exchange.kept::<Trace>().copied() {
            let id = format!("{:032x}", trace.onward.trace);
            exchange.response.headers.append(name, id.as_bytes());
        }
    }

    fn log(&self, exchange: &Exchange) {
        let Some(queue) = &self.queue else { return };
        // A request that was answered before its access hook could run has none yet.
        let trace = exchange.kept::<Trace>().copied().unwrap_or_else(|| self.begin(None));
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
        let trace = found.and_then(|found| found.trace);
        let (id, short) = trace.unwrap_or_else(|| (fastrand::u128(1..), false));
        // Ids are random in their last digits at least.
        let is_chosen = (id as u32 as f64) < self.rate * f64::from(u32::MAX) || self.rate >= 1.0;
        let sampled = is_chosen && found.and_then(|found| found.sampled) != Some(false);
        let root = fastrand::u64(1..);
        let flags = found.map_or(0, |found| found.flags);
        let onward =
            Onward { trace: id, short, span: fastrand::u64(1..), parent: Some(root), sampled, flags };
        Trace { onward, root, parent: found.and_then(|found| found.span) }
    }
}

/// The queue to a collector.
fn exporting(config: &Config, endpoint: &str, build: &Build<'_>) -> Result<Queue<otlp::Span>, String> {
    let collector = Arc::new(Collector::new(config, endpoint, build)?);
    let many = || QueueConfig::from_value(&serde_json::json!({ "max_batch_size": 200 }));
    let queue = match &config.queue {
        Some(queue) => queue.clone(),
        None => many().map_err(|_| "the default of config.queue is not valid")?,
    };
    Ok(build.queue(queue, move |batch: Arc<[otlp::Span]>| {
        let collector = collector.clone();
        async move { collector.send(&batch).await }
    }))
}

/// Who is told.
struct Collector {
    client: HttpClient,
    uri: Uri,
    headers: HeaderMap,
    timeout: Duration,
    resource: otlp::Resource,
}

impl Collector {
    fn new(config: &Config, endpoint: &str, build: &Build<'_>) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        for (name, value) in config.headers.iter().flatten() {
            let no_header = || format!("config.headers: {name} is no header");
            let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| no_header())?;
            headers.insert(known, HeaderValue::from_str(value).map_err(|_| no_header())?);
        }
        let milliseconds = [config.connect_timeout, config.send_timeout, config.read_timeout];
        Ok(Self {
            client: build.http_client(false)?,
            uri: endpoint.parse().map_err(|_| "config.traces_endpoint is no URL that can be asked")?,
            headers,
            timeout: milliseconds.into_iter().map(|it| Duration::from_millis(it.into())).sum(),
            resource: resource(config.resource_attributes.clone().unwrap_or_default()),
        })
    }

    async fn send(&self, spans: &[otlp::Span]) -> Result<(), String> {
        let message = otlp::ExportTraceServiceRequest {
            resource_spans: vec![otlp::ResourceSpans {
                resource: Some(self.resource.clone()),
                scope_spans: vec![otlp::ScopeSpans {
                    scope: Some(otlp::InstrumentationScope {
                        name: "kong-internal".to_owned(),
                        version: "0.1.0".to_owned(),
                    }),
                    spans: spans.to_vec(),
                }],
            }],
        };
        let mut request = Request::new(Bytes::from(message.encode_to_vec()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let asked = self.client.send(request, self.timeout).await;
        match asked.map_err(|error| format!("failed to send request: {error}"))?.status().as_u16() {
            200 => Ok(()),
            status => Err(format!("response error: {status}")),
        }
    }
}

/// What is said of this node, unless the configuration says otherwise.
fn resource(mut attributes: BTreeMap<String, String>) -> otlp::Resource {
    for (key, value) in [("service.name", "kong"), ("service.version", env!("CARGO_PKG_VERSION"))] {
        attributes.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }
    let attributes = attributes.into_iter().map(|(key, value)| otlp::attribute(&key, value));
    otlp::Resource { attributes: attributes.collect() }
}
