//! Sends spans of each request to a Zipkin server, and propagates the trace to the upstream.
//!
//! ```yaml
//! plugins:
//!   - name: zipkin
//!     config:
//!       http_endpoint: http://zipkin.example.com:9411/api/v2/spans
//!       sample_ratio: 1
//!       static_tags: [{name: environment, value: staging}]
//! ```
//!
//! ## Traces
//!
//! Trace headers are read and written as by [opentelemetry](opentelemetry.md#traces); if the client sends none, the
//! upstream gets those of `default_header_type`. If the client says whether to sample the trace, Weir follows it. Of
//! the other traces, `sample_ratio` is the fraction that is sampled. With the formats `b3`, `b3-single` and `jaeger`,
//! the span is shared with the client; otherwise it is a child of the client's.
//!
//! ## Spans
//!
//! | span | kind | tags |
//! |---|---|---|
//! | `GET`, for the request (with `http_span_name: method_path`, `GET /path`) | `SERVER` | `lc` (`kong`), `http.method`, `http.host`, `http.path`, `http.protocol`, `http.status_code`, `kong.node.id`, `kong.consumer`, `kong.credential`, `static_tags`, and those of the header that `tags_header` names: `one=first; two=second` |
//! | `GET (proxy)`, from the plugins to the end of the response; the upstream gets its id | `CLIENT` | `kong.service`, `kong.service_name`, `kong.route`, `kong.route_name`, `peer.hostname` (the service's host) |
//! | `GET (balancer try 1)`, for each attempt to reach the upstream | `CLIENT` | `kong.balancer.try` and those of the service and the route; of one that failed, `error`, `kong.balancer.state` and `http.status_code` |
//!
//! The start and finish times of Kong's phases are annotations: `krs` and `krf` (rewrite), `kas` and `kaf` (access),
//! `khs` and `khf` (header filter), `kbs` and `kbf` (body filter). With `phase_duration_flavor: tags`, their durations
//! are tags instead, such as `kong.access.duration_ms`. Access ends when the request is sent to the upstream.
//!
//! A session of a stream listener has spans named `stream`, `stream (proxy)` and, for each attempt to reach the upstream,
//! `stream (balancer try 1)`.
//!
//! The certificate of an `https` server is verified against `lua_ssl_trusted_certificate`, unless `log_tls_verify` is
//! `off`. Requests never wait; `weir_plugin_dropped_total` in `/metrics` counts what is dropped.

mod collector;
mod span;
mod spans;
mod tags;
#[cfg(test)]
mod tests;

use super::trace_context::{Context, Onward, Propagation, Traces};
use tokio::time::Instant;
use weir_plugin::{
    BuildContext, Exchange, FieldError, Flow, Hooks, NodeId, Phases, Plugin, Queue, QueueConfig, Record,
    Session, Streams,
};

/// The server, what is sent to it, and how traces are propagated.
#[derive(Debug, Clone, Record)]
#[record(check = tags_once)]
pub(super) struct Config {
    /// The name of this gateway in spans.
    #[field(default = "kong")]
    pub local_service_name: String,
    /// The URL that spans are sent to; if unset, traces are propagated, but no spans are sent.
    #[field(matches = url)]
    pub http_endpoint: Option<String>,
    /// The fraction of traces that is sampled if the client does not say, from 0 to 1.
    #[field(nullable, default = 0.001, between = [0, 1])]
    pub sample_ratio: f64,
    /// The name in spans of a service that has no name.
    pub default_service_name: Option<String>,
    /// Adds the id of the credential.
    #[field(default = true)]
    pub include_credential: bool,
    /// The length of the ids of new traces, in bytes.
    #[field(default = 16, one_of = [8, 16])]
    pub traceid_byte_count: u32,
    /// The format that the upstream gets, if `propagation` does not say.
    #[field(default = "preserve", one_of = [
        "preserve", "ignore", "b3", "b3-single", "w3c", "jaeger", "ot", "aws", "datadog", "gcp", "instana"
    ], extension_values = ["instana"])]
    pub header_type: String,
    /// The format for `preserve` if the client has sent none, if `propagation` does not say.
    #[field(default = "b3", one_of = [
        "b3", "b3-single", "w3c", "jaeger", "ot", "aws", "datadog", "gcp", "instana"
    ], extension_values = ["instana"])]
    pub default_header_type: String,
    /// The request header with tags.
    #[field(default = "Zipkin-Tags")]
    pub tags_header: String,
    /// Tags of every request.
    pub static_tags: Option<Vec<StaticTag>>,
    /// What spans are named by.
    #[field(default = "method", one_of = ["method", "method_path"])]
    pub http_span_name: String,
    /// The timeout for connecting, in milliseconds.
    #[field(nullable, default = 2000, between = [0, 2147483646])]
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
    /// Whether the phases are annotations or tags.
    #[field(default = "annotations", one_of = ["annotations", "tags"])]
    pub phase_duration_flavor: String,
    /// How spans are queued, batched and retried.
    #[field(default = {})]
    pub queue: QueueConfig,
    /// How traces are propagated.
    #[field(default = { default_format = "b3" })]
    pub propagation: Propagation,
}

/// A tag of every request.
#[derive(Debug, Clone, Record)]
pub(super) struct StaticTag {
    /// Its name. It must not be one that the gateway sets.
    #[field(check = own_tag)]
    pub name: String,
    /// Its value.
    pub value: String,
}

/// Tags whose meaning is fixed.
const PROTECTED: [&str; 13] = [
    "error",
    "http.method",
    "http.path",
    "http.status_code",
    "kong.balancer.state",
    "kong.balancer.try",
    "kong.consumer",
    "kong.credential",
    "kong.node.id",
    "kong.route",
    "kong.service",
    "lc",
    "peer.hostname",
];

fn own_tag(name: &str) -> Result<(), String> {
    if PROTECTED.contains(&name) {
        Err(format!("must not be one of: {}", PROTECTED.join(", ")))
    } else {
        Ok(())
    }
}

fn tags_once(config: &Config) -> Vec<FieldError> {
    let tags = config.static_tags.as_deref().unwrap_or_default();
    let is_repeated =
        |(at, tag): &(usize, &StaticTag)| tags[..*at].iter().any(|other| other.name == tag.name);
    let repeated = tags.iter().enumerate().filter(is_repeated);
    let violation = |(_, tag): (usize, &StaticTag)| {
        FieldError::new("static_tags", format!("repeated tags are not allowed: {}", tag.name))
    };
    repeated.map(violation).collect()
}

/// The trace of a request, kept until its spans are sent.
#[derive(Clone, Copy)]
struct Trace {
    id: u128,
    /// Whether the id has half as many digits.
    short: bool,
    /// The span of the request, and its parent.
    request: u64,
    parent: Option<u64>,
    /// The span whose id the upstream gets.
    proxy: u64,
    sampled: bool,
    /// When the access phase began.
    access: Option<Instant>,
}

impl Trace {
    fn text(&self) -> String {
        let Self { id, short, .. } = self;
        if *short { format!("{id:016x}") } else { format!("{id:032x}") }
    }
}

/// When the response's head had arrived.
struct HeadAt(Instant);

/// One configured instance.
pub(super) struct Zipkin {
    traces: Traces,
    queue: Option<Queue<Vec<u8>>>,
    node_id: String,
    config: Config,
}

impl Plugin for Zipkin {
    const NAME: &'static str = "zipkin";
    const PRIORITY: i32 = 100_000;
    const STREAMS: Streams = Streams::IfNamed;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let default = Some(&*config.default_header_type);
        Ok(Self {
            traces: Traces::new(&config.propagation, &config.header_type, default),
            queue: collector::queue(&config, build)?,
            node_id: build.retained.get::<NodeId>().0.to_string(),
            config,
        })
    }
}

impl Hooks for Zipkin {
    fn phases(&self) -> Phases {
        let reports = (Phases::LOG | Phases::LOG_STREAM).only_if(self.queue.is_some());
        Phases::ACCESS | Phases::RESPONSE | reports
    }

    fn owns_request_header(&self, name: &[u8]) -> bool {
        self.traces.own(name)
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let found = self.traces.extract(&exchange.request.headers);
        let trace = Trace { access: Some(Instant::now()), ..self.begin(found.as_ref()) };
        let Trace { id, request, proxy, sampled, .. } = trace;
        let onward = Onward { trace: id, span: proxy, parent: request, sampled };
        self.traces.inject(exchange, found.as_ref(), &onward);
        exchange.extensions.insert(trace);
        Flow::Continue
    }

    fn response(&self, exchange: &mut Exchange) {
        let trace = exchange.extensions.get::<Trace>().copied().unwrap_or_else(|| {
            // The request was answered before the access hook ran.
            let trace = self.begin_late(exchange);
            exchange.extensions.insert(trace);
            trace
        });
        if trace.sampled {
            exchange.extensions.insert(HeadAt(Instant::now()));
        }
        if let Some(name) = &self.config.http_response_header_for_traceid {
            exchange.response.headers.append(name, trace.text().as_bytes());
        }
    }

    fn log(&self, exchange: &mut Exchange) {
        let Some(queue) = &self.queue else { return };
        let trace = exchange.extensions.get::<Trace>().copied().unwrap_or_else(|| self.begin_late(exchange));
        if trace.sampled {
            spans::of_request(self, exchange, &trace)
                .into_iter()
                .for_each(|span| self.push(queue, span, &trace));
        }
    }

    fn log_stream(&self, session: &Session) {
        let Some(queue) = &self.queue else { return };
        let trace = self.begin(None);
        if trace.sampled {
            spans::of_session(self, session, &trace)
                .into_iter()
                .for_each(|span| self.push(queue, span, &trace));
        }
    }
}

impl Zipkin {
    /// Begins a span for a request that the access hook has not seen.
    fn begin_late(&self, exchange: &Exchange) -> Trace {
        self.begin(self.traces.extract(&exchange.request.headers).as_ref())
    }

    /// Begins a span of the trace that was found, or of a new one.
    fn begin(&self, found: Option<&Context>) -> Trace {
        let sampled = found.and_then(|found| found.sampled);
        let known = found.and_then(|found| found.trace);
        let short = known.map_or(self.config.traceid_byte_count == 8, |known| known.bytes <= 8);
        let new = || if short { fastrand::u64(1..).into() } else { fastrand::u128(1..) };
        let (span, parent) = match found {
            Some(found) if found.shares_span => (found.span, found.parent),
            found => (None, found.and_then(|found| found.span)),
        };
        Trace {
            id: known.map_or_else(new, |known| known.id),
            short,
            request: span.unwrap_or_else(|| fastrand::u64(1..)),
            parent,
            proxy: fastrand::u64(1..),
            sampled: sampled.unwrap_or_else(|| fastrand::f64() < self.config.sample_ratio),
            access: None,
        }
    }

    fn push(&self, queue: &Queue<Vec<u8>>, span: span::Span<'_>, trace: &Trace) {
        let json = span.json(&trace.text(), &self.config.local_service_name);
        let bytes = json.len();
        queue.push(json, bytes);
    }
}
