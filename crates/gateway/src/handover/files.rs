//! When a process may use the files and connections that only one process of a node may use at a time.
use tokio::runtime::Handle;
use tokio::sync::watch;

/// How far a process has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// The process that this one replaces still uses them.
    NotYet,
    Owned,
    /// They are left to the process that replaces this one.
    Left,
}

/// Opened once the files are this process's own.
#[derive(Debug)]
pub(crate) struct FilesGate(watch::Sender<Stage>);

impl FilesGate {
    /// For a process that replaces another, or for one that does not.
    pub(crate) fn new(replaces: bool) -> FilesGate {
        FilesGate(watch::Sender::new(if replaces { Stage::NotYet } else { Stage::Owned }))
    }

    /// The files are this process's own from now on.
    pub(crate) fn open(&self) {
        self.reach(Stage::Owned);
    }

    /// They are the other process's from now on.
    pub(crate) fn leave(&self) {
        self.reach(Stage::Left);
    }

    fn reach(&self, stage: Stage) {
        self.0.send_if_modified(|at| std::mem::replace(at, stage.max(*at)) < stage);
    }

    /// Waits until they are this process's own.
    pub(crate) async fn opened(&self) {
        // The sender is a field of this.
        let _ = self.0.subscribe().wait_for(|at| *at >= Stage::Owned).await;
    }

    /// The same on a thread without a runtime.
    pub(crate) fn wait(&self, runtime: &Handle) {
        if *self.0.borrow() < Stage::Owned {
            runtime.block_on(self.opened());
        }
    }

    /// Waits until they are left to another process.
    pub(crate) async fn left(&self) {
        let _ = self.0.subscribe().wait_for(|at| *at >= Stage::Left).await;
    }
}
