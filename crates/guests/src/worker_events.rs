//! Events that code on one worker posts to all workers of the node.

use std::sync::Arc;
use tokio::sync::broadcast::{Sender, channel};

/// How many events wait for a worker. It loses the oldest if there are more.
const MAX_WAITING: usize = 1024;

/// The events of a node, and those who wait for them.
pub(crate) struct WorkerEvents(pub(crate) Sender<Arc<Event>>);

impl Default for WorkerEvents {
    fn default() -> Self {
        Self(channel(MAX_WAITING).0)
    }
}

/// An event.
pub(crate) struct Event {
    pub(crate) source: Box<[u8]>,
    pub(crate) name: Box<[u8]>,
    /// The data, as a record.
    pub(crate) data: Vec<u8>,
    pub(crate) worker: usize,
}
