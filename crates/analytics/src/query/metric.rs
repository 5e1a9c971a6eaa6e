//! What can be asked for, and by what it can be divided.
use super::QueryError;
use crate::aggregate::{Aggregate, Latency, Outcome};
use crate::bucket;
use crate::entities::Kind;
use crate::histogram::Histogram;
use crate::model;
use std::fmt;
use std::str::FromStr;

pub(super) const METRICS: &str = "requests, errors, error_rate, 4xx, 5xx, bytes_in, bytes_out, retried, cached, reused, \
     and mean, p50, p90, p95, p99 or p999, also with _gateway or _upstream after it; of models prompt_tokens, completion_tokens, \
     and mean or a percentile with _first_token or _tokens_per_second after it";
pub(super) const DIMENSIONS: &str =
    "status, class, origin, cause, protocol, bucket, route, service, upstream, consumer, model, node";

/// A number of an aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Requests.
    Requests,
    /// Requests that ended in an error.
    Errors,
    /// The share of these.
    ErrorRate,
    /// Requests with a status of this class: 4 or 5.
    Class(u16),
    /// Bytes from clients.
    BytesIn,
    /// Bytes to clients.
    BytesOut,
    /// Requests that were sent upstream more than once.
    Retried,
    /// Requests that a cache answered.
    Cached,
    /// Requests over an upstream connection that had served one before.
    Reused,
    /// The mean of a latency in seconds.
    Mean(Latency),
    /// A percentile of a latency in seconds; the share is per mille.
    Percentile(Latency, u16),
    /// Tokens of prompts.
    PromptTokens,
    /// Tokens of responses.
    CompletionTokens,
    /// The mean time to the first token in seconds, or a percentile per mille.
    FirstToken(Option<u16>),
    /// The mean of tokens per second, or a percentile per mille.
    TokensPerSecond(Option<u16>),
}

/// The mean of a histogram in seconds, or a percentile per mille.
fn summary(histogram: &Histogram, per_mille: Option<u16>) -> Option<f64> {
    match per_mille {
        Some(per_mille) => histogram.percentile(f64::from(per_mille) / 1_000.0).map(bucket::seconds),
        None => {
            let count = histogram.count();
            (count > 0).then(|| bucket::seconds(histogram.sum()) / count as f64)
        }
    }
}

impl Metric {
    /// The number; none where there is nothing to divide.
    pub fn of(self, aggregate: &Aggregate) -> Option<f64> {
        let share = |part: f64, whole: u64| (whole > 0).then(|| part / whole as f64);
        Some(match self {
            Self::Requests => aggregate.requests() as f64,
            Self::Errors => aggregate.requests_with(Outcome::is_error) as f64,
            Self::ErrorRate => {
                return share(aggregate.requests_with(Outcome::is_error) as f64, aggregate.requests());
            }
            Self::Class(class) => aggregate.requests_with(|outcome| outcome.status / 100 == class) as f64,
            Self::BytesIn => aggregate.bytes_in as f64,
            Self::BytesOut => aggregate.bytes_out as f64,
            Self::Retried => aggregate.requests_of(|traits| traits.is_retried()) as f64,
            Self::Cached => aggregate.requests_of(|traits| traits.is_cached()) as f64,
            Self::Reused => aggregate.requests_of(|traits| traits.is_reused()) as f64,
            Self::Mean(latency) => return summary(aggregate.latency(latency), None),
            Self::Percentile(latency, per_mille) => {
                return summary(aggregate.latency(latency), Some(per_mille));
            }
            Self::PromptTokens => model::tokens(aggregate)[0] as f64,
            Self::CompletionTokens => model::tokens(aggregate)[1] as f64,
            Self::FirstToken(per_mille) => return summary(model::first_token(aggregate), per_mille),
            Self::TokensPerSecond(per_mille) => {
                return summary(model::tokens_per_second(aggregate), per_mille);
            }
        })
    }

    /// Whether it is counted of entities of this kind.
    pub(super) fn is_counted_of(self, kind: Kind) -> bool {
        match self {
            Self::Requests | Self::Errors | Self::ErrorRate | Self::Class(_) => true,
            Self::Mean(Latency::Total) | Self::Percentile(Latency::Total, _) => true,
            Self::PromptTokens | Self::CompletionTokens | Self::FirstToken(_) | Self::TokensPerSecond(_) => {
                kind == Kind::Model
            }
            _ => kind != Kind::Model,
        }
    }

    /// Whether it counts something, so that it is a whole number.
    pub fn is_count(self) -> bool {
        !matches!(
            self,
            Self::ErrorRate
                | Self::Mean(_)
                | Self::Percentile(..)
                | Self::FirstToken(_)
                | Self::TokensPerSecond(_)
        )
    }

    /// A mean or a percentile.
    fn summary(name: &str) -> Option<Metric> {
        let (name, of) = name.split_once('_').map_or((name, None), |(name, of)| (name, Some(of)));
        let per_mille = match name {
            "mean" => None,
            "p50" => Some(500),
            "p90" => Some(900),
            "p95" => Some(950),
            "p99" => Some(990),
            "p999" => Some(999),
            _ => return None,
        };
        let of_latency =
            |latency| per_mille.map_or(Self::Mean(latency), |share| Self::Percentile(latency, share));
        Some(match of {
            None => of_latency(Latency::Total),
            Some("gateway") => of_latency(Latency::Gateway),
            Some("upstream") => of_latency(Latency::Upstream),
            Some("first_token") => Self::FirstToken(per_mille),
            Some("tokens_per_second") => Self::TokensPerSecond(per_mille),
            Some(_) => return None,
        })
    }
}

impl FromStr for Metric {
    type Err = QueryError;

    fn from_str(name: &str) -> Result<Metric, QueryError> {
        Ok(match name {
            "requests" => Self::Requests,
            "errors" => Self::Errors,
            "error_rate" => Self::ErrorRate,
            "4xx" => Self::Class(4),
            "5xx" => Self::Class(5),
            "bytes_in" => Self::BytesIn,
            "bytes_out" => Self::BytesOut,
            "retried" => Self::Retried,
            "cached" => Self::Cached,
            "reused" => Self::Reused,
            "prompt_tokens" => Self::PromptTokens,
            "completion_tokens" => Self::CompletionTokens,
            name => Self::summary(name).ok_or_else(|| QueryError::Metric(name.to_owned()))?,
        })
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = |latency: &Latency| match latency {
            Latency::Total => "",
            Latency::Gateway => "_gateway",
            Latency::Upstream => "_upstream",
        };
        match self {
            Self::Requests => f.write_str("requests"),
            Self::Errors => f.write_str("errors"),
            Self::ErrorRate => f.write_str("error_rate"),
            Self::Class(class) => write!(f, "{class}xx"),
            Self::BytesIn => f.write_str("bytes_in"),
            Self::BytesOut => f.write_str("bytes_out"),
            Self::Retried => f.write_str("retried"),
            Self::Cached => f.write_str("cached"),
            Self::Reused => f.write_str("reused"),
            Self::Mean(latency) => write_summary(f, None, suffix(latency)),
            Self::Percentile(latency, per_mille) => write_summary(f, Some(*per_mille), suffix(latency)),
            Self::PromptTokens => f.write_str("prompt_tokens"),
            Self::CompletionTokens => f.write_str("completion_tokens"),
            Self::FirstToken(per_mille) => write_summary(f, *per_mille, "_first_token"),
            Self::TokensPerSecond(per_mille) => write_summary(f, *per_mille, "_tokens_per_second"),
        }
    }
}

fn write_summary(f: &mut fmt::Formatter<'_>, per_mille: Option<u16>, suffix: &str) -> fmt::Result {
    match per_mille {
        None => write!(f, "mean{suffix}"),
        Some(999) => write!(f, "p999{suffix}"),
        Some(per_mille) => write!(f, "p{}{suffix}", per_mille / 10),
    }
}

/// What the columns of a series are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// One column.
    Nothing,
    /// Each status.
    Status,
    /// Each class of status, such as 5xx.
    Class,
    /// Who decided the outcome.
    Origin,
    /// Why.
    Cause,
    /// Each protocol.
    Protocol,
    /// Each bucket of the total latency: a heat map.
    Bucket,
    /// Each entity of a kind: the busiest, and the others together.
    Entity(Kind),
}

impl FromStr for By {
    type Err = QueryError;

    fn from_str(name: &str) -> Result<By, QueryError> {
        Ok(match name {
            "" => Self::Nothing,
            "status" => Self::Status,
            "class" => Self::Class,
            "origin" => Self::Origin,
            "cause" => Self::Cause,
            "protocol" => Self::Protocol,
            "bucket" => Self::Bucket,
            "route" => Self::Entity(Kind::Route),
            "service" => Self::Entity(Kind::Service),
            "upstream" => Self::Entity(Kind::Upstream),
            "consumer" => Self::Entity(Kind::Consumer),
            "model" => Self::Entity(Kind::Model),
            "node" => Self::Entity(Kind::Node),
            _ => return Err(QueryError::By(name.to_owned())),
        })
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::Status => "status",
            Self::Class => "class",
            Self::Origin => "origin",
            Self::Cause => "cause",
            Self::Protocol => "protocol",
            Self::Bucket => "bucket",
            Self::Entity(kind) => kind.name(),
        })
    }
}
