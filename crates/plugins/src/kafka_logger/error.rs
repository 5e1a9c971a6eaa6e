//! Why records did not reach Kafka, and how to fix it.

use kafka_protocol::ResponseError;
use std::fmt;
use std::io;
use weir_plugin::Failed;

/// Why a broker did not take records.
#[derive(Debug)]
pub(super) enum KafkaError {
    /// The connection could not be opened, or failed.
    Io(io::Error),
    /// The broker closed the connection in place of a response.
    Closed,
    /// The broker took longer than `timeout`.
    Timeout,
    /// What came is not a response of Kafka, or the request cannot be written.
    Malformed(String),
    /// The broker does not offer the mechanism, but these.
    Mechanism(String),
    /// The broker refused user and password, or could not prove that it knows the password.
    Login(String),
    /// The broker answered with an error.
    Refused(ResponseError),
}

/// An error, and where it happened.
#[derive(Debug)]
pub(super) struct SendError {
    /// Host and port of the broker.
    pub(super) broker: String,
    pub(super) topic: String,
    pub(super) error: KafkaError,
}

impl KafkaError {
    /// Whether a new connection, or what the cluster now says of its brokers, may help at once.
    pub(super) fn may_be_stale(&self) -> bool {
        match self {
            Self::Io(_) | Self::Closed => true,
            Self::Refused(error) => error.is_retriable(),
            _ => false,
        }
    }

    /// Whether no retry helps.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Mechanism(_) | Self::Login(_) => true,
            Self::Refused(error) => !error.is_retriable(),
            Self::Io(_) | Self::Closed | Self::Timeout | Self::Malformed(_) => false,
        }
    }

    fn fix(&self) -> &'static str {
        match self {
            Self::Io(_) => "check brokers, and that the broker runs",
            Self::Closed => {
                "check sasl_config and tls: a listener closes connections that lack what it expects"
            }
            Self::Timeout => "raise timeout, or check the broker",
            Self::Malformed(_) => {
                "check that host and port are those of a Kafka broker, 0.11 or newer, and tls"
            }
            Self::Mechanism(_) => "set sasl_config.mechanism to one of these",
            Self::Login(_) => "check sasl_config.user and sasl_config.password",
            Self::Refused(error) => refusal_fix(*error),
        }
    }
}

fn refusal_fix(error: ResponseError) -> &'static str {
    use ResponseError::{
        ClusterAuthorizationFailed, InvalidRequiredAcks, InvalidTopicException, LeaderNotAvailable,
        MessageTooLarge, NotEnoughReplicas, NotEnoughReplicasAfterAppend, RecordListTooLarge,
        TopicAuthorizationFailed, UnknownTopicOrPartition, UnsupportedVersion,
    };
    match error {
        UnknownTopicOrPartition => "create the topic, or correct kafka_topic",
        InvalidTopicException => "correct kafka_topic: letters, digits, '.', '_' and '-'",
        TopicAuthorizationFailed | ClusterAuthorizationFailed => {
            "allow the user of sasl_config to write to the topic"
        }
        MessageTooLarge | RecordListTooLarge => {
            "lower batch_max_size, producer_batch_size or the limits of bodies, or raise the topic's max.message.bytes"
        }
        NotEnoughReplicas | NotEnoughReplicasAfterAppend => {
            "start more replicas, lower the topic's min.insync.replicas, or set required_acks to 1"
        }
        LeaderNotAvailable => {
            "wait for the topic's partitions to get a leader, or check the brokers that hold them"
        }
        InvalidRequiredAcks => "set required_acks to 1 or -1",
        UnsupportedVersion => "use Kafka 0.11 or newer",
        _ => "see the broker's log",
    }
}

impl fmt::Display for KafkaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Closed => f.write_str("the broker closed the connection"),
            Self::Timeout => f.write_str("the broker took too long"),
            Self::Malformed(why) => write!(f, "unexpected data: {why}"),
            Self::Mechanism(offered) => write!(f, "the broker offers other mechanisms: {offered}"),
            Self::Login(why) => write!(f, "the login failed: {why}"),
            Self::Refused(error) => write!(f, "the broker answered {error}"),
        }
    }
}

impl std::error::Error for KafkaError {}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { broker, topic, error } = self;
        write!(f, "topic {topic} at {broker}: {error}: {}", error.fix())
    }
}

impl std::error::Error for SendError {}

impl From<SendError> for Failed {
    fn from(error: SendError) -> Self {
        match error.error.is_final() {
            true => Self::Forever(error.to_string()),
            false => Self::Now(error.to_string()),
        }
    }
}
