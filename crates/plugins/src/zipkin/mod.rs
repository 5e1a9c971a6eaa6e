//! Tells a Zipkin server of each request, and passes the trace that it belongs to on to the upstream.
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
//! Headers are read and written as by [opentelemetry](opentelemetry.md#traces); where the client uses no format, the
//! upstream is told in that of `default_header_type`. Whether a client says that its trace is to be sampled, or not to be,
//! is kept to. Of the others, `sample_ratio` says how many are. Of the formats `b3`, `b3-single` and `jaeger`, the span
//! is that of the client; otherwise, it is one within the client's.
//!
//! ## Spans
//!
//! | span | kind | tags |
//! |---|---|---|
//! | `GET`, for the request (with `http_span_name: method_path`, `GET /path`) | `SERVER` | `lc` (`kong`), `http.method`, `http.host`, `http.path`, `http.protocol`, `http.status_code`, `kong.node.id`, `kong.consumer`, `kong.credential`, `static_tags`, and those of the header that `tags_header` names: `one=first; two=second` |
//! | `GET (proxy)`, from the plugins to the response's end; the upstream is told its id | `CLIENT` | `kong.service`, `kong.service_name`, `kong.route`, `kong.route_name`, `peer.hostname` (the service's host) |
//! | `GET (balancer try 1)`, for each attempt to reach the upstream | `CLIENT` | `kong.balancer.try` and those of the service and the route; of one that failed, `error`, `kong.balancer.state` and `http.status_code` |
//!
//! The moments of Kong's phases are annotations, `krs`, `krf`, `kas`, `kaf`, `khs`, `khf`, `kbs` and `kbf`: of rewriting,
//! access, the response's head and its body the start and the finish. With `phase_duration_flavor: tags`, how long these
//! took is told instead, in tags such as `kong.access.duration_ms`. Access ends when the upstream is asked.
//!
//! A session of a stream listener has spans named `stream` and `stream (proxy)`.
//!
//! The certificate of a server of `https` is verified against `lua_ssl_trusted_certificate`, unless `log_tls_verify` is
//! `off`. Requests never wait; what is dropped is counted by
//! `weir_plugin_dropped_total` in `/metrics`.

mod collector;
mod span;
mod spans;
mod tags;
#[cfg(test)]
mod tests;

use super::trace_context::{Context, Onward, Propagation, Traces};
use std::time::Instant;
use weir_plugin::{
    BuildContext, Exchange, FieldError, Flow, Hooks, NodeId, Phases, Plugin, Queue, QueueConfig, Record,
    Session, Streams,
};

/// The server, what it is told, and how traces are passed on.
#[derive(Debug, Clone, Record)]
#[record(check = tags_once)]
pub(super) struct Config {
    /// What the spans call this gateway.
    #[field(default = "kong")]
    pub local_service_name: String,
    /// The URL that spans are sent to; without it, traces are passed on and told to nobody.
    #[field(matches = url)]
    pub http_endpoint: Option<String>,
    /// How many are sampled of the requests of which clients do not say, from 0 to 1.
    #[field(default = 0.001, between = [0, 1])]
    pub sample_ratio: f64,
    /// What the spans call a service that has no name.
    pub default_service_name: Option<String>,
    /// Tells the id of the credential.
    #[field(default = true)]
    pub include_credential: bool,
    /// How many bytes the ids of new traces have.
    #[field(default = 16, one_of = [8, 16])]
    pub traceid_byte_count: u32,
    /// How the upstream is told, where `propagation` does not say.
    #[field(default = "preserve", one_of = [
        "preserve", "ignore", "b3", "b3-single", "w3c", "jaeger", "ot", "aws", "datadog", "gcp", "instana"
    ])]
    pub header_type: String,
    /// The format where the client's is to be preserved and there is none, where `propagation` does not say.
    #[field(default = "b3", one_of = ["b3", "b3-single", "w3c", "jaeger", "ot", "aws", "datadog", "gcp", "instana"])]
    pub default_header_type: String,
    /// The header of requests that has tags.
    #[field(default = "Zipkin-Tags")]
    pub tags_header: String,
    /// Tags of every request.
    pub static_tags: Option<Vec<StaticTag>>,
    /// What spans are called by.
    #[field(default = "method", one_of = ["method", "method_path"])]
    pub http_span_name: String,
    /// Milliseconds that connecting may take.
    #[field(default = 2000, between = [0, 2147483646])]
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
    /// How the phases are told of.
    #[field(default = "annotations", one_of = ["annotations", "tags"])]
    pub phase_duration_flavor: String,
    /// How spans wait, and how failures are mended.
    #[field(default = {})]
    pub queue: QueueConfig,
    /// How traces are passed on.
    #[field(default = { default_format = "b3" })]
    pub propagation: Propagation,
}

/// A tag of every request.
#[derive(Debug, Clone, Record)]
pub(super) struct StaticTag {
    /// Its name, none of those that the gateway sets.
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

/// The trace of a request, kept until it is told of.
#[derive(Clone, Copy)]
struct Trace {
    id: u128,
    /// Whether the id has half as many digits.
    short: bool,
    /// The span of the request, and the one that it is part of.
    request: u64,
    parent: Option<u64>,
    /// The one that the upstream is told of.
    proxy: u64,
    sampled: bool,
    /// When the plugins began.
    access: Option<Instant>,
}

impl Trace {
    fn text(&self) -> String {
        let Self { id, short, .. } = self;
        if *short { format!("{id:016x}") } else { format!("{id:032x}") }
    }
}

/// When the response's head was at hand.
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
            // The request was answered before its access hook could run.
            let trace = self.begin(None);
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

    fn log(&self, exchange: &Exchange) {
        let Some(queue) = &self.queue else { return };
        let trace = exchange.extensions.get::<Trace>().copied().unwrap_or_else(|| self.begin(None));
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
    /// Begins a span of the trace that was found, or of a new one.
    fn begin(&self, found: Option<&Context>) -> Trace {
        let sampled = found.and_then(|found| found.sampled);
        let known = found.and_then(|found| found.trace);
        let short = known.is_none() && self.config.traceid_byte_count == 8;
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
