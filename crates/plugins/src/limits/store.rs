//! The interface of a store of counts that several nodes share.

use super::sliding::Slide;
use super::window::Period;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use weir_plugin::{Retained, Uuid};

/// The result of a store, or why it is unavailable and how to fix it.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, Unavailable>> + Send + 'a>>;

/// Which store is unavailable and why. Contains no secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable(pub String);

/// How to fix that the user lacks a permission.
pub(super) const FIX_PERMISSIONS: &str = ": let the user run PING, SELECT, SCRIPT LOAD, EVAL, EVALSHA, GET, INCRBY, EXPIRE and PTTL on the keys \
     ratelimit:*, response-ratelimit:*, limit-count:* and ai-rate-limiting:*; for limit-req and limit-conn also TIME, HMGET, HMSET, \
     PEXPIRE, ZADD, ZCARD, ZREM and ZREMRANGEBYSCORE on limit-req:* and limit-conn:*; for proxy-cache also SET, DEL, \
     EXISTS, SCAN, ZADD, ZRANGE, ZREMRANGEBYSCORE and PEXPIRE on proxy-cache:*; for acme also SET, DEL and SCAN on \
     kong_acme:* and *#http-01; for a cluster CLUSTER SLOTS and ASKING";

impl Unavailable {
    /// Whether the server answers, and the user lacks a permission.
    pub(crate) fn is_refusal(&self) -> bool {
        self.0.ends_with(FIX_PERMISSIONS)
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// Keeps counts that several nodes share.
pub trait CounterStore: Send + Sync + 'static {
    /// Its name in messages.
    fn place(&self) -> &str;
    /// For each, takes as many as every limit leaves, at most as many as wanted. Takes are atomic, also across nodes.
    /// No two have the same key. None for a take that is not possible now, while others are.
    fn take<'a>(&'a self, takes: &'a [Take]) -> Pending<'a, Vec<Option<Taken>>>;
    /// Adds, whatever the limits; returns the counts after it, or none as above. No two are for the same window.
    fn add<'a>(&'a self, adds: &'a [Add]) -> Pending<'a, Vec<Option<u64>>>;
    /// Checks that it can be used now.
    fn reach(&self) -> Pending<'_, ()>;
}

/// What a counter counts, in Kong's terms.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CounterKey {
    /// The plugin's route, or nil.
    pub route: Uuid,
    /// The plugin's service, or nil.
    pub service: Uuid,
    /// The consumer's id, the client's address and so on.
    pub identifier: Box<str>,
    /// None for requests; for usage that responses report, its name.
    pub of_responses: Option<Box<str>>,
}

/// A window of a period, and for how long its count matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Its length.
    pub period: Period,
    /// When it begins, in seconds since 1970.
    pub starts: u64,
    /// For how many seconds from now its count is kept.
    pub kept: u64,
}

/// One limit, in the window of a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// The window that counts.
    pub window: Window,
    /// The limit.
    pub admits: u64,
    /// With sliding windows: when the previous one began, and how much of it counts.
    pub before: Option<(u64, Slide)>,
}

/// A request to take from a counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Take {
    /// The counter.
    pub key: Arc<CounterKey>,
    /// How many; with 0, only the counts are read.
    pub wanted: u64,
    /// The limits.
    pub bounds: Vec<Bound>,
}

/// What was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// How many.
    pub taken: u64,
    /// For each bound: the count of its window afterwards, and what the previous window adds to it.
    pub counts: Vec<(u64, u64)>,
}

/// A request to add to a counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Add {
    /// The counter.
    pub key: Arc<CounterKey>,
    /// The window.
    pub window: Window,
    /// How many; with 0, only the count is read.
    pub amount: u64,
}

/// The store of policy `cluster`, if the node has one.
#[derive(Default)]
pub struct ClusterStore(OnceLock<Arc<dyn CounterStore>>);

impl ClusterStore {
    /// Sets the store for the plugins of a node, once.
    pub fn provide(retained: &Retained, store: Arc<dyn CounterStore>) {
        let _ = retained.get::<ClusterStore>().0.set(store);
    }

    pub(super) fn of(retained: &Retained) -> Option<Arc<dyn CounterStore>> {
        retained.get::<ClusterStore>().0.get().cloned()
    }
}
