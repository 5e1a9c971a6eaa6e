//! Calls of language models. They are few and slow beside requests, so they need no ring: they are counted of their model
//! alone, in the place of an aggregate that requests leave empty.
//!
//! Of a model, an aggregate has the tokens of prompts in the place of bytes from clients, those of responses in the place of
//! bytes to clients, the time to the first token as the upstream's latency, and tokens per second as the gateway's.
use crate::aggregate::{Aggregate, Latency};
use crate::bucket::Bucket;
use crate::entities::{Entities, Kind, OTHERS};
use crate::histogram::Histogram;
use std::time::Duration;

/// The latency under which tokens per second are kept, as if they were seconds.
pub(crate) const RATE: Latency = Latency::Gateway;

/// The latency under which the time to the first token is kept.
pub(crate) const FIRST_TOKEN: Latency = Latency::Upstream;

/// The highest rate, in tokens per second.
const MAX_RATE: f64 = 1e9;

/// A call of a model that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCall<'a> {
    /// The model, behind its provider.
    pub model: &'a str,
    /// The configuration names the model: it is no client's word.
    pub is_configured: bool,
    /// The status of the response.
    pub status: u16,
    /// The tokens of prompts and response.
    pub tokens: [u64; 2],
    /// From the request to the end of the response.
    pub latency: Duration,
    /// How long the first text of a stream took.
    pub first_token: Option<Duration>,
    /// Tokens of the response per second.
    pub tokens_per_second: Option<f64>,
}

impl ModelCall<'_> {
    /// The number of the model. A call that failed gives a name that a client has chosen no number, because it may be any.
    pub(crate) fn number(&self, entities: &Entities) -> u32 {
        match self.status {
            _ if self.is_configured => entities.intern_beyond(Kind::Model, self.model),
            200..300 => entities.intern(Kind::Model, self.model),
            _ => entities.find(Kind::Model, self.model).unwrap_or(OTHERS),
        }
    }

    /// What is counted in the places of latencies: total, the gateway's and the upstream's.
    pub(crate) fn measures(&self) -> [Bucket; 3] {
        let rate = self.tokens_per_second.filter(|rate| (0.0..=MAX_RATE).contains(rate));
        let rate = rate.map(Duration::from_secs_f64);
        let bucket = |value: Option<Duration>| value.map_or(Bucket::NONE, Bucket::of_duration);
        [Bucket::of_duration(self.latency), bucket(rate), bucket(self.first_token)]
    }
}

/// Tokens of prompts and responses.
pub fn tokens(aggregate: &Aggregate) -> [u64; 2] {
    [aggregate.bytes_in, aggregate.bytes_out]
}

/// The histogram of the time to the first token, in the units of latencies.
pub fn first_token(aggregate: &Aggregate) -> &Histogram {
    aggregate.latency(FIRST_TOKEN)
}

/// The histogram of tokens per second, as if these were seconds.
pub fn tokens_per_second(aggregate: &Aggregate) -> &Histogram {
    aggregate.latency(RATE)
}
