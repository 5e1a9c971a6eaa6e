//! What plugins do off the request path: one thread for all of them, started when one first needs it. It outlives
//! configurations.

mod dropped;
mod lines;
mod queue;
#[cfg(test)]
mod tests;

pub(crate) use dropped::{Dropped, Sender};
pub use lines::{Delivered, Lines, Undelivered};
pub use queue::{Failed, Queue, QueueConfig};

use std::future::Future;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// The thread that plugins share.
#[derive(Default)]
pub struct Background {
    runtime: OnceLock<Option<Handle>>,
    /// How many tasks are to end before the node does.
    awaited: Mutex<usize>,
    ended: Condvar,
    ending: watch::Sender<bool>,
}

impl Background {
    /// Runs a task until it ends or the process does.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match self.runtime.get_or_init(start) {
            Some(runtime) => drop(runtime.spawn(task)),
            None => tracing::error!(
                "the thread of plugins did not start; what one had to do there is left undone"
            ),
        }
    }

    /// Says that something is under way that should be completed before the node ends.
    pub(crate) fn begin(&self) {
        *self.awaited.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    /// Says that it is.
    pub(crate) fn end(&self) {
        *self.awaited.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.ended.notify_all();
    }

    /// Returns when the node is about to end, for those who would otherwise wait longer.
    pub(crate) fn ending(&self) -> impl Future<Output = ()> + use<> {
        let mut ending = self.ending.subscribe();
        async move {
            // An error means that the node has ended.
            let _ = ending.wait_for(|ending| *ending).await;
        }
    }

    /// Waits until what is under way is completed, but no longer than so; whether it is.
    pub fn finish(&self, patience: Duration) -> bool {
        self.ending.send_replace(true);
        let end = Instant::now() + patience;
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        while *awaited > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            awaited = self.ended.wait_timeout(awaited, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

fn start() -> Option<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let handle = runtime.handle().clone();
    let run = move || runtime.block_on(std::future::pending::<()>());
    std::thread::Builder::new().name("weir-plugins".into()).spawn(run).ok()?;
    Some(handle)
}
