//! Long work beside traffic: on a thread of its own, which yields to the workers.
use std::io;
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

/// The same of work that comes again and again while there is traffic.
pub(crate) async fn behind<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let last = || {
        step_back();
        work()
    };
    on_a_thread(name, last).await
}

async fn on_a_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, outcome) = oneshot::channel();
    thread::Builder::new().name(name.to_owned()).spawn(move || done.send(work()))?;
    outcome.await.map_err(|_| io::Error::other(format!("{name} ended early; this is a defect")))
}

/// Lets every other thread go first. A low priority alone is not enough: a thread that has begun a time slice is let
/// finish it, milliseconds in which a worker waits; one of the idle class gives way at once.
fn step_back() {
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    // Where it is refused, the work merely competes with traffic.
    let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle);
}
