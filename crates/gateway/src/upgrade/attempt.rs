//! A new process that is to take over. Unless it has, all is undone, in whatever way the attempt ends.
use super::UpgradeError;
use std::io;
use std::process::Child;
use std::time::Duration;

/// The new process, and what there is to undo once it has ended.
pub(super) struct Attempt<U: FnMut()> {
    child: Child,
    undo: U,
    has_succeeded: bool,
}

impl<U: FnMut()> Attempt<U> {
    pub(super) fn new(child: Child, undo: U) -> Self {
        Self { child, undo, has_succeeded: false }
    }

    /// The number of the process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process has taken over.
    pub(super) fn succeed(&mut self) {
        self.has_succeeded = true;
    }

    /// What the end of the socket, or silence on it, means.
    pub(super) fn explain(&mut self, error: UpgradeError, timeout: Duration) -> UpgradeError {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, UnexpectedEof, WouldBlock};
        let UpgradeError::Channel(io) = error else { return error };
        match io.kind() {
            BrokenPipe | ConnectionReset | UnexpectedEof => {
                // It may have closed the socket alone. One that is about to end has its status already.
                let _ = self.child.kill();
                match self.child.wait() {
                    Ok(status) => UpgradeError::Ended(status.to_string()),
                    Err(error) => UpgradeError::System(error),
                }
            }
            WouldBlock | TimedOut => UpgradeError::Late(timeout),
            _ => UpgradeError::System(io),
        }
    }
}

impl<U: FnMut()> Drop for Attempt<U> {
    fn drop(&mut self) {
        if self.has_succeeded {
            return;
        }
        // It has ended already, or does not answer.
        let _ = self.child.kill();
        let _ = self.child.wait();
        (self.undo)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::Path;
    use std::process::Command;

    #[test]
    fn a_panic_ends_the_new_process_and_undoes_the_attempt() {
        let (mut undone, mut pid) = (0, 0);
        let panicking = AssertUnwindSafe(|| {
            let child = Command::new("sleep").arg("1000").spawn().unwrap();
            let attempt = Attempt::new(child, || undone += 1);
            pid = attempt.pid();
            panic!("as the test wants");
        });
        assert!(catch_unwind(panicking).is_err());
        assert_eq!(undone, 1);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
