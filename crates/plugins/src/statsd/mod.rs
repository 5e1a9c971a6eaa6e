//! Sends metrics of each request to a StatsD server.
//!
//! ```yaml
//! plugins:
//!   - name: statsd
//!     config:
//!       host: statsd.example.com
//!       metrics:
//!         - {name: request_count, stat_type: counter, sample_rate: 1}
//!         - {name: latency, stat_type: timer}
//! ```
//!
//! | metric | name, after `prefix` | value |
//! |---|---|---|
//! | `request_count` | `service.SERVICE.request.count` | 1 |
//! | `request_size`, `response_size` | `service.SERVICE.request.size`, `….response.size` | bytes |
//! | `latency`, `kong_latency`, `upstream_latency` | `service.SERVICE.latency`, `….kong_latency`, `….upstream_latency` | milliseconds: in total, until the request was sent to the upstream, until it answered |
//! | `status_count` | `service.SERVICE.status.STATUS` | 1 |
//! | `unique_users` | `service.SERVICE.user.uniques` | the consumer |
//! | `request_per_user` | `service.SERVICE.user.CONSUMER.request.count` | 1 |
//! | `status_count_per_user` | `service.SERVICE.user.CONSUMER.status.STATUS` | 1 |
//! | `status_count_per_workspace` | `service.SERVICE.workspace.WORKSPACE.status.STATUS` | 1 |
//! | `status_count_per_user_per_route` | `route.ROUTE_ID.user.CONSUMER.status.STATUS` | 1 |
//! | `shdict_usage` | `node.HOSTNAME.shdict.DICTIONARY.free_space` and `….capacity`, with `hostname_in_prefix` without the node; at most once a minute | bytes that the store of proxy-cache has left, and in total |
//!
//! Without `metrics`, all of these are sent. If a request has no service, `global.unmatched` takes its place; if it has
//! no consumer, the metrics of users are left out. Dots in names of services become underscores. `sample_rate` is only
//! sent to the server, as in Kong: all requests are counted.
//!
//! With `tag_style`, only the first three rows are sent, without the service in their names and with tags: `service`,
//! `route`, `workspace`, `consumer`, `node` and `status`. In their values `_` replaces what could end a tag: commas, colons, bars, `@`,
//! `]` and line breaks.
//!
//! Metrics are queued and sent off the threads that serve requests; `weir_plugin_dropped_total` in `/metrics` counts
//! what is dropped.

mod dictionaries;
mod metrics;
#[cfg(test)]
mod tests;

use crate::shared::datagrams::Peer;
use dictionaries::Dictionaries;
use metrics::Scope;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use weir_plugin::{
    BuildContext, Dialer, Exchange, FieldError, FieldWarning, Hooks, Json, Phases, Plugin, Queue,
    QueueConfig, Record, Streams,
};

/// The server, and what is sent to it.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// The server's name or address.
    #[field(nullable, default = "localhost", matches = host)]
    pub host: String,
    /// Its port.
    #[field(nullable, default = 8125)]
    pub port: u16,
    /// The prefix of all names.
    #[field(nullable, default = "kong")]
    pub prefix: String,
    /// The metrics; all if unset.
    #[field(nullable, default = [
        { name = "request_count"; stat_type = "counter"; sample_rate = 1 },
        { name = "latency"; stat_type = "timer" },
        { name = "request_size"; stat_type = "counter"; sample_rate = 1 },
        { name = "status_count"; stat_type = "counter"; sample_rate = 1 },
        { name = "response_size"; stat_type = "counter"; sample_rate = 1 },
        { name = "unique_users"; stat_type = "set" },
        { name = "request_per_user"; stat_type = "counter"; sample_rate = 1 },
        { name = "upstream_latency"; stat_type = "timer" },
        { name = "kong_latency"; stat_type = "timer" },
        { name = "status_count_per_user"; stat_type = "counter"; sample_rate = 1 },
        { name = "status_count_per_workspace"; stat_type = "counter"; sample_rate = 1 },
        { name = "status_count_per_user_per_route"; stat_type = "counter"; sample_rate = 1 },
        { name = "shdict_usage"; stat_type = "gauge"; sample_rate = 1 }
    ])]
    pub metrics: Vec<Metric>,
    /// The ranges of statuses, such as 200-299, whose requests are counted; all if unset.
    #[field(check = status_range)]
    pub allow_status_codes: Option<Vec<String>>,
    /// The size up to which metrics share a datagram, in bytes; with 0 each has its own.
    #[field(nullable, default = 0, between = [0, 65507])]
    pub udp_packet_size: f64,
    /// Uses TCP.
    #[field(nullable, default = false)]
    pub use_tcp: bool,
    /// Adds `node.HOSTNAME` to the prefix.
    #[field(nullable, default = false)]
    pub hostname_in_prefix: bool,
    /// What identifies a consumer, if the metric does not say.
    #[field(default = "custom_id", one_of = ["consumer_id", "custom_id", "username"])]
    pub consumer_identifier_default: String,
    /// What identifies a service, if the metric does not say.
    #[field(default = "service_name_or_host", one_of = ["service_id", "service_name", "service_host", "service_name_or_host"])]
    pub service_identifier_default: String,
    /// What identifies the workspace, if the metric does not say.
    #[field(default = "workspace_id", one_of = ["workspace_id", "workspace_name"])]
    pub workspace_identifier_default: String,
    /// Ignored: `queue.max_retry_time` says for how long to retry.
    pub retry_count: Option<i64>,
    /// The former name of `queue.max_batch_size`. It takes precedence unless it is 1.
    pub queue_size: Option<i64>,
    /// The former name of `queue.max_coalescing_delay`. It takes precedence unless it is 2.
    pub flush_timeout: Option<f64>,
    /// The syntax of tags; if unset, no tags are sent.
    #[field(one_of = ["dogstatsd", "influxdb", "librato", "signalfx"])]
    pub tag_style: Option<String>,
    /// How metrics are queued, batched and retried.
    #[field(default = {})]
    pub queue: QueueConfig,
}

impl Config {
    fn queue(&self) -> QueueConfig {
        let (size, delay) = (self.queue_size, self.flush_timeout);
        self.queue.clone().overridden(size.filter(|size| *size != 1), delay.filter(|delay| *delay != 2.0))
    }
}

/// One metric.
#[derive(Debug, Clone, Record)]
#[record(check = rate)]
pub(super) struct Metric {
    /// What is measured.
    #[field(one_of = [
        "kong_latency", "latency", "request_count", "request_per_user", "request_size", "response_size",
        "status_count", "status_count_per_user", "unique_users", "upstream_latency", "status_count_per_workspace",
        "status_count_per_user_per_route", "shdict_usage"
    ])]
    pub name: String,
    /// The type that the server treats it as.
    #[field(one_of = ["counter", "gauge", "histogram", "meter", "set", "timer"])]
    pub stat_type: String,
    /// The sample rate that is sent to the server; required for counters and gauges.
    #[field(gt = 0)]
    pub sample_rate: Option<f64>,
    /// What identifies the consumer.
    #[field(one_of = ["consumer_id", "custom_id", "username"])]
    pub consumer_identifier: Option<String>,
    /// What identifies the service.
    #[field(one_of = ["service_id", "service_name", "service_host", "service_name_or_host"])]
    pub service_identifier: Option<String>,
    /// What identifies the workspace.
    #[field(one_of = ["workspace_id", "workspace_name"])]
    pub workspace_identifier: Option<String>,
}

fn rate(metric: &Metric) -> Vec<FieldError> {
    let is_needed = ["counter", "gauge"].contains(&&*metric.stat_type) && metric.sample_rate.is_none();
    let missing =
        || FieldError::new("sample_rate", "is required with a stat_type of counter or gauge; set it to 1");
    is_needed.then(missing).into_iter().collect()
}

fn status_range(text: &str) -> Result<(), String> {
    match range(text) {
        Some(_) => Ok(()),
        None => Err(format!("expected a range of statuses such as 200-299, got {text:?}")),
    }
}

fn range(text: &str) -> Option<(u32, u32)> {
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
    let (first, last) = text.split_once('-')?;
    Some((number(first)?, number(last)?))
}

/// One configured instance.
pub(super) struct Statsd {
    scope: Scope,
    dictionaries: Option<Dictionaries>,
    allowed: Option<Vec<(u32, u32)>>,
    queue: Queue<Vec<u8>>,
}

impl Plugin for Statsd {
    const NAME: &'static str = "statsd";
    const PRIORITY: i32 = 11;
    const STREAMS: Streams = Streams::Accepted;
    type Config = Config;

    fn ignored_fields(config: &Json) -> Vec<FieldWarning> {
        QueueConfig::ignored_fields(config)
    }

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let ranges = config.allow_status_codes.as_ref();
        let allowed = ranges.map(|ranges| ranges.iter().filter_map(|text| range(text)).collect());
        let server = Arc::new(Server::new(&config, build.dialer()));
        let queue = build.queue(config.queue(), move |batch: Arc<[Vec<u8>]>| {
            let server = server.clone();
            async move { server.send(&batch).await.map_err(|error| format!("{}: {error}", server.name)) }
        });
        let usage = config.metrics.iter().find(|metric| metric.name == "shdict_usage");
        let dictionaries = usage.map(|metric| Dictionaries::new(metric, build.retained));
        Ok(Self { scope: Scope::new(config), dictionaries, allowed, queue })
    }
}

impl Hooks for Statsd {
    fn phases(&self) -> Phases {
        Phases::LOG
    }

    fn log(&self, exchange: &mut Exchange) {
        let status = u32::from(exchange.response.status);
        let is_in = |(first, last): &(u32, u32)| (*first..=*last).contains(&status);
        if self.allowed.as_ref().is_none_or(|allowed| allowed.iter().any(is_in)) {
            let mut lines = self.scope.lines(exchange);
            if let Some(dictionaries) = &self.dictionaries {
                dictionaries.write(&mut lines, &self.scope);
            }
            let bytes = lines.len();
            self.queue.push(lines, bytes);
        }
    }
}

/// The timeout for sending over TCP.
const TIMEOUT: Duration = Duration::from_secs(1);

struct Server {
    name: String,
    peer: Peer,
    dialer: Dialer,
    tcp: Option<(String, u16)>,
    packet: usize,
}

impl Server {
    fn new(config: &Config, dialer: Dialer) -> Self {
        let host = config.host.trim_matches(['[', ']']).to_owned();
        Self {
            name: format!("{}:{}", config.host, config.port),
            peer: Peer::new(&config.host, config.port, 1000.0, dialer.clone()),
            dialer,
            tcp: config.use_tcp.then_some((host, config.port)),
            packet: config.udp_packet_size as usize,
        }
    }

    async fn send(&self, batch: &[Vec<u8>]) -> io::Result<()> {
        let Some((host, port)) = &self.tcp else { return self.send_datagrams(batch).await };
        let sending = async {
            let mut stream = self.dialer.tcp(host, *port).await?;
            stream.write_all(&batch.concat()).await?;
            stream.shutdown().await
        };
        timeout(TIMEOUT, sending).await.map_err(io::Error::from)?
    }

    async fn send_datagrams(&self, batch: &[Vec<u8>]) -> io::Result<()> {
        let socket = self.peer.socket().await?;
        for datagram in batch.iter().flat_map(|lines| datagrams(lines, self.packet)) {
            socket.send(datagram).await?;
        }
        Ok(())
    }
}

/// Splits into datagrams of whole lines: as many as fit, at least one.
fn datagrams(mut lines: &[u8], most: usize) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let first = memchr::memchr(b'\n', lines)?;
        let fitting = memchr::memchr_iter(b'\n', lines).take_while(|end| *end <= most).last();
        let end = fitting.unwrap_or(first);
        let datagram = &lines[..end];
        lines = &lines[end + 1..];
        Some(datagram)
    })
}
