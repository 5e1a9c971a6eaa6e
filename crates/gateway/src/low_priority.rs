//! Long work beside traffic: on a thread of its own, which yields to the workers.
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};
use tokio::sync::oneshot;

/// Does the work, and returns what it yields; an error where there can be no thread, or the work panicked.
pub(crate) async fn aside<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    // Of no more than the thread; where it is refused, the work merely competes with traffic.
    let nicely = || {
        let _ = rustix::process::nice(19);
        work()
    };
    on_a_thread(name, nicely).await
}

async fn on_a_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, outcome) = oneshot::channel();
    thread::Builder::new().name(name.to_owned()).spawn(move || done.send(work()))?;
    outcome.await.map_err(|_| io::Error::other(format!("{name} ended early; this is a defect")))
}

/// A thread behind all others, for work that comes again and again while there is traffic. One for all of it: a thread is
/// of its creator's class until it has changed that itself, and would keep a worker waiting meanwhile.
pub(crate) struct Background(mpsc::Sender<Work>);

type Work = Box<dyn FnOnce() + Send>;

impl Background {
    /// Starts the thread, which ends with this.
    pub(crate) fn start(name: &str) -> io::Result<Background> {
        let (sender, queue) = mpsc::channel::<Work>();
        let work = move || {
            step_back();
            for work in queue {
                // A thread that has slept is owed a turn, even of this class, and would take it while a worker waits.
                thread::yield_now();
                // Whoever waits for the outcome learns of it.
                let _ = catch_unwind(AssertUnwindSafe(work));
            }
        };
        thread::Builder::new().name(name.to_owned()).spawn(work)?;
        Ok(Background(sender))
    }

    /// Does the work there, and returns what it yields; an error where it panicked.
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

/// Lets every other thread go first. A low priority alone is not enough: a thread that has begun a time slice is let
/// finish it, milliseconds in which a worker waits; one of the idle class gives way at once.
fn step_back() {
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    // Where it is refused, the work merely competes with traffic.
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
    }
}
