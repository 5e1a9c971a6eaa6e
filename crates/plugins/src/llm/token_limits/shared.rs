//! Tokens that nodes count together in Redis.

use super::{Standing, TokenLimit, TokenLimiter};
use crate::limits::{Counts, Reply, Scripts, Unavailable, counted_by};
use crate::shared::quota_window::{Limit, Usage};
use std::borrow::Cow;
use std::sync::Arc;
use tokio::sync::oneshot;
use weir_plugin::{BuildContext, Exchange};

const USE: &str = include_str!("use.lua");

/// The store of one plugin's counts.
pub(crate) struct SharedTokens {
    scripts: Arc<Scripts>,
    /// Whether this node counts by itself while the server is unavailable.
    pub(crate) allow_degradation: bool,
}

/// How limits stand, once the server has replied.
pub(crate) struct Standings {
    standings: Vec<Standing>,
    replies: Vec<oneshot::Receiver<Reply>>,
}

impl SharedTokens {
    pub(crate) fn new(counts: &Counts, build: &BuildContext<'_>) -> Result<Self, String> {
        let scripts = Scripts::of(&counts.redis(), build)?;
        Ok(Self { scripts, allow_degradation: counts.allow_degradation })
    }

    /// Asks how the limits stand.
    pub(crate) fn ask(
        &self,
        limiter: &TokenLimiter,
        standings: Vec<Standing>,
    ) -> Result<Standings, Unavailable> {
        let ask = |of: &Standing| self.run(&of.key, limiter.limits[of.limit].limit, 0);
        let replies = standings.iter().map(ask).collect::<Result<_, _>>()?;
        Ok(Standings { standings, replies })
    }

    /// Adds tokens, without waiting for it.
    pub(super) fn add(&self, key: &str, limit: Limit, tokens: u64) {
        // More would not fit into the server's numbers. While it is unavailable, the breaker has said so in the log.
        let _ = self.run(key, limit, tokens.min(i64::MAX as u64 / 2));
    }

    fn run(&self, key: &str, limit: Limit, tokens: u64) -> Result<oneshot::Receiver<Reply>, Unavailable> {
        let arguments = vec![tokens.to_string(), (limit.milliseconds / 1_000).to_string()];
        self.scripts.run(USE, key.to_owned(), arguments, None)
    }
}

impl Standings {
    /// Waits for the replies; none if the server does not reply in time.
    pub(crate) async fn replied(mut self, limiter: &TokenLimiter) -> Option<Vec<Standing>> {
        for (standing, reply) in self.standings.iter_mut().zip(self.replies) {
            let reply = reply.await.ok()?;
            standing.usage = usage(limiter.limits[standing.limit].limit, &reply.numbers)?;
        }
        Some(self.standings)
    }
}

/// What the script says of a limit. Before the window has begun, all of it is left.
fn usage(limit: Limit, numbers: &[i64]) -> Option<Usage> {
    let [used, milliseconds] = *numbers else { return None };
    let (used, left) = (u64::try_from(used).ok()?, u64::try_from(milliseconds).unwrap_or(limit.milliseconds));
    Some(Usage {
        admitted: used < limit.count,
        remaining: limit.count.saturating_sub(used),
        reset: left.div_ceil(1_000),
    })
}

impl TokenLimit {
    /// The key of a counter in Redis.
    pub(super) fn shared_key(&self, exchange: &Exchange, value: Cow<'_, [u8]>) -> String {
        format!("{}:{}", self.shared_scope, counted_by(exchange, Some(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Limit, Usage, usage};

    #[test]
    fn a_window_that_has_not_begun_is_whole() {
        let limit = Limit { count: 10, milliseconds: 60_000 };
        let of = |numbers: &[i64]| usage(limit, numbers);
        assert_eq!(of(&[0, -2]), Some(Usage { admitted: true, remaining: 10, reset: 60 }));
        assert_eq!(of(&[9, 1_001]), Some(Usage { admitted: true, remaining: 1, reset: 2 }));
        assert_eq!(of(&[14, 5]), Some(Usage { admitted: false, remaining: 0, reset: 1 }));
        assert_eq!((of(&[1]), of(&[-1, 5])), (None, None));
    }
}
