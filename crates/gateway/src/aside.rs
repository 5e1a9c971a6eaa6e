//! Long work beside traffic: on a thread of its own, which yields to the workers.
use std::io;
use std::thread;
use tokio::sync::oneshot;

/// Does the work, and returns what it yields; an error where there can be no thread, or the work panicked.
pub(crate) async fn aside<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, outcome) = oneshot::channel();
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        // Of no more than this thread; where it is refused, the work merely competes with traffic.
        let _ = rustix::process::nice(19);
        let _ = done.send(work());
    })?;
    outcome.await.map_err(|_| io::Error::other(format!("{name} ended early; this is a defect")))
}
