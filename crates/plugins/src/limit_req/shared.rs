//! Buckets that nodes share in Redis.

use super::super::limits::{Reply, Scripts, Unavailable, counted_by, scope};
use super::Config;
use std::borrow::Cow;
use std::sync::Arc;
use tokio::sync::oneshot;
use weir_plugin::{BuildContext, Exchange};

const POUR: &str = include_str!("pour.lua");

/// The buckets of one plugin in Redis.
pub(super) struct Shared {
    scripts: Arc<Scripts>,
    /// The beginning of their keys.
    scope: String,
    /// The rate and the burst, in thousandths of requests.
    limit: [String; 2],
    /// Whether this node counts by itself while the server is unavailable.
    pub(super) allow_degradation: bool,
}

impl Shared {
    pub(super) fn new(config: &Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let (rate, burst) = (config.rate, config.burst);
        Ok(Self {
            scripts: Scripts::of(&config.counts.redis(), build)?,
            scope: format!("limit-req:{}:{rate}:{burst}", scope(build.entity)),
            limit: [rate, burst].map(|number| (number * 1_000.0).to_string()),
            allow_degradation: config.counts.allow_degradation,
        })
    }

    /// Pours a request that is counted by this value, or else by its client's address.
    pub(super) fn pour(
        &self,
        exchange: &Exchange,
        value: Option<Cow<'_, [u8]>>,
    ) -> Result<oneshot::Receiver<Reply>, Unavailable> {
        let key = format!("{}:{}", self.scope, counted_by(exchange, value));
        self.scripts.run(POUR, key, self.limit.to_vec(), None)
    }
}

/// By how many requests the rate is exceeded, by the script's reply; none if that is more than the burst.
pub(super) fn excess(reply: &[i64]) -> Option<f64> {
    let thousandths = reply.first().copied().filter(|number| *number >= 0)?;
    Some(thousandths as f64 / 1_000.0)
}
