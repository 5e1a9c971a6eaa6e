//! Which worker a thread is, as code sees it.

use std::cell::Cell;
use weir_plugin::WorkerContext;

/// The number of a worker, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) count: usize,
}

thread_local! {
    static WORKER: Cell<Worker> = const { Cell::new(Worker { index: 0, count: 1 }) };
}

impl Worker {
    /// The worker of this thread; the only one where none was announced.
    pub(crate) fn of_thread() -> Self {
        WORKER.get()
    }

    /// Announces the worker of this thread.
    pub(crate) fn begin(context: &WorkerContext) -> Result<(), String> {
        WORKER.set(Self { index: context.index, count: context.workers });
        Ok(())
    }
}
