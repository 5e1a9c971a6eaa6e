//! Counts that nodes share in Redis.

use super::super::limits::{Quota, QuotaUsage, Quotas, Unavailable, counted_by, scope};
use super::Config;
use crate::shared::quota_window::{Limit, Usage};
use std::borrow::Cow;
use std::sync::Arc;
use tokio::sync::oneshot;
use weir_plugin::{BuildContext, Exchange};

/// The counts of one plugin in Redis.
pub(super) struct Shared {
    quotas: Arc<Quotas>,
    quota: Quota,
    /// The beginning of its keys.
    scope: String,
    /// Whether this node counts by itself while the store is unavailable.
    pub(super) allow_degradation: bool,
}

impl Shared {
    pub(super) fn new(config: &Config, limit: Limit, build: &BuildContext<'_>) -> Result<Self, String> {
        let quota = Quota { count: limit.count, seconds: limit.milliseconds / 1_000 };
        let scope = match &config.group {
            Some(group) => format!("group:{group}"),
            None => scope(build.entity),
        };
        Ok(Self {
            quotas: Quotas::of(&config.counts.redis(), build)?,
            quota,
            scope: format!("limit-count:{scope}:{}:{}", quota.count, quota.seconds),
            allow_degradation: config.counts.allow_degradation,
        })
    }

    /// Queues the query of a request that is counted by this value, or else by its client's address.
    pub(super) fn query(
        &self,
        exchange: &Exchange,
        value: Option<Cow<'_, [u8]>>,
    ) -> Result<oneshot::Receiver<QuotaUsage>, Unavailable> {
        self.quotas.query(&format!("{}:{}", self.scope, counted_by(exchange, value)), self.quota)
    }

    /// The usage as the headers show it.
    pub(super) fn usage(&self, answered: QuotaUsage) -> Usage {
        Usage {
            admitted: answered.admitted,
            remaining: self.quota.count.saturating_sub(answered.used),
            reset: answered.milliseconds_left.div_ceil(1_000),
        }
    }
}
