//! What a worker does when too much comes: it sheds requests, by their priority.

use super::{Node, Worker};
use crate::error::Overload;
use crate::limits::{MemoryLimit, NodeLimit};
use std::time::Duration;
use weir_model::tags::Priority;

/// How often the memory of the process is read.
const MEMORY_INTERVAL: Duration = Duration::from_millis(250);

impl Node {
    /// Follows the memory of the process: sheds all requests while it is above the limit, until it is a twentieth below.
    pub(crate) async fn watch_memory(&self, limit: MemoryLimit) {
        loop {
            let (had, resident) = (self.limits.has_memory(), (limit.resident)());
            let most = if had { limit.bytes } else { limit.bytes - limit.bytes / 20 };
            let has = resident < most;
            if had != has {
                self.limits.set_has_memory(has, self.options.worker_requests_in_flight);
                tell(has, resident, limit.bytes);
            }
            tokio::time::sleep(MEMORY_INTERVAL).await;
        }
    }
}

fn tell(has_memory: bool, resident: u64, limit: u64) {
    if has_memory {
        tracing::warn!(resident, limit, "memory is within memory_limit again: requests are served");
    } else {
        tracing::error!(
            resident,
            limit,
            "the process uses more memory than memory_limit: requests are answered 503 until it uses less. Give it more, or \
             lower what takes it, such as mem_bodies_size or the number of connections"
        );
    }
}

impl Worker {
    /// Counts that a limit acted.
    #[cold]
    pub(crate) fn limit_acted(&self, limit: NodeLimit) {
        self.node.limits.of_worker(self.index).count(limit);
    }

    /// Whether a request, which is in flight already, must be shed.
    #[inline]
    pub(crate) fn overload(&self, priority: impl FnOnce() -> Priority) -> Option<Overload> {
        let limit = self.node.limits.requests();
        let others = self.in_flight.get().saturating_sub(1);
        if others < Priority::least_share_of(limit) { None } else { self.shed(others, limit, priority()) }
    }

    #[cold]
    fn shed(&self, others: usize, limit: usize, priority: Priority) -> Option<Overload> {
        if !self.node.limits.has_memory() {
            self.limit_acted(NodeLimit::Memory);
            return Some(Overload::Memory);
        }
        if others < priority.share_of(limit) {
            return None;
        }
        self.limit_acted(NodeLimit::RequestsInFlight);
        Some(Overload::Node)
    }
}

/// Counts a request in flight on a worker until it is dropped.
pub(crate) struct RequestInFlight<'w>(&'w Worker);

impl<'w> RequestInFlight<'w> {
    #[inline]
    pub(crate) fn new(worker: &'w Worker) -> Self {
        worker.in_flight.set(worker.in_flight.get() + 1);
        Self(worker)
    }
}

impl Drop for RequestInFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.set(self.0.in_flight.get() - 1);
    }
}
