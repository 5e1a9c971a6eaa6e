//! Threads that have a runtime of their own.
use std::io;
use std::sync::mpsc;
use std::thread;
use tokio::runtime::{Handle, Runtime};

/// Starts a thread that makes a runtime and runs work on it; returns once it has. The runtime is not made here, because it
/// would also be dropped here if the thread did not start, which panics where there are tasks.
pub fn spawn_with_runtime(
    name: &str,
    build: impl FnOnce() -> io::Result<Runtime> + Send + 'static,
    work: impl FnOnce(Runtime) + Send + 'static,
) -> io::Result<Handle> {
    let (ready, is_ready) = mpsc::channel();
    let run = move || match build() {
        Ok(runtime) => {
            // The thread that waits for it is there until it has got it.
            let _ = ready.send(Ok(runtime.handle().clone()));
            work(runtime);
        }
        Err(error) => drop(ready.send(Err(error))),
    };
    thread::Builder::new().name(name.to_owned()).spawn(run)?;
    is_ready.recv().map_err(|_| io::Error::other(format!("{name} ended early; this is a defect")))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::Builder;

    #[test]
    fn work_runs_on_the_runtime_that_is_returned() {
        let (sender, receiver) = mpsc::channel();
        let build = || Builder::new_current_thread().enable_all().build();
        let handle = spawn_with_runtime("weir-test", build, |runtime| {
            runtime.block_on(std::future::pending::<()>());
        });
        handle.unwrap().spawn(async move {
            let name = thread::current().name().map(str::to_owned);
            sender.send(name).unwrap();
        });
        assert_eq!(receiver.recv().unwrap().as_deref(), Some("weir-test"));
    }

    #[test]
    fn what_keeps_a_runtime_from_being_made_is_returned() {
        let failed = spawn_with_runtime("weir-test", || Err(io::ErrorKind::WouldBlock.into()), drop);
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
