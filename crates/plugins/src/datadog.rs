//! Sends metrics of each request to Datadog's agent (DogStatsD).
//!
//! ```yaml
//! plugins:
//!   - name: datadog
//!     config:
//!       host: agent.example.com
//!       metrics:
//!         - {name: request_count, stat_type: counter, sample_rate: 1, tags: ["env:prod"]}
//!         - {name: latency, stat_type: distribution, consumer_identifier: username}
//! ```
//!
//! | metric | name, after `prefix` | value |
//! |---|---|---|
//! | `request_count` | `request.count` | 1 |
//! | `request_size`, `response_size` | `request.size`, `response.size` | bytes |
//! | `latency` | `latency` | milliseconds in total |
//! | `kong_latency` | `kong_latency` | milliseconds until the request was sent to the upstream |
//! | `upstream_latency` | `upstream_latency` | milliseconds until the upstream answered; not sent if it was not asked |
//!
//! Each metric is a datagram, such as `kong.request.count:1|c|#name:orders,status:200,app:kong`. Its tags are the service's name,
//! or its host without one, with `_` for each dot; the status; the consumer, if the metric has a `consumer_identifier` and
//! the request a consumer; and the metric's own. In values that come from entities, `_` replaces commas, bars and line
//! breaks, because they would end the tag. With a `consumer_identifier` of `consumer_id` the id has `_` for each hyphen, as in
//! Kong. Requests without a service are not counted.
//!
//! `sample_rate` is sent and nothing else: each request is reported, so leave it at 1 unless the agent is to count each
//! several times.
//!
//! Metrics are queued and sent off the threads that serve requests; `weir_plugin_dropped_total` in `/metrics` counts
//! what is dropped.

use crate::shared::datagrams::Peer;
use crate::shared::statsd_lines::{number, put, suffix};
use std::io;
use std::sync::Arc;
use weir_plugin::json_text::integer;
use weir_plugin::{
    BuildContext, Exchange, FieldError, FieldWarning, Hooks, Json, Phases, Plugin, Queue, QueueConfig,
    Record, Streams,
};

/// The agent, and what is sent to it.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// The agent's name or address.
    #[field(default = "localhost", matches = host, referenceable)]
    pub host: String,
    /// Its port.
    #[field(default = 8125)]
    pub port: u16,
    /// The prefix of all names.
    #[field(nullable, default = "kong")]
    pub prefix: String,
    /// The name of the tag with the service.
    #[field(nullable, default = "name")]
    pub service_name_tag: String,
    /// The name of the tag with the status.
    #[field(nullable, default = "status")]
    pub status_tag: String,
    /// The name of the tag with the consumer.
    #[field(nullable, default = "consumer")]
    pub consumer_tag: String,
    /// Ignored: `queue.max_retry_time` says for how long to retry.
    pub retry_count: Option<i64>,
    /// The former name of `queue.max_batch_size`. It takes precedence unless it is 1.
    pub queue_size: Option<i64>,
    /// The former name of `queue.max_coalescing_delay`. It takes precedence unless it is 2.
    pub flush_timeout: Option<f64>,
    /// How metrics are queued, batched and retried.
    #[field(default = {})]
    pub queue: QueueConfig,
    /// The metrics.
    #[field(default = [
        { name = "request_count"; stat_type = "counter"; sample_rate = 1; tags = ["app:kong"]; consumer_identifier = "custom_id" },
        { name = "latency"; stat_type = "timer"; tags = ["app:kong"]; consumer_identifier = "custom_id" },
        { name = "request_size"; stat_type = "timer"; tags = ["app:kong"]; consumer_identifier = "custom_id" },
        { name = "response_size"; stat_type = "timer"; tags = ["app:kong"]; consumer_identifier = "custom_id" },
        { name = "upstream_latency"; stat_type = "timer"; tags = ["app:kong"]; consumer_identifier = "custom_id" },
        { name = "kong_latency"; stat_type = "timer"; tags = ["app:kong"]; consumer_identifier = "custom_id" }
    ])]
    pub metrics: Vec<Metric>,
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
        "kong_latency", "latency", "request_count", "request_size", "response_size", "upstream_latency"
    ])]
    pub name: String,
    /// The type that the agent treats it as.
    #[field(one_of = ["counter", "gauge", "histogram", "meter", "set", "timer", "distribution"])]
    pub stat_type: String,
    /// More tags, such as `env:prod`.
    #[field(check = tag)]
    pub tags: Option<Vec<String>>,
    /// The sample rate that is sent to the agent; required for counters and gauges.
    #[field(between = [0, 1])]
    pub sample_rate: Option<f64>,
    /// What identifies the consumer; without it no tag does.
    #[field(one_of = ["consumer_id", "custom_id", "username"])]
    pub consumer_identifier: Option<String>,
}

fn rate(metric: &Metric) -> Vec<FieldError> {
    let is_needed = ["counter", "gauge"].contains(&&*metric.stat_type) && metric.sample_rate.is_none();
    let missing =
        || FieldError::new("sample_rate", "is required with a stat_type of counter or gauge; set it to 1");
    is_needed.then(missing).into_iter().collect()
}

fn tag(text: &str) -> Result<(), String> {
    match text.ends_with(':') {
        true => Err(format!("expected a tag such as env:prod, got {text:?}; write a value after the colon")),
        false => Ok(()),
    }
}

/// One configured instance.
pub(super) struct Datadog {
    config: Config,
    metrics: Vec<Prepared>,
    queue: Queue<Vec<u8>>,
}

/// A metric, and the end of its lines.
struct Prepared {
    metric: Metric,
    /// Such as `|ms`, and what introduces tags.
    suffix: String,
    /// The metric's own tags, each after a comma.
    tags: String,
}

impl Plugin for Datadog {
    const NAME: &'static str = "datadog";
    const PRIORITY: i32 = 10;
    const STREAMS: Streams = Streams::Accepted;
    type Config = Config;

    fn ignored_fields(config: &Json) -> Vec<FieldWarning> {
        QueueConfig::ignored_fields(config)
    }

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        // 1,000 ms are how long resolving the name may take.
        let peer = Arc::new(Peer::new(&config.host, config.port, 1000.0, build.dialer()));
        let agent: Arc<str> = format!("{}:{}", config.host, config.port).into();
        let queue = build.queue(config.queue(), move |batch: Arc<[Vec<u8>]>| {
            let (peer, agent) = (peer.clone(), agent.clone());
            async move { send(&peer, &batch).await.map_err(|error| format!("{agent}: {error}")) }
        });
        let metrics = config.metrics.iter().cloned().map(Prepared::new).collect();
        Ok(Self { config, metrics, queue })
    }
}

impl Prepared {
    fn new(metric: Metric) -> Self {
        let tags = metric.tags.iter().flatten();
        let tags = tags.map(|tag| format!(",{}", tag.replace(['|', '\n', '\r'], "_"))).collect();
        Self { suffix: format!("{}|#", suffix(&metric.stat_type, metric.sample_rate)), tags, metric }
    }
}

/// Sends each line as a datagram.
async fn send(peer: &Peer, batch: &[Vec<u8>]) -> io::Result<()> {
    let socket = peer.socket().await?;
    let lines = batch.iter().flat_map(|lines| lines.split(|byte| *byte == b'\n'));
    for line in lines.filter(|line| !line.is_empty()) {
        socket.send(line).await?;
    }
    Ok(())
}

impl Hooks for Datadog {
    fn phases(&self) -> Phases {
        Phases::LOG
    }

    fn log(&self, exchange: &mut Exchange) {
        if let Some(lines) = self.lines(exchange) {
            let bytes = lines.len();
            self.queue.push(lines, bytes);
        }
    }
}

impl Datadog {
    /// A line for each metric; none without a service.
    fn lines(&self, exchange: &Exchange) -> Option<Vec<u8>> {
        let service = exchange.service()?;
        let service = service.name.as_ref().unwrap_or(&service.host);
        let mut out = Vec::with_capacity(512);
        for prepared in &self.metrics {
            // A metric without a value is left out, such as the latency of an upstream that was not asked.
            if let Some(Ok((name, value))) = number(&prepared.metric.name, exchange) {
                put(&mut out, [&self.config.prefix, ".", name, ":"]);
                integer(&mut out, value);
                put(&mut out, [&prepared.suffix]);
                self.write_tags(&mut out, service, prepared, exchange);
                out.push(b'\n');
            }
        }
        Some(out)
    }

    fn write_tags(&self, out: &mut Vec<u8>, service: &str, prepared: &Prepared, exchange: &Exchange) {
        let config = &self.config;
        put(out, [&config.service_name_tag, ":"]);
        put_value(out, service, Some(b'.'));
        put(out, [",", &config.status_tag, ":"]);
        integer(out, exchange.response.status.into());
        if let Some((consumer, replaced)) = consumer(&prepared.metric, exchange) {
            put(out, [",", &config.consumer_tag, ":"]);
            put_value(out, consumer, replaced);
        }
        put(out, [&prepared.tags]);
    }
}

/// What identifies the consumer, and what is replaced in it.
fn consumer<'e>(metric: &Metric, exchange: &'e Exchange) -> Option<(&'e str, Option<u8>)> {
    let consumer = exchange.consumer()?;
    match metric.consumer_identifier.as_deref()? {
        "consumer_id" => Some((&consumer.id_text, Some(b'-'))),
        "username" => Some((consumer.entity.username.as_deref()?, None)),
        _ => Some((consumer.entity.custom_id.as_deref()?, None)),
    }
}

/// Appends a value of an entity, with `_` for what would end a tag, and for one more character.
fn put_value(out: &mut Vec<u8>, value: &str, replaced: Option<u8>) {
    let is_ending = |byte: u8| [b',', b'|', b'\n', b'\r'].contains(&byte) || Some(byte) == replaced;
    out.extend(value.bytes().map(|byte| if is_ending(byte) { b'_' } else { byte }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PLUGINS;
    use serde_json::json;
    use weir_plugin::testing::{Gateway, entity, id};
    use weir_plugin::{ConsumerIndex, Credential, Uuid};

    fn lines(config: Json, consumer: bool) -> Vec<String> {
        let gateway = Gateway::new(PLUGINS);
        let mut exchange = gateway.exchange("GET /");
        // Nothing took time, however slow the machine is.
        exchange.timing.end = Some(exchange.timing.start);
        exchange.response.status = 404;
        if consumer {
            exchange.authenticate(ConsumerIndex(0), Credential { id: Uuid::nil(), identifier: None });
        }
        let entity = entity(json!({ "name": "datadog", "id": id(1) }));
        let config = Config::from_value(&config).unwrap();
        let datadog = gateway.build_with(&entity, |build| Datadog::new(config, build).unwrap());
        let lines = String::from_utf8(datadog.lines(&exchange).unwrap()).unwrap();
        lines.lines().map(str::to_owned).collect()
    }

    #[test]
    fn everything_is_sent_by_default() {
        let tags = "#name:orders,status:404,consumer:alice-custom,app:kong";
        let expected = [
            format!("kong.request.count:1|c|{tags}"),
            format!("kong.latency:0|ms|{tags}"),
            format!("kong.request.size:0|ms|{tags}"),
            format!("kong.response.size:0|ms|{tags}"),
            format!("kong.kong_latency:0|ms|{tags}"),
        ];
        assert_eq!(lines(json!({}), true), expected);
        let anonymous = expected.map(|line| line.replace("consumer:alice-custom,", ""));
        assert_eq!(lines(json!({}), false), anonymous);
    }

    #[test]
    fn names_types_rates_and_tags_are_those_of_the_metric() {
        let config = json!({
            "prefix": "p", "service_name_tag": "svc", "status_tag": "code", "consumer_tag": "who", "metrics": [
            { "name": "request_count", "stat_type": "gauge", "sample_rate": 0.5, "consumer_identifier": "consumer_id" },
            { "name": "response_size", "stat_type": "distribution", "tags": [], "consumer_identifier": "username" },
            { "name": "request_size", "stat_type": "meter", "tags": ["env:prod", "a|b\nc"] },
        ] });
        let expected = [
            "p.request.count:1|g|@0.5|#svc:orders,code:404,who:00000000_0000_0000_0000_000000000001",
            "p.response.size:0|d|#svc:orders,code:404,who:alice",
            "p.request.size:0|m|#svc:orders,code:404,env:prod,a_b_c",
        ];
        let sent = lines(config, true);
        let id = sent[0].rsplit_once(':').unwrap().1;
        assert!(Uuid::try_parse(&id.replace('_', "-")).is_ok(), "{id}");
        assert_eq!(
            sent[0].strip_suffix(id),
            expected[0].rsplit_once(':').map(|(start, _)| format!("{start}:")).as_deref()
        );
        assert_eq!(sent[1..], expected[1..]);
    }

    #[test]
    fn no_value_of_an_entity_ends_a_tag() {
        let mut out = Vec::new();
        put_value(&mut out, "a,b|c\r\nd.e:f#é", Some(b'.'));
        assert_eq!(String::from_utf8(out).unwrap(), "a_b_c__d_e:f#é");
    }
}
