//! What a node has served, for plugins that report it.

use std::sync::OnceLock;

/// Counts since the start of a node, in the terms of nginx's `stub_status`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServedTotals {
    /// Connections open now.
    pub active: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Requests answered.
    pub requests: u64,
}

type Read = Box<dyn Fn() -> ServedTotals + Send + Sync>;

/// Where plugins find [`ServedTotals`] once the node runs: a value of [`Retained`](super::Retained).
#[derive(Default)]
pub struct NodeStatistics(OnceLock<Read>);

impl NodeStatistics {
    /// Has plugins use this. The first one stays.
    pub fn provide(&self, read: impl Fn() -> ServedTotals + Send + Sync + 'static) {
        // A node provides one.
        let _ = self.0.set(Box::new(read));
    }

    /// The counts now: zeros until the node serves its first configuration.
    pub fn totals(&self) -> ServedTotals {
        self.0.get().map_or_else(ServedTotals::default, |read| read())
    }
}
