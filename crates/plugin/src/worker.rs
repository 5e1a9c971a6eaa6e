//! What plugins do on each worker beside their hooks.

use super::background::Timer;
use super::panics;
use super::retained::Retained;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{AbortHandle, spawn_local};

/// A worker, as one plugin sees it from the worker's thread, which it cannot leave. Tasks share the thread with the
/// requests of the worker: one that computes for long, or blocks, holds them up.
#[derive(Clone)]
pub struct WorkerContext {
    /// The plugin's name.
    pub plugin: &'static str,
    /// The number of the worker: from 0 to one less than there are.
    pub index: usize,
    /// How many workers there are.
    pub workers: usize,
    /// State that outlives configurations, shared by all workers.
    pub retained: Arc<Retained>,
    thread: PhantomData<Rc<()>>,
}

impl WorkerContext {
    /// For the engine, or a test. Tasks and timers need a runtime that has tasks of its thread.
    pub fn new(plugin: &'static str, (index, workers): (usize, usize), retained: Arc<Retained>) -> Self {
        Self { plugin, index, workers, retained, thread: PhantomData }
    }

    /// Runs a task on the worker until it ends, or the process does.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.begin_task(task);
    }

    /// Does something once, after this time. What has begun is done to its end unless the timer is dropped.
    pub fn after(&self, delay: Duration, work: impl Future<Output = ()> + 'static) -> Timer {
        Timer::of(self.begin_task(async move {
            tokio::time::sleep(delay).await;
            work.await;
        }))
    }

    /// Does something again and again, each time so long after the time before ended, also if that panicked. The first
    /// time is at once.
    pub fn every<F>(&self, pause: Duration, mut work: impl FnMut() -> F + 'static) -> Timer
    where
        F: Future<Output = ()> + 'static,
    {
        let worker = self.clone();
        Timer::of(self.begin_task(async move {
            loop {
                worker.outlive(async { work().await }).await;
                tokio::time::sleep(pause).await;
            }
        }))
    }

    fn begin_task(&self, task: impl Future<Output = ()> + 'static) -> AbortHandle {
        let worker = self.clone();
        spawn_local(async move { worker.outlive(task).await }).abort_handle()
    }

    /// Waits for a task, and logs a panic, which ends it.
    async fn outlive(&self, task: impl Future<Output = ()>) {
        if let Err(message) = panics::catch(task).await {
            self.log_panic("a task", &message);
        }
    }

    /// Does something at once, and logs that it failed or panicked.
    pub(crate) fn attempt(&self, what: &str, work: impl FnOnce() -> Result<(), String>) {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(plugin = self.plugin, worker = self.index, "{what} failed: {error}");
            }
            Err(panic) => self.log_panic(what, panics::message(&*panic)),
        }
    }

    fn log_panic(&self, what: &str, message: &str) {
        tracing::error!(plugin = self.plugin, worker = self.index, "{what} panicked: {message}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tokio::runtime::LocalRuntime;

    fn worker() -> WorkerContext {
        WorkerContext::new("probe", (1, 2), Arc::default())
    }

    #[test]
    fn tasks_and_timers_run_on_the_worker_and_outlive_panics() {
        let count = Rc::new(Cell::new(0));
        let counted = count.clone();
        LocalRuntime::new().unwrap().block_on(async move {
            let worker = worker();
            worker.spawn(async { panic!("one task") });
            let (done, finished) = tokio::sync::oneshot::channel();
            let (times, mut done) = (counted.clone(), Some(done));
            let every = worker.every(Duration::from_millis(1), move || {
                times.set(times.get() + 1);
                let done = if times.get() == 3 { done.take() } else { None };
                async move { done.map_or_else(|| panic!("again"), |done| done.send(()).unwrap_or_default()) }
            });
            finished.await.unwrap();
            drop(every);
            drop(worker.after(Duration::ZERO, async { unreachable!("its timer was dropped") }));
            let (done, finished) = tokio::sync::oneshot::channel();
            let after = worker.after(Duration::ZERO, async move { done.send(()).unwrap_or_default() });
            finished.await.unwrap();
            drop(after);
        });
        assert_eq!(count.get(), 3);
    }

    #[test]
    fn what_fails_or_panics_at_once_is_outlived() {
        worker().attempt("init", || Err("no room".to_owned()));
        worker().attempt("init", || panic!("no message"));
    }
}
