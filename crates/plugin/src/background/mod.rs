//! Work of plugins off the request path: one thread for all of them. A node starts it before it serves, because the system may
//! start none later; elsewhere it starts when it is first needed. It survives reloads.

mod dropped;
mod lines;
mod queue;
#[cfg(test)]
mod tests;
mod timer;

pub use dropped::Dropped;
pub(crate) use dropped::Sender;
pub use lines::{Delivered, Lines, Undelivered};
pub use queue::{Failed, Queue, QueueConfig};
pub use timer::Timer;

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use weir_net::thread::{runtime, spawn_with_runtime};

/// The thread that plugins share.
#[derive(Default)]
pub struct Background {
    runtime: OnceLock<Handle>,
    /// Held while the thread is started, of which there is one.
    starting: Mutex<()>,
    /// How many tasks the node waits for before it exits.
    awaited: Mutex<usize>,
    ended: Condvar,
    ending: watch::Sender<bool>,
    /// Everything that may hold entries.
    holders: Mutex<Vec<Weak<dyn Holder>>>,
}

/// Holds entries that are to be delivered.
trait Holder: Send + Sync {
    /// The name of the plugin entity in the log.
    fn name(&self) -> &str;
    /// How many entries are neither delivered nor logged as dropped.
    fn undelivered(&self) -> u64;
}

impl Background {
    /// Runs a task until it ends or the process does.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.begin_task(task);
    }

    /// Runs work that blocks or takes long where no other work waits for it. Workers have no threads for it: where the
    /// system starts none, tokio's `spawn_blocking` panics in them.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        Ok(self.runtime()?.spawn_blocking(work).await?)
    }

    /// Starts the thread, unless it runs.
    pub fn start(&self) -> io::Result<()> {
        self.runtime().map(drop)
    }

    fn runtime(&self) -> io::Result<&Handle> {
        if let Some(runtime) = self.runtime.get() {
            return Ok(runtime);
        }
        let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        match self.runtime.get() {
            Some(runtime) => Ok(runtime),
            None => start().map(|started| self.runtime.get_or_init(|| started)),
        }
    }

    fn begin_task(&self, task: impl Future<Output = ()> + Send + 'static) -> Option<AbortHandle> {
        match self.runtime() {
            Ok(runtime) => Some(runtime.spawn(task).abort_handle()),
            Err(error) => {
                tracing::error!(
                    %error,
                    "the thread of plugins does not start: background work (logs, Redis sync) is not done; raise the limit \
                     of threads, and restart the node"
                );
                None
            }
        }
    }

    /// Registers work that the node waits for before it exits. Call [`end`](Self::end) when it is done.
    pub fn begin(&self) {
        *self.awaited.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    /// Ends work that [`begin`](Self::begin) registered.
    pub fn end(&self) {
        *self.awaited.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.ended.notify_all();
    }

    /// Includes a holder in the number of undelivered entries, as long as it exists.
    fn watch(&self, holder: Weak<dyn Holder>) {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        if holders.len() == holders.capacity() {
            holders.retain(|holder| holder.strong_count() > 0);
        }
        holders.push(holder);
    }

    /// How many entries of each plugin entity are not delivered, by its name in the log.
    pub fn undelivered(&self) -> BTreeMap<String, u64> {
        let holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = BTreeMap::new();
        for holder in holders.iter().filter_map(Weak::upgrade) {
            match holder.undelivered() {
                0 => {}
                entries => *counts.entry(holder.name().to_owned()).or_default() += entries,
            }
        }
        counts
    }

    /// Announces that the node is about to exit: from now on nothing is delayed.
    pub fn hurry(&self) {
        self.ending.send_replace(true);
    }

    /// Whether the node is about to exit.
    pub fn is_ending(&self) -> bool {
        *self.ending.borrow()
    }

    /// Completes when the node is about to exit, to interrupt longer waits.
    pub fn ending(&self) -> impl Future<Output = ()> + use<> {
        let mut ending = self.ending.subscribe();
        async move {
            // An error means that the node has exited.
            let _ = ending.wait_for(|ending| *ending).await;
        }
    }

    /// Waits until registered work has ended, for at most `timeout`; returns whether it has.
    pub fn finish(&self, timeout: Duration) -> bool {
        self.hurry();
        let end = Instant::now() + timeout;
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

fn start() -> io::Result<Handle> {
    let build = || runtime(&mut Builder::new_current_thread());
    spawn_with_runtime("weir-plugins", build, |runtime| runtime.block_on(std::future::pending()))
}
