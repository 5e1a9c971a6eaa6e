//! Requests in flight that nodes count together in Redis.

use super::super::limits::{Scripts, Unavailable, counted_by, scope};
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
        let reply = self.scripts.run(ENTER, key.clone(), arguments.clone(), Some(LEAVE))?;
        Ok(Entering { scripts: self.scripts.clone(), key, arguments, reply })
    }
}

/// A request whose number is not known yet.
pub(super) struct Entering {
    scripts: Arc<Scripts>,
    key: String,
    arguments: Vec<String>,
    reply: oneshot::Receiver<Vec<i64>>,
}

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
        let reply = self.reply.await.ok()?;
        let [is_in, number] = reply[..] else { return None };
        if is_in == 0 {
            return Some(Admission::Refused);
        }
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let (scripts, key, arguments) = (self.scripts, self.key, self.arguments);
        Some(Admission::Admitted(number, SharedGuard { scripts, key, arguments, has_left: Cell::new(false) }))
    }
}

/// A request in flight. It is counted until it is over, also if the client leaves.
pub(super) struct SharedGuard {
    scripts: Arc<Scripts>,
    key: String,
    arguments: Vec<String>,
    has_left: Cell<bool>,
}

impl SharedGuard {
    pub(super) fn leave(&self) {
        if !self.has_left.replace(true) {
            self.scripts.send(LEAVE, self.key.clone(), self.arguments.clone());
        }
    }
}

impl Drop for SharedGuard {
    fn drop(&mut self) {
        self.leave();
    }
}
