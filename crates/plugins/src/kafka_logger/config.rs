//! The configuration, with the fields and defaults of APISIX's plugin.

use super::scram::Hash;
use crate::shared::batch_processor::BatchProcessor;
use crate::shared::expression::Expression;
use std::collections::BTreeMap;
use std::time::Duration;
use weir_plugin::{FieldError, Json, QueueConfig, Record, Secret};

/// How often, and how many seconds apart, the client of APISIX sends messages again in the mode `async`.
const RETRIES_OF_CLIENT: (u32, f64) = (3, 0.1);

/// Longer than any batch is retried: [`Config::retries`] counts retries instead.
const UNLIMITED_SECONDS: f64 = 1e9;

/// The brokers, the topic, and what is sent.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(crate) struct Config {
    /// Brokers. One of them is asked for the others.
    #[field(len_min = 1)]
    pub brokers: Option<Vec<Broker>>,
    /// The former form of `brokers`: ports by host.
    #[field(between = [1, 65535])]
    pub broker_list: Option<BTreeMap<String, u16>>,
    /// Connects over TLS.
    pub tls: Option<Tls>,
    /// The topic.
    #[field(len_min = 1)]
    pub kafka_topic: String,
    /// The key of all messages: those of one key go to one partition. Without it, each request goes to the next
    /// partition.
    pub key: Option<String>,
    /// Whether to wait for more messages (`async`), or to send each at once (`sync`).
    #[field(default = "async", one_of = ["async", "sync"])]
    pub producer_type: String,
    /// Who confirms messages: the leader of the partition (1), all replicas in sync with it (-1), or no broker (0).
    #[field(default = 1, one_of = [1, -1, 0])]
    pub required_acks: i32,
    /// The timeout in seconds of a connection, and of a request.
    #[field(default = 3, between = [1, 86400])]
    pub timeout: u32,
    /// What is sent of a request: a record (`default`), or its head and body as HTTP has them (`origin`).
    #[field(default = "default", one_of = ["default", "origin"])]
    pub meta_format: String,
    /// The members of a record.
    pub log_format: Option<BTreeMap<String, Json>>,
    /// Adds the request's body to records without `log_format`.
    #[field(default = false)]
    pub include_req_body: bool,
    /// A condition for that.
    #[field(len_min = 1)]
    pub include_req_body_expr: Option<Vec<Json>>,
    /// Adds the response's body to records without `log_format`.
    #[field(default = false)]
    pub include_resp_body: bool,
    /// A condition for that.
    #[field(len_min = 1)]
    pub include_resp_body_expr: Option<Vec<Json>>,
    /// How many bytes of a request's body are sent.
    #[field(default = 524_288, between = [1, 16_777_216])]
    pub max_req_body_bytes: u32,
    /// How many bytes of a response's body are sent.
    #[field(default = 524_288, between = [1, 16_777_216])]
    pub max_resp_body_bytes: u32,
    /// The most messages of a request to a broker, in the mode `async` with `batch_max_size` 1.
    #[field(default = 200, between = [1, 1_000_000])]
    pub producer_batch_num: u32,
    /// The most bytes of records in a request to a broker. A longer record is sent alone.
    #[field(default = 1_048_576, between = [0, 1_073_741_824])]
    pub producer_batch_size: u32,
    /// The most messages that wait; beyond, the oldest records are dropped, as they are beyond 64 MiB.
    #[field(default = 50_000, between = [1, 1_000_000])]
    pub producer_max_buffering: u32,
    /// For how many seconds messages wait for others, in the mode `async` with `batch_max_size` 1.
    #[field(default = 1, between = [1, 3600])]
    pub producer_time_linger: u32,
    /// After how many seconds the brokers are asked again for the topic's partitions.
    #[field(default = 30, between = [1, 86400])]
    pub meta_refresh_interval: u32,
    /// Without effect: connections are not shared.
    #[field(default = 1, between = [1, 2_147_483_647])]
    pub cluster_name: u32,
    /// Without effect: messages have the format of Kafka 0.11 and newer.
    #[field(default = 1, one_of = [0, 1, 2])]
    pub api_version: u32,
    /// Without effect.
    #[field(default = "kafka logger")]
    pub name: String,
    /// How records are batched.
    #[field(flatten)]
    pub batch: BatchProcessor,
}

/// A broker.
#[derive(Debug, Clone, PartialEq, Record)]
pub(crate) struct Broker {
    /// The host name or address.
    #[field(matches = host)]
    pub host: String,
    /// The port.
    #[field(between = [1, 65535])]
    pub port: u16,
    /// The login. It is used for brokers that this one names, too.
    pub sasl_config: Option<SaslConfig>,
}

/// A login.
#[derive(Debug, Clone, PartialEq, Record)]
pub(crate) struct SaslConfig {
    /// How the password is proved.
    #[field(default = "PLAIN", one_of = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])]
    pub mechanism: String,
    /// The user.
    #[field(referenceable)]
    pub user: String,
    /// The password.
    #[field(secret)]
    pub password: Secret,
}

/// How to connect over TLS.
#[derive(Debug, Clone, Record)]
pub(crate) struct Tls {
    /// Whether to verify the brokers' certificates with the node's `lua_ssl_trusted_certificate`.
    #[field(default = false)]
    pub verify: bool,
}

/// How a user logs in.
pub(super) enum Mechanism {
    Plain,
    Scram(Hash),
}

impl SaslConfig {
    pub(super) fn mechanism(&self) -> Mechanism {
        match self.mechanism.as_str() {
            "SCRAM-SHA-256" => Mechanism::Scram(Hash::Sha256),
            "SCRAM-SHA-512" => Mechanism::Scram(Hash::Sha512),
            _ => Mechanism::Plain,
        }
    }
}

/// The login of a broker: its own, or for one that another broker has named, that of the other.
pub(super) fn login<'c>(
    brokers: &'c [Broker],
    (host, port): &(String, u16),
    named_with: Option<&'c SaslConfig>,
) -> Option<&'c SaslConfig> {
    let own = brokers.iter().find(|broker| broker.host == *host && broker.port == *port);
    own.map_or(named_with, |broker| broker.sasl_config.as_ref())
}

impl Config {
    /// The brokers, whichever way they are written.
    pub(super) fn brokers(&self) -> Vec<Broker> {
        let listed = self.broker_list.iter().flatten();
        let listed = listed.map(|(host, port)| Broker { host: host.clone(), port: *port, sasl_config: None });
        self.brokers.iter().flatten().cloned().chain(listed).collect()
    }

    /// Whether each record is a message.
    pub(super) fn is_alone(&self) -> bool {
        self.batch.batch_max_size == 1
    }

    fn is_async(&self) -> bool {
        self.producer_type == "async"
    }

    /// How records wait. A batch of the queue is a message with a list, or several messages.
    pub(super) fn queue(&self) -> Result<QueueConfig, String> {
        let queue = self.batch.queue()?;
        let (max_batch_size, max_coalescing_delay) = match (self.is_alone(), self.is_async()) {
            (true, true) => (self.producer_batch_num, self.producer_time_linger.into()),
            _ => (queue.max_batch_size, queue.max_coalescing_delay),
        };
        let most = self.producer_max_buffering.saturating_mul(self.batch.batch_max_size);
        let delay = self.retry_delay();
        Ok(QueueConfig {
            max_batch_size,
            max_coalescing_delay,
            max_entries: most.min(1_000_000),
            max_retry_time: UNLIMITED_SECONDS,
            initial_retry_delay: delay,
            max_retry_delay: delay,
            ..queue
        })
    }

    fn uses_retries_of_client(&self) -> bool {
        self.is_async() && self.batch.max_retry_count == 0
    }

    /// How often a batch is sent again.
    pub(super) fn retries(&self) -> u32 {
        match self.uses_retries_of_client() {
            true => RETRIES_OF_CLIENT.0,
            false => self.batch.max_retry_count,
        }
    }

    fn retry_delay(&self) -> f64 {
        match self.uses_retries_of_client() {
            true => RETRIES_OF_CLIENT.1,
            false => f64::from(self.batch.retry_delay).max(0.001),
        }
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }
}

/// A condition; none is always met.
pub(super) fn condition(written: Option<&Vec<Json>>) -> Result<Expression, String> {
    written.map_or_else(|| Ok(Expression::default()), |list| Expression::parse(&Json::Array(list.clone())))
}

fn violations(config: &Config) -> Vec<FieldError> {
    let mut found = Vec::new();
    if config.brokers().is_empty() {
        found.push(FieldError::new("brokers", "is missing: name the brokers, a list of `host` and `port`"));
    } else if config.brokers.is_some() && config.broker_list.is_some() {
        found.push(FieldError::new("broker_list", "is the former form of `brokers`: write only one of them"));
    }
    let conditions = [
        ("include_req_body_expr", &config.include_req_body_expr),
        ("include_resp_body_expr", &config.include_resp_body_expr),
    ];
    for (field, written) in conditions {
        let error = condition(written.as_ref()).err();
        found.extend(error.map(|message| FieldError::new(field, message)));
    }
    found
}
