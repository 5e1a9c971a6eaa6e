//! A circuit breaker: a store that failed gets no requests until it answers again, which is probed every second.

use super::store::{CounterStore, Unavailable};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;
use tokio::sync::Notify;

/// The pause between probes of a store that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Whether a store gets requests.
pub(super) struct Breaker {
    pub(super) store: Arc<dyn CounterStore>,
    /// Whether the store answered the last time. If not, no request waits for it.
    answers: AtomicBool,
    /// No request can use the store any more.
    closed: AtomicBool,
    /// Wakes the task that reports counts: some have changed, the store answers again, or it is closed.
    pub(super) wake: Notify,
}

impl Breaker {
    pub(super) fn new(store: Arc<dyn CounterStore>) -> Self {
        Self { store, answers: AtomicBool::new(true), closed: AtomicBool::new(false), wake: Notify::new() }
    }

    pub(super) fn answers(&self) -> bool {
        self.answers.load(Acquire)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Relaxed);
        self.wake.notify_one();
    }

    /// Why requests do not wait for the store.
    pub(super) fn refusal(&self) -> Unavailable {
        Unavailable(format!("{} does not answer", self.store.place()))
    }

    /// Opens the breaker: no request waits for the store until it answers again.
    pub(super) fn fail(self: &Arc<Self>, error: &Unavailable) {
        if !self.answers.swap(false, AcqRel) {
            return;
        }
        tracing::warn!(
            "rate limits: {error}; until it answers, this node counts by itself, or answers 500 where fault_tolerant or \
             allow_degradation is false"
        );
        tokio::spawn(self.clone().recover());
    }

    async fn recover(self: Arc<Self>) {
        while !self.is_closed() {
            tokio::time::sleep(PAUSE).await;
            if self.store.reach().await.is_ok() {
                self.answers.store(true, Release);
                tracing::info!("rate limits: {} answers again", self.store.place());
                return self.wake.notify_one();
            }
        }
    }
}
