//! Delayed and periodic work.

use super::Background;
use crate::panics;
use std::future::Future;
use std::time::Duration;
use tokio::task::AbortHandle;

/// Delayed or periodic work. Dropping it stops the work.
#[must_use = "a timer that is dropped does nothing any more"]
pub struct Timer(Option<AbortHandle>);

impl Timer {
    pub(crate) fn of(task: AbortHandle) -> Self {
        Self(Some(task))
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

impl Background {
    /// Does something once, after this delay. Dropping the timer stops it, even if it has begun.
    pub fn after(&self, delay: Duration, work: impl Future<Output = ()> + Send + 'static) -> Timer {
        Timer(self.begin_task(async move {
            tokio::time::sleep(delay).await;
            work.await;
        }))
    }

    /// Does something repeatedly, at once and then with this pause after each time. A panic is logged, and ends that time
    /// alone.
    pub fn every<F>(&self, pause: Duration, mut work: impl FnMut() -> F + Send + 'static) -> Timer
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Timer(self.begin_task(async move {
            loop {
                if let Err(message) = panics::catch(async { work().await }).await {
                    tracing::error!("periodic work of a plugin panicked: {message}");
                }
                tokio::time::sleep(pause).await;
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const TIMEOUT: Duration = Duration::from_secs(20);

    #[test]
    fn work_is_done_later_or_again_until_its_timer_is_dropped() {
        let background = Background::default();
        let (done, seen) = mpsc::channel();
        let (again, once) = (done.clone(), done);
        let every = background.every(Duration::from_millis(1), move || {
            let again = again.clone();
            async move { again.send("again").unwrap_or_default() }
        });
        for _ in 0..3 {
            assert_eq!(seen.recv_timeout(TIMEOUT), Ok("again"));
        }
        drop(every);
        let after =
            background.after(Duration::from_millis(1), async move { once.send("once").unwrap_or_default() });
        let rest: Vec<_> = std::iter::from_fn(|| seen.recv_timeout(TIMEOUT).ok()).collect();
        assert_eq!(rest.last(), Some(&"once"), "and then no sender is left");
        drop(after);
    }

    #[test]
    fn work_goes_on_after_a_panic() {
        let background = Background::default();
        let (done, seen) = mpsc::channel();
        let mut times = 0;
        let every = background.every(Duration::from_millis(1), move || {
            times += 1;
            let (time, done) = (times, done.clone());
            assert_ne!(time, 1, "within the call");
            async move {
                assert_ne!(time, 2, "within the task");
                done.send(time).unwrap_or_default();
            }
        });
        assert_eq!(seen.recv_timeout(TIMEOUT), Ok(3));
        drop(every);
    }
}
