//! Long work on threads of its own, most of it at a low priority, so that it yields to the workers.
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};
use tokio::sync::oneshot;

/// Runs the work on a new thread of low priority, and returns its result; an error if there is no thread, or the work
/// panicked.
pub(crate) async fn spawn_low_priority<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    // Applies to this thread alone. If it fails, the work merely competes with traffic.
    let nicely = || {
        let _ = rustix::process::nice(19);
        work()
    };
    on_a_thread(name, nicely).await
}

/// Runs the work on a new thread, and returns its result; an error if there is no thread, or the work panicked.
pub(crate) async fn on_a_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, outcome) = oneshot::channel();
    thread::Builder::new().name(name.to_owned()).spawn(move || done.send(work()))?;
    outcome.await.map_err(|_| io::Error::other(format!("{name} ended early; this is a defect")))
}

/// A thread for recurring work, of the idle class unless said otherwise. It is one thread for all of it, because a new thread
/// runs in the class of its creator until it has changed that itself, and a worker would wait meanwhile.
pub(crate) struct Background(mpsc::Sender<Work>);

type Work = Box<dyn FnOnce() + Send>;

impl Background {
    /// Starts the thread, which ends when this is dropped.
    pub(crate) fn start(name: &str) -> io::Result<Background> {
        Background::start_after(name, set_idle_priority)
    }

    /// The same, but the thread competes with others, for work that clients wait for.
    pub(crate) fn start_at_normal_priority(name: &str) -> io::Result<Background> {
        Background::start_after(name, || ())
    }

    fn start_after(name: &str, prepare: fn()) -> io::Result<Background> {
        let (sender, queue) = mpsc::channel::<Work>();
        let work = move || {
            prepare();
            for work in queue {
                // The scheduler favours a thread that has slept, even one of this class, so let workers run first.
                thread::yield_now();
                // The caller gets an error, because its channel closes.
                let _ = catch_unwind(AssertUnwindSafe(work));
            }
        };
        thread::Builder::new().name(name.to_owned()).spawn(work)?;
        Ok(Background(sender))
    }

    /// Runs the work on the thread, and returns its result; an error if it panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (done, outcome) = oneshot::channel();
        let ended = |_| io::Error::other("it ended early; this is a defect");
        self.0.send(Box::new(move || drop(done.send(work())))).map_err(|_| ended(()))?;
        outcome.await.map_err(|_| ended(()))
    }
}

/// Moves this thread to the idle class. A low priority alone is not enough, because a thread finishes a time slice that
/// it has begun, and a worker waits for milliseconds; a thread of the idle class is preempted at once.
pub(crate) fn set_idle_priority() {
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    // If it fails, the work merely competes with traffic.
    let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The scheduling class of the calling thread: 0 is that of workers, 5 is idle.
    fn class() -> String {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let after_name = stat.rsplit_once(')').unwrap().1;
        after_name.split_whitespace().nth(38).unwrap().to_owned()
    }

    #[tokio::test]
    async fn background_work_is_of_the_idle_class_and_survives_a_panic() {
        let background = Background::start("weir-test").unwrap();
        assert_eq!(class(), "0");
        assert_eq!(background.run(class).await.unwrap(), "5");
        assert!(background.run(|| panic!("as the test wants")).await.is_err());
        assert_eq!(background.run(|| 7).await.unwrap(), 7);
        let competing = Background::start_at_normal_priority("weir-test").unwrap();
        assert_eq!(competing.run(class).await.unwrap(), "0");
    }
}
