//! What one process of a node leaves to the next one: sockets, state, files.
use super::{Cluster, Control};
use crate::handover::{FilesGate, Handovers};
use std::fs::File;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::time::timeout;
use weir_model::Document;
use weir_proxy::listen::SocketTable;
use weir_proxy::{CompileError, Proxy};

/// How long a request to the Admin API waits at most for what the other process has committed.
const MAX_KEEP_UP: Duration = Duration::from_secs(2);

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
        let mut shares = self.shares_store.lock().unwrap_or_else(PoisonError::into_inner);
        *shares = is_shared;
        self.registry.share_store(is_shared);
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
        *self.shares_store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the use of the store by the process that this one has replaced; false if it still uses it. While the next process
    /// starts, the store stays shared.
    pub(crate) fn take_store(&self) -> bool {
        let shares = self.shares_store.lock().unwrap_or_else(PoisonError::into_inner);
        *shares || self.registry.share_store(false)
    }

    /// Takes over what the process that this one replaces has committed. For a thread without a runtime.
    pub(crate) fn catch_up(&self) {
        if self.registry.is_stored() {
            self.plane.runtime.block_on(self.registry.catch_up());
        }
    }

    /// The process that this one replaces commits nothing more.
    pub(crate) fn end_following(&self) {
        self.follows.store(false, Ordering::Release);
    }

    /// Takes over what the other process of the node has committed before the call, while there is one. So a client reads what
    /// was acknowledged, whichever of them answers.
    pub(crate) async fn keep_up(&self) {
        if self.registry.is_stored() && (self.follows.load(Ordering::Acquire) || self.is_succeeded()) {
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
