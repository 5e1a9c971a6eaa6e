//! Threads that have a runtime of their own.
use rustix::io::Errno;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};

/// The threads of a runtime for work that blocks.
const BLOCKING_THREAD: &str = "weir-blocking";

/// How many of these a runtime has at most. They stay, so that there are no more than are of use to work that waits for a disk
/// or a name server, some of which may hang.
const MAX_BLOCKING_THREADS: usize = 64;

/// Makes a runtime for one thread that serves until the process ends. It has a thread for work that blocks from the beginning, and
/// keeps those that it starts later: if the system starts no more, such work waits for them. Without any, tokio panics, also
/// where it looks up a name.
pub fn runtime(builder: &mut Builder) -> io::Result<Runtime> {
    let builder = builder.enable_all().thread_name(BLOCKING_THREAD);
    let runtime =
        builder.max_blocking_threads(MAX_BLOCKING_THREADS).thread_keep_alive(Duration::MAX).build()?;
    // Says why the system starts no thread, as tokio would in a panic.
    thread::Builder::new().name(BLOCKING_THREAD.to_owned()).spawn(|| ())?;
    // That thread may have been the last one.
    let start = AssertUnwindSafe(|| drop(runtime.spawn_blocking(|| ())));
    catch_unwind(start).map_err(|_| Errno::AGAIN)?;
    Ok(runtime)
}

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
    fn work_that_blocks_has_threads_of_its_own() {
        let runtime = runtime(&mut Builder::new_current_thread()).unwrap();
        let name = runtime.block_on(runtime.spawn_blocking(|| thread::current().name().map(str::to_owned)));
        assert_eq!(name.unwrap().as_deref(), Some(BLOCKING_THREAD));
    }

    #[test]
    fn what_keeps_a_runtime_from_being_made_is_returned() {
        let failed = spawn_with_runtime("weir-test", || Err(io::ErrorKind::WouldBlock.into()), drop);
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
