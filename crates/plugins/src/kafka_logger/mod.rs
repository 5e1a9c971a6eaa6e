//! Sends records of requests to Kafka. Like APISIX's plugin of this name.
//!
//! ```yaml
//! plugins:
//!   - name: kafka-logger
//!     config:
//!       brokers:
//!         - host: kafka-1.internal
//!           port: 9092
//!           sasl_config: {mechanism: SCRAM-SHA-512, user: weir, password: "${KAFKA_PASSWORD}"}
//!         - host: kafka-2.internal
//!           port: 9092
//!           sasl_config: {mechanism: SCRAM-SHA-512, user: weir, password: "${KAFKA_PASSWORD}"}
//!       kafka_topic: requests
//!       key: eu-west
//!       log_format: {host: $host, status: $status, client_ip: $remote_addr}
//! ```
//!
//! Records are those of [file-logger](file-logger.md), which may have the `body` of `request` and `response`. With
//! `meta_format: origin`, a record is the request as HTTP/1.1 has it: its line, its headers, and with `include_req_body`
//! its body. `Authorization` and `Proxy-Authorization` are `REDACTED`. The expressions are
//! [conditions](../coming-from-apisix.md#conditions) and may depend on the response.
//!
//! A message has a JSON list of up to `batch_max_size` records. It is sent once the list is full, or `inactive_timeout`
//! seconds after its first record. With `batch_max_size: 1`, each message is one record, and up to `producer_batch_num` of
//! them are sent at once. A message with a key goes to the partition that APISIX chooses: the CRC-32 of the key, modulo the
//! number of partitions.
//!
//! Requests never wait. What cannot be sent is sent again `max_retry_count` times, `retry_delay` seconds apart; in the mode
//! `async` with `max_retry_count: 0`, three times within 0.3 seconds, as APISIX's client does. What Kafka has confirmed is not
//! sent again, but a message can arrive twice if the confirmation is lost. The log names the broker, the topic and the fix;
//! `weir_plugin_dropped_total` in `/metrics` counts the records that are dropped. With `required_acks: 0`, Weir does not notice
//! that a broker refuses a message.
//!
//! `sasl_config` has a `user`, a `password`, and a `mechanism`: `PLAIN` (the default), `SCRAM-SHA-256` or `SCRAM-SHA-512`. A
//! listed broker gets its own login; one that is not listed gets the login of the broker that named it. With `tls: {}`,
//! connections are over TLS; with `tls: {verify: true}`, certificates are verified, too. `PLAIN` sends the password itself:
//! without `tls`, the network can read it, and without `verify`, a server that poses as a broker gets it. Kafka 0.11 to 4.x is
//! supported, with SASL since 1.0.

mod bodies;
mod config;
mod connection;
mod error;
mod producer;
mod response;
mod scram;

use crate::shared::apisix_record::{ApisixRecord, Bodies, write_original};
use crate::shared::expression::Expression;
use bytes::Bytes;
use config::{Config, condition};
use producer::Producer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use weir_plugin::{BuildContext, Exchange, Failed, Flow, Hooks, Phases, Plugin, Queue, json_text};

/// More bytes than a batch of records has beside these.
const REQUEST_OVERHEAD: usize = 128;
/// More bytes than a record has beside its key and its text.
const RECORD_OVERHEAD: usize = 32;

/// One configured instance.
pub(super) struct KafkaLogger {
    record: ApisixRecord,
    /// Whether requests are sent as HTTP has them.
    is_original: bool,
    /// Whether each record is a message.
    is_alone: bool,
    request_body: Option<BodyRule>,
    response_body: Option<BodyRule>,
    queue: Queue<Entry>,
}

/// Which bodies are sent.
struct BodyRule {
    condition: Expression,
    /// How many bytes of them.
    max: u32,
}

/// A record that waits.
struct Entry {
    text: Vec<u8>,
    /// Whether Kafka has it, so that a retry of its batch leaves it out.
    is_sent: AtomicBool,
    /// How often a batch that begins with it has failed.
    failures: AtomicU32,
}

impl Plugin for KafkaLogger {
    const NAME: &'static str = "kafka-logger";
    const PRIORITY: i32 = 10;
    const EXTENSION: bool = true;
    const FAILS_OPEN: bool = true;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let rule = |is_on: bool, written: &Option<_>, max| {
            let rule = || Ok::<_, String>(BodyRule { condition: condition(written.as_ref())?, max });
            is_on.then(rule).transpose()
        };
        let deliverer = Arc::new(Deliverer::new(&config, build)?);
        let deliver = move |batch: Arc<[Entry]>| {
            let deliverer = deliverer.clone();
            async move { deliverer.deliver(&batch).await }
        };
        Ok(Self {
            record: ApisixRecord::new(config.log_format.as_ref(), None, build.hostname())?,
            is_original: config.meta_format == "origin",
            is_alone: config.is_alone(),
            request_body: rule(
                config.include_req_body,
                &config.include_req_body_expr,
                config.max_req_body_bytes,
            )?,
            response_body: rule(
                config.include_resp_body,
                &config.include_resp_body_expr,
                config.max_resp_body_bytes,
            )?,
            queue: build.queue(config.queue()?, deliver),
        })
    }
}

impl Hooks for KafkaLogger {
    fn phases(&self) -> Phases {
        Phases::ACCESS.only_if(self.request_body.is_some())
            | Phases::RESPONSE.only_if(self.response_body.is_some())
            | Phases::LOG
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        if let Some(rule) = self.request_body.as_ref().filter(|_| exchange.has_body()) {
            bodies::observe_request(exchange, rule.max);
        }
        Flow::Continue
    }

    fn response(&self, exchange: &mut Exchange) {
        if let Some(rule) = self.response_body.as_ref().filter(|rule| rule.condition.is_met(exchange)) {
            bodies::observe_response(exchange, rule.max);
        }
    }

    fn log(&self, exchange: &mut Exchange) {
        let text = self.text(exchange);
        let bytes = text.len() + size_of::<Entry>();
        self.queue.push(Entry::new(text), bytes);
    }
}

impl KafkaLogger {
    /// The record of a request, as it stands in a message.
    fn text(&self, exchange: &Exchange) -> Vec<u8> {
        let rule = self.request_body.as_ref().filter(|rule| rule.condition.is_met(exchange));
        let request = rule.and_then(|_| bodies::of_request(exchange));
        let response = bodies::of_response(exchange);
        let mut text = Vec::with_capacity(1024);
        match (self.is_original, self.is_alone) {
            (true, true) => write_original(&mut text, exchange, request.as_deref()),
            (true, false) => {
                let write = |out: &mut Vec<u8>| write_original(out, exchange, request.as_deref());
                json_text::string_with(&mut text, write);
            }
            (false, _) => {
                let bodies = Bodies { request: request.as_deref(), response: response.as_deref() };
                self.record.write_with(&mut text, exchange, bodies);
            }
        }
        text
    }
}

impl Entry {
    fn new(text: Vec<u8>) -> Self {
        Self { text, is_sent: AtomicBool::new(false), failures: AtomicU32::new(0) }
    }
}

/// Makes messages of batches and sends them.
struct Deliverer {
    producer: Producer,
    is_alone: bool,
    /// The most bytes of records in one request.
    max_bytes: usize,
    /// How many bytes each record adds to that.
    overhead: usize,
    retries: u32,
}

impl Deliverer {
    fn new(config: &Config, build: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self {
            producer: Producer::new(config, build)?,
            is_alone: config.is_alone(),
            max_bytes: (config.producer_batch_size as usize).saturating_sub(REQUEST_OVERHEAD),
            overhead: RECORD_OVERHEAD + config.key.as_ref().map_or(0, String::len),
            retries: config.retries(),
        })
    }

    async fn deliver(&self, batch: &[Entry]) -> Result<(), Failed> {
        let sent = self.send(batch).await;
        match (sent, batch.first()) {
            (Err(Failed::Now(why)), Some(first))
                if first.failures.fetch_add(1, Ordering::Relaxed) >= self.retries =>
            {
                Err(Failed::Forever(why))
            }
            (sent, _) => sent,
        }
    }

    async fn send(&self, batch: &[Entry]) -> Result<(), Failed> {
        let unsent: Vec<_> = batch.iter().filter(|entry| !entry.is_sent.load(Ordering::Relaxed)).collect();
        for entries in requests(&unsent, self.max_bytes, self.overhead) {
            self.producer.send(&self.messages(entries)).await?;
            entries.iter().for_each(|entry| entry.is_sent.store(true, Ordering::Relaxed));
        }
        Ok(())
    }

    fn messages(&self, entries: &[&Entry]) -> Vec<Bytes> {
        if self.is_alone {
            return entries.iter().map(|entry| Bytes::copy_from_slice(&entry.text)).collect();
        }
        let mut list = Vec::new();
        json_text::array(&mut list, entries, |out, entry| out.extend_from_slice(&entry.text));
        vec![list.into()]
    }
}

/// Divides entries into requests of at most so many bytes, or of one entry. Each entry adds the overhead.
fn requests<'e>(
    entries: &'e [&'e Entry],
    max_bytes: usize,
    overhead: usize,
) -> impl Iterator<Item = &'e [&'e Entry]> {
    let mut rest = entries;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |entry: &&&Entry| {
            bytes += entry.text.len() + overhead;
            bytes <= max_bytes
        };
        let count = rest.iter().take_while(fits).count().max(1).min(rest.len());
        let (head, tail) = rest.split_at(count);
        rest = tail;
        (!head.is_empty()).then_some(head)
    })
}

#[cfg(test)]
mod tests;
