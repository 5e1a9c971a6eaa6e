//! What a store of counts promises that several nodes share.

use super::sliding::Slide;
use super::window::Period;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use weir_plugin::{Retained, Uuid};

/// What a store says in the end, or why it does not and how to mend it.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, Unavailable>> + Send + 'a>>;

/// Why a store does not do what it is asked to, and which it is. Has no secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable(pub String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// Keeps counts that several nodes share.
pub trait CounterStore: Send + Sync + 'static {
    /// How messages call it.
    fn place(&self) -> &str;
    /// Takes as many of each as every limit leaves, at most as many as wanted: one after another, whoever else takes
    /// at the same time. No two of them are of the same. None for what cannot be told now, while the rest can.
    fn take<'a>(&'a self, takes: &'a [Take]) -> Pending<'a, Vec<Option<Taken>>>;
    /// Adds, whatever the limits; returns the counts after it, likewise. No two are of the same window.
    fn add<'a>(&'a self, adds: &'a [Add]) -> Pending<'a, Vec<Option<u64>>>;
    /// Whether it can be asked now.
    fn reach(&self) -> Pending<'_, ()>;
}

/// What is counted: Kong's names for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Whose {
    /// The plugin's route, or nil.
    pub route: Uuid,
    /// The plugin's service, or nil.
    pub service: Uuid,
    /// The consumer's id, the client's address and so on.
    pub identifier: Box<str>,
    /// Requests, or what of this name responses say that was used.
    pub of_responses: Option<Box<str>>,
}

/// A window of a period, and until when its count matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// How long it is.
    pub period: Period,
    /// When it begins, in seconds since 1970.
    pub starts: u64,
    /// For how many seconds from now its count is kept.
    pub kept: u64,
}

/// One limit, in the window of a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// The window that is counted in.
    pub window: Window,
    /// At most so many.
    pub admits: u64,
    /// Where windows slide: when the one before began, and how much of it counts.
    pub before: Option<(u64, Slide)>,
}

/// What is to be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Take {
    /// Of what.
    pub whose: Arc<Whose>,
    /// How many; of none, only the counts are asked for.
    pub wanted: u64,
    /// What must be kept.
    pub bounds: Vec<Bound>,
}

/// What was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// How many.
    pub taken: u64,
    /// By bound: the count of its window after it, and what the window before adds to it.
    pub counts: Vec<(u64, u64)>,
}

/// What is to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Add {
    /// To what.
    pub whose: Arc<Whose>,
    /// In which window.
    pub window: Window,
    /// How many; none, where only the count is asked for.
    pub amount: u64,
}

/// The store of policy `cluster`, where the node has one.
#[derive(Default)]
pub struct ClusterStore(OnceLock<Arc<dyn CounterStore>>);

impl ClusterStore {
    /// Gives the plugins of a node a store, once.
    pub fn provide(retained: &Retained, store: Arc<dyn CounterStore>) {
        let _ = retained.get::<ClusterStore>().0.set(store);
    }

    pub(super) fn of(retained: &Retained) -> Option<Arc<dyn CounterStore>> {
        retained.get::<ClusterStore>().0.get().cloned()
    }
}
