//! A node with services, consumers, streams and upstreams of every health, and requests whose outcome is known.
use crate::harness::{Gateway, Peer, Upstream, closed_port};
use std::thread;
use std::time::{Duration, Instant};

/// Requests of one kind.
pub(crate) struct Kind {
    /// `TURN` is another word each time.
    request: String,
    pub(crate) service: &'static str,
    pub(crate) route: &'static str,
    pub(crate) code: u16,
    pub(crate) source: &'static str,
    pub(crate) consumer: &'static str,
    /// How many are sent in each round.
    pub(crate) times: u64,
}

/// The node and all around it.
pub(crate) struct Load {
    pub(crate) gateway: Gateway,
    pub(crate) kinds: Vec<Kind>,
    _upstreams: [Upstream; 3],
}

/// What a language model answers.
const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n\
    30\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n\r\n\
    56\r\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":5}}\n\ndata: [DONE]\n\n\r\n0\r\n\r\n";

/// What an upstream with a body of 1,000 bytes answers.
fn answers() -> Upstream {
    Upstream::start(|mut peer, _| {
        while let Some(request) = peer.request() {
            if request.head.start.contains("/v1/chat/completions") {
                peer.send(STREAM);
                continue;
            }
            let status = match &*request.head.start {
                start if start.starts_with("POST") => "201 Created",
                start if start.contains("fail") => "500 Internal Server Error",
                _ => "200 OK",
            };
            let body = "x".repeat(1_000);
            let fields = "Content-Type: text/plain\r\nContent-Length: 1000";
            peer.send(format!("HTTP/1.1 {status}\r\n{fields}\r\n\r\n{body}"));
        }
    })
}

/// One that takes its time: how long is told by the histograms, and at least this.
fn slow() -> Upstream {
    Upstream::start(|mut peer, _| {
        while peer.request().is_some() {
            let end = Instant::now() + Duration::from_millis(30);
            while let Some(left) = end.checked_duration_since(Instant::now()) {
                thread::park_timeout(left);
            }
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        }
    })
}

fn echo() -> Upstream {
    Upstream::start(|mut peer, _| {
        let said = peer.rest();
        peer.send(said);
    })
}

fn kinds() -> Vec<Kind> {
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let keyed = |key: &str| format!("GET /accounts HTTP/1.1\r\nHost: a\r\napikey: {key}\r\n\r\n");
    let post =
        format!("POST /orders HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n{}", "y".repeat(10_000));
    let prompt = r#"{"messages":[{"role":"user","content":"Hi"}],"stream":true}"#;
    let prompt =
        format!("POST /models HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{prompt}", prompt.len());
    let kind = |request, service, route, code, source, consumer, times| Kind {
        request,
        service,
        route,
        code,
        source,
        consumer,
        times,
    };
    vec![
        kind(get("/orders"), "orders", "orders-read", 200, "service", "", 12),
        kind(get("/orders/fail"), "orders", "orders-read", 500, "service", "", 3),
        kind(post, "orders", "orders-write", 201, "service", "", 4),
        kind(keyed("a1"), "accounts", "accounts", 200, "service", "alice", 5),
        kind(keyed("b1"), "accounts", "accounts", 200, "service", "bob", 2),
        kind(get("/accounts"), "accounts", "accounts", 401, "kong", "", 6),
        kind(get("/slow"), "slow", "slow", 200, "service", "", 2),
        kind(get("/kept/TURN"), "kept", "kept", 200, "service", "", 3),
        kind(get("/kept/first"), "kept", "kept", 200, "kong", "", 4),
        kind(prompt, "models", "models", 200, "service", "", 3),
        kind(get("/broken"), "broken", "broken", 502, "kong", "", 3),
    ]
}

fn configuration([answers, slow, echo]: &[Upstream; 3]) -> String {
    let (host, port) = (echo.address.ip(), echo.address.port());
    format!(
        "_format_version: '3.0'
services:
- name: orders
  host: pool
  routes:
  - {{ name: orders-read, paths: [/orders], methods: [GET] }}
  - {{ name: orders-write, paths: [/orders], methods: [POST] }}
- name: accounts
  url: http://{answers}
  plugins: [{{ name: key-auth }}]
  routes: [{{ name: accounts, paths: [/accounts] }}]
- name: slow
  host: unchecked
  routes: [{{ name: slow, paths: [/slow] }}]
- name: kept
  url: http://{answers}
  plugins: [{{ name: proxy-cache, config: {{ strategy: memory, content_type: [text/plain], cache_ttl: 3600 }} }}]
  routes: [{{ name: kept, paths: [/kept] }}]
- name: models
  url: http://{answers}
  plugins:
  - name: ai-proxy
    config:
      route_type: llm/v1/chat
      model: {{ provider: openai, name: m, options: {{ upstream_url: 'http://{answers}/v1/chat/completions' }} }}
      logging: {{ log_statistics: true }}
  routes: [{{ name: models, paths: [/models] }}]
- name: nowhere
  host: lost
- name: broken
  url: http://{closed}
  retries: 0
  routes: [{{ name: broken, paths: [/broken] }}]
- name: lines
  host: {host}
  port: {port}
  protocol: tcp
  routes: [{{ name: lines, protocols: [tcp], sources: [{{ ip: 127.0.0.0/8 }}] }}]
upstreams:
- name: pool
  targets: [{{ target: '{answers}' }}, {{ target: '{closed}' }}]
  healthchecks: {{ passive: {{ unhealthy: {{ tcp_failures: 1 }} }} }}
- name: unchecked
  targets: [{{ target: '{slow}' }}]
- name: lost
  targets: [{{ target: 'nowhere.invalid:80' }}]
  healthchecks: {{ passive: {{ unhealthy: {{ tcp_failures: 1 }} }} }}
consumers:
- {{ username: alice, keyauth_credentials: [{{ key: a1 }}] }}
- {{ username: bob, keyauth_credentials: [{{ key: b1 }}] }}
plugins:
- name: prometheus
  protocols: [http, tcp]
  config:
    per_consumer: true
    status_code_metrics: true
    latency_metrics: true
    bandwidth_metrics: true
    upstream_health_metrics: true
    ai_metrics: true
- {{ name: file-log, protocols: [http, tcp], config: {{ path: /nowhere/to/be/found }} }}
",
        answers = answers.address,
        slow = slow.address,
        closed = closed_port(),
    )
}

impl Load {
    /// Starts all, and sends one request of each kind, so that every series is there.
    pub(crate) fn start() -> Load {
        let upstreams = [answers(), slow(), echo()];
        let builder = Gateway::builder(&configuration(&upstreams)).set("stream_listen", "127.0.0.1:0");
        // Every request is measured, so that each plugin has costs on each route.
        let gateway = builder.set("cost_sampling", "1").start();
        let load = Load { gateway, kinds: kinds(), _upstreams: upstreams };
        load.kinds.iter().for_each(|kind| load.send(kind, "first"));
        load.session();
        load
    }

    /// Sends a round of requests.
    pub(crate) fn round(&self, number: u64) {
        for turn in 0..self.kinds.iter().map(|kind| kind.times).max().unwrap() {
            let kinds = self.kinds.iter().filter(|kind| turn < kind.times);
            kinds.for_each(|kind| self.send(kind, &format!("{number}-{turn}")));
        }
        self.session();
    }

    /// How many requests there are after so many rounds.
    pub(crate) fn requests(&self, rounds: u64) -> u64 {
        self.kinds.iter().map(|kind| 1 + rounds * kind.times).sum()
    }

    fn send(&self, kind: &Kind, turn: &str) {
        let answer = self.gateway.send(&kind.request.replace("TURN", turn));
        assert_eq!(answer.status, kind.code, "{}: {}", kind.request, answer.text());
    }

    fn session(&self) {
        let mut peer = Peer::connect(self.gateway.stream(0));
        assert_eq!(peer.send("hello").finish_sending().rest(), b"hello");
    }
}
