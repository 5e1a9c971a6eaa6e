//! The limit of a listener's connections, and which of them is closed for another.
use super::requests_in_flight::RequestsInFlight;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// ClientTimeouts the number of connections.
pub(super) struct ConnectionLimit {
    pub(super) size: usize,
    free: Arc<Semaphore>,
    next: AtomicU64,
    /// The connections without a request, idle longest first, and how to close them.
    idle: Mutex<BTreeMap<u64, Arc<Notify>>>,
    /// Connections without a request are closed.
    closing: AtomicBool,
    in_flight: Arc<RequestsInFlight>,
}

/// The share of one connection in the limit.
pub(super) struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
    /// Its key among the idle connections.
    number: AtomicU64,
    close: Arc<Notify>,
    /// Whether it has a request that is counted as in flight.
    is_counted: AtomicBool,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionLimit {
    pub(super) fn new(size: usize, in_flight: Arc<RequestsInFlight>) -> ConnectionLimit {
        ConnectionLimit {
            size,
            free: Arc::new(Semaphore::new(size)),
            next: AtomicU64::new(1),
            idle: Mutex::default(),
            closing: AtomicBool::new(false),
            in_flight,
        }
    }

    fn idle(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Notify>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a permit. Calls `full` with whether the limit is reached; if so, closes the connection idle longest.
    pub(super) async fn acquire(&self, full: impl FnOnce(bool)) -> Option<OwnedSemaphorePermit> {
        let free = self.free.clone().try_acquire_owned();
        full(free.is_err());
        if let Ok(permit) = free {
            return Some(permit);
        }
        if let Some((_, close)) = self.idle().pop_first() {
            close.notify_one();
        }
        self.free.clone().acquire_owned().await.ok()
    }

    /// Closes the connections that have no request, now or after their next response.
    pub(super) fn close_idle(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.idle().values().for_each(|close| close.notify_one());
    }

    /// Registers a connection, which is idle so far.
    pub(super) fn take(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> ConnectionPermit {
        let (number, close) = (AtomicU64::default(), Arc::new(Notify::new()));
        let is_counted = AtomicBool::new(false);
        let permit = ConnectionPermit { limit: self.clone(), number, close, is_counted, _permit: permit };
        permit.mark_idle();
        permit
    }
}

impl ConnectionPermit {
    /// The connection has sent the head of a request.
    pub(super) fn mark_busy(&self) {
        self.leave_idle();
        if !self.is_counted.load(Ordering::Relaxed) {
            self.is_counted.store(self.limit.in_flight.add(), Ordering::Relaxed);
        }
    }

    /// A node that stops does not wait for its request: that is answered, or its response has no end of its own.
    pub(super) fn uncount(&self) {
        if self.is_counted.swap(false, Ordering::Relaxed) {
            self.limit.in_flight.remove();
        }
    }

    fn leave_idle(&self) {
        self.limit.idle().remove(&self.number.load(Ordering::Relaxed));
    }

    /// The connection has no request: it may be closed for another, after those that have been idle longer.
    pub(super) fn mark_idle(&self) {
        self.uncount();
        let number = self.limit.next.fetch_add(1, Ordering::Relaxed);
        let mut idle = self.limit.idle();
        idle.remove(&self.number.swap(number, Ordering::Relaxed));
        idle.insert(number, self.close.clone());
        if self.limit.closing.load(Ordering::SeqCst) {
            self.close.notify_one();
        }
    }

    /// Returns when the connection must be closed for another.
    pub(super) async fn evicted(&self) {
        self.close.notified().await;
    }

    /// Whether more than half of the limit is used, so that idle connections are not kept.
    pub(super) fn is_crowded(&self) -> bool {
        self.limit.free.available_permits() < self.limit.size / 2
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.leave_idle();
        self.uncount();
    }
}
