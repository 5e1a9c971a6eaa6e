//! What one process of a node leaves to the next one: sockets, state, files.
use super::{Cluster, Control};
use crate::handover::{FilesGate, Handovers};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::timeout;
use weir_model::Document;
use weir_proxy::listen::SocketTable;
use weir_proxy::{CompileError, Proxy};

/// How long a request to the Admin API waits at most for what the other process has committed.
const MAX_KEEP_UP: Duration = Duration::from_secs(2);

/// The other processes of the node, within an upgrade.
#[derive(Debug)]
pub(super) struct OtherProcesses {
    /// Whether one that this process has replaced may still commit to the store.
    follows: AtomicBool,
    next: Mutex<NextProcess>,
}

/// How far the process is that is to replace this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextProcess {
    None,
    /// It reads the configuration, and changes nothing.
    Starts,
    Writes,
}

impl OtherProcesses {
    /// Those of a process that replaces another, or of one that does not.
    pub(super) fn new(replaces: bool) -> OtherProcesses {
        OtherProcesses { follows: AtomicBool::new(replaces), next: Mutex::new(NextProcess::None) }
    }

    fn next(&self) -> MutexGuard<'_, NextProcess> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether any of them may change the configuration.
    fn may_write(&self) -> bool {
        self.follows.load(Ordering::Acquire) || *self.next() == NextProcess::Writes
    }
}

impl Control {
    /// The data plane.
    pub(crate) fn proxy(&self) -> &Proxy {
        &self.plane.proxy
    }

    /// Everything that is listened on.
    pub(crate) fn sockets(&self) -> &SocketTable {
        &self.sockets
    }

    /// When the files of the node are this process's own.
    pub(crate) fn files(&self) -> &Arc<FilesGate> {
        &self.files
    }

    /// The state that the next process takes over.
    pub(crate) fn export_state(&self) -> io::Result<File> {
        Handovers::new(self.source.definitions).export(&self.plane.compiler.retained)
    }

    /// Takes over the state of the process that this one replaces.
    pub(crate) fn import_state(&self, state: File) {
        let taken = Handovers::new(self.source.definitions).import(&self.plane.compiler.retained, state);
        if let Err(error) = taken {
            tracing::warn!(%error, "some limits, cached responses and metrics of the old process are lost");
        }
    }

    /// Lets the next process use the store of the configuration at the same time, or no longer.
    pub(crate) fn share_store(&self, is_shared: bool) {
        let mut next = self.others.next();
        *next = if is_shared { NextProcess::Starts } else { NextProcess::None };
        self.registry.share_store(is_shared);
    }

    /// The next process may change the configuration from now on.
    pub(crate) fn expect_changes(&self) {
        *self.others.next() = NextProcess::Writes;
    }

    /// The store is the next process's, whose lock keeps other nodes out, however long this one drains.
    pub(crate) fn leave_store(&self) {
        self.registry.leave_store();
    }

    /// Serves a configuration that was posted to `/config`.
    pub(crate) async fn declare_posted(
        &self,
        document: Document,
        hash: String,
        text: &str,
    ) -> Result<(), Vec<CompileError>> {
        self.registry.declare(document, hash).await?;
        *self.posted.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.into());
        Ok(())
    }

    /// What was posted to `/config`, if that is what is served.
    pub(crate) fn posted(&self) -> Option<Arc<str>> {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether another process is about to take over, or has.
    pub(crate) fn is_succeeded(&self) -> bool {
        *self.others.next() != NextProcess::None
    }

    /// Ends the use of the store by the processes that this one has replaced; false if one still uses it. While the next process
    /// starts, the store stays shared.
    pub(crate) fn take_store(&self) -> bool {
        let next = self.others.next();
        *next != NextProcess::None || self.registry.share_store(false)
    }

    /// Takes over what the processes before this one have committed. For a thread without a runtime.
    pub(crate) fn catch_up(&self) {
        if self.registry.is_stored() {
            self.plane.runtime.block_on(self.registry.catch_up());
        }
    }

    /// The processes before this one commit nothing more.
    pub(crate) fn end_following(&self) {
        self.others.follows.store(false, Ordering::Release);
    }

    /// Takes over what the other processes of the node have committed before the call, while there are any. So a client reads what
    /// was acknowledged, whichever of them answers.
    pub(crate) async fn keep_up(&self) {
        if self.registry.is_stored() && self.others.may_write() {
            // While the store does not answer, what is known is.
            let _ = timeout(MAX_KEEP_UP, self.registry.catch_up()).await;
        }
    }

    /// Ends what only one process of a node can do.
    pub(crate) fn leave_files(&self) {
        self.files.leave();
        // A control plane collects what its data planes hand in for as long as they are connected.
        if let (Some(analytics), Cluster::Alone | Cluster::DataPlane(_)) = (&self.analytics, &self.cluster) {
            analytics.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_that_may_write_are_kept_up_with() {
        let others = OtherProcesses::new(false);
        assert!(!others.may_write());
        for (next, may_write) in
            [(NextProcess::Starts, false), (NextProcess::Writes, true), (NextProcess::None, false)]
        {
            *others.next() = next;
            assert_eq!(others.may_write(), may_write, "{next:?}");
        }
        assert!(OtherProcesses::new(true).may_write());
    }
}
