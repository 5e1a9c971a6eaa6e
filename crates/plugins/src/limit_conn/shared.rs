//! Requests in flight that nodes count together in Redis.

use super::super::limits::{Reply, Scripts, Unavailable, Undo, counted_by, scope};
use super::Config;
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;
use tokio::sync::oneshot;
use weir_plugin::{BuildContext, Exchange};

const ENTER: &str = include_str!("enter.lua");
const LEAVE: &str = "return { redis.call('ZREM', KEYS[1], ARGV[3]) }";

/// The requests of one plugin in Redis.
pub(super) struct Shared {
    scripts: Arc<Scripts>,
    /// The beginning of their keys.
    scope: String,
    /// How many requests there may be.
    most: u32,
    key_ttl: u32,
    /// Whether this node counts by itself while the server is unavailable.
    pub(super) allow_degradation: bool,
}

impl Shared {
    pub(super) fn new(config: &Config, build: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self {
            scripts: Scripts::of(&config.counts.redis(), build)?,
            scope: format!("limit-conn:{}", scope(build.entity)),
            most: config.conn + config.burst,
            key_ttl: config.key_ttl,
            allow_degradation: config.counts.allow_degradation,
        })
    }

    /// Adds a request that is counted by this value, or else by its client's address.
    pub(super) fn enter(
        &self,
        exchange: &Exchange,
        value: Option<Cow<'_, [u8]>>,
    ) -> Result<Entering, Unavailable> {
        let key = format!("{}:{}", self.scope, counted_by(exchange, value));
        let request = exchange.id().to_owned();
        let arguments = vec![self.most.to_string(), self.key_ttl.to_string(), request];
        Ok(Entering(self.scripts.run(ENTER, key, arguments, Some(LEAVE))?))
    }
}

/// A request whose number is not known yet.
pub(super) struct Entering(oneshot::Receiver<Reply>);

/// What became of it.
pub(super) enum Admission {
    /// It is one of the requests in flight, of this number.
    Admitted(u32, SharedGuard),
    /// There are too many.
    Refused,
}

impl Entering {
    /// Waits for the server; none if it did not answer.
    pub(super) async fn entered(self) -> Option<Admission> {
        let Reply { numbers, undo } = self.0.await.ok()?;
        let ([is_in, number], Some(undo)) = (&numbers[..], undo) else { return None };
        if *is_in == 0 {
            undo.disarm();
            return Some(Admission::Refused);
        }
        let number = u32::try_from(*number).unwrap_or(u32::MAX);
        Some(Admission::Admitted(number, SharedGuard(Cell::new(Some(undo)))))
    }
}

/// A request in flight. It is counted until it is over, also if the client leaves.
pub(super) struct SharedGuard(Cell<Option<Undo>>);

impl SharedGuard {
    pub(super) fn leave(&self) {
        drop(self.0.take());
    }
}
