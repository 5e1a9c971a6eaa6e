//! What a load consists of, and what is known when it is over.
use super::LiveCounters;
use crate::result::{Histogram, Latencies};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// A load to generate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Where to connect to; connections are dealt to the addresses in turn.
    pub addresses: Vec<SocketAddr>,
    /// The `Host` header unless a request names its own, and the server name of TLS.
    pub host: String,
    /// The protocol.
    pub protocol: Protocol,
    /// Whether to speak TLS. Certificates are not verified: what is measured is local and signs itself.
    pub tls: bool,
    /// How many connections are open at once, over all threads.
    pub connections: usize,
    /// How many threads share them.
    pub threads: usize,
    /// The CPUs that the threads may run on; empty for any.
    pub cpus: Vec<usize>,
    /// Whether a connection carries more than one request.
    pub keep_alive: bool,
    /// Whether to note when the first byte of each body comes.
    #[serde(default)]
    pub first_byte: bool,
    /// When requests are sent.
    pub pace: Pace,
    /// What precedes the measured window and is left out of it.
    pub warm_up: WarmUp,
    /// The length of the measured window.
    pub duration: Duration,
    /// How long an answer may take before it counts as an error.
    pub timeout: Duration,
    /// What is asked for.
    pub requests: Requests,
    /// The seed of every random choice.
    pub seed: u64,
    /// Where it counts for others while it runs; on this machine alone.
    #[serde(skip)]
    pub live: Option<Arc<LiveCounters>>,
}

/// The protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// One request at a time on each connection.
    Http1,
    /// By ALPN, or without TLS by prior knowledge.
    Http2 {
        /// How many requests are in flight at once on each connection.
        streams: usize,
    },
    /// Unary calls over HTTP/2: the body of a request is its message.
    Grpc {
        /// How many calls are in flight at once on each connection.
        streams: usize,
    },
    /// Each connection is upgraded as the request says; what is sent and must come back is its body, a message.
    WebSocket,
}

impl Protocol {
    /// How many requests a connection has in flight at most.
    #[must_use]
    pub fn streams(self) -> usize {
        match self {
            Protocol::Http1 | Protocol::WebSocket => 1,
            Protocol::Http2 { streams } | Protocol::Grpc { streams } => streams,
        }
    }

    /// What each connection has of it, as it follows on "connections"; nothing of HTTP/1.1.
    #[must_use]
    pub fn in_words(self) -> String {
        match self {
            Protocol::Http1 => String::new(),
            Protocol::Http2 { streams } => format!(" of {streams} streams"),
            Protocol::Grpc { streams } => format!(" of {streams} streams with gRPC calls"),
            Protocol::WebSocket => " with WebSocket messages".to_owned(),
        }
    }

    /// Whether it is, or is carried by, HTTP/2.
    #[must_use]
    pub fn is_http2(self) -> bool {
        matches!(self, Protocol::Http2 { .. } | Protocol::Grpc { .. })
    }
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Pace {
    /// Each connection, or each stream, sends its next request when the last is answered.
    Closed,
    /// So many requests per second, evenly spaced, whatever the answers do.
    Constant(f64),
    /// So many requests per second on average, with exponential gaps.
    Poisson(f64),
}

/// The part before the measured window: at least `at_least`, then until the rate of answers is steady, at most
/// `at_most`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct WarmUp {
    /// The shortest warm-up.
    pub at_least: Duration,
    /// The longest; a load that is not steady by then is measured all the same and marked as unsteady.
    pub at_most: Duration,
}

/// What is asked for: one of the templates, chosen by weight, with its `{name}` places filled from the variables.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Requests {
    /// At least one.
    pub templates: Vec<RequestTemplate>,
    /// What `{name}` stands for in paths, header values and bodies.
    pub variables: Vec<Variable>,
}

/// One kind of request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RequestTemplate {
    /// How often it is chosen, relative to the others.
    pub weight: u32,
    /// Such as `GET`.
    pub method: String,
    /// Path and query, beginning with `/`.
    pub path: String,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// The body; sent with `Content-Length` unless empty. Of gRPC and WebSocket, the message.
    pub body: String,
    /// What its answers must be.
    pub expect: Expect,
}

/// What an answer must be; any other counts as an error of class `status` or `body`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Expect {
    /// The statuses that are right; empty for 200 to 399.
    pub status: Vec<u16>,
    /// The length that the body must have.
    pub body_length: Option<u64>,
    /// What the body must contain.
    pub body_contains: Option<String>,
}

/// A number or a word that differs from request to request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Variable {
    /// What templates call it.
    pub name: String,
    /// What it is drawn from.
    pub values: Values,
    /// How it is drawn.
    pub distribution: Distribution,
    /// The variable whose drawn index it takes over, so that both are drawn together; else it draws its own.
    pub with: Option<String>,
}

/// What a variable is drawn from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Values {
    /// `count` numbers from `first` on.
    Numbers {
        /// The first number.
        first: u64,
        /// How many there are.
        count: u64,
    },
    /// A list.
    Words(Vec<String>),
}

/// How an index into n values is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Distribution {
    /// All alike.
    Uniform,
    /// The k-th with a weight of 1 / k^exponent.
    Zipf(f64),
    /// As Kong's public suite: ⌊z σ + ⌊n/2⌋⌋ with z standard normal by Box–Muller and σ = ⌊0.1 n / 1.3⌋. Kong's does not
    /// keep the index within 0..n; here what falls outside is drawn again.
    Kong,
    /// One after the other.
    RoundRobin,
}

/// The borders of the measured window; the observer is called at the moment they are crossed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Edge {
    /// The window begins.
    Begin,
    /// The window is over.
    End,
}

/// What a load came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// From one edge to the other.
    pub measured: Duration,
    /// How long the warm-up took.
    pub warm_up: Duration,
    /// Whether the rate of answers was steady before the window and throughout it; none where the generator does not say.
    pub steady: Option<bool>,
    /// Answers within the window, right or wrong.
    pub answers: u64,
    /// Answers that were as expected.
    pub good: u64,
    /// Bytes received in the window, heads included.
    pub bytes: u64,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// What went wrong, by class: `connect`, `tls`, `read`, `write`, `closed`, `timeout`, `malformed`, `status`, `body`,
    /// and `stuck` for each connection that the whole window brought neither an answer nor an error.
    pub errors: BTreeMap<String, u64>,
    /// Latencies of the good answers.
    pub latencies: Latencies,
    /// How long after its scheduled instant a request was sent (open loop only).
    pub lateness: Histogram,
    /// The time it took to open a connection, TLS included.
    pub connect: Histogram,
    /// Requests per second that the plan asked for (open loop only).
    pub offered: Option<f64>,
    /// Connections opened in the window; none where the generator does not say.
    pub connections_opened: Option<u64>,
    /// CPU time of the generator's threads within the window.
    pub generator_cpu: Duration,
    /// Answers in each tenth of a second of the window.
    pub series: Vec<u64>,
    /// Why the sample says nothing about the target, if so: the generator was late or saturated, or less than 99 % of
    /// the offered rate was achieved.
    pub void: Option<String>,
    /// Whether it is void for the sole reason that too little was answered: the generator did its part, and the rate is
    /// beyond the target.
    pub overloaded: bool,
}
