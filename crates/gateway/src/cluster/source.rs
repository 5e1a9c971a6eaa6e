//! The configuration of a control plane, as its data planes get it.
use crate::registry::Registry;
use crate::store::Revision;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use weir_cluster::{Source, Version};
use weir_model::Change;

/// How often a store that cannot be read is tried again.
const STORE_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The committed entities of the registry.
pub(super) struct RegistrySource {
    registry: Arc<Registry>,
    /// The newest committed revision.
    newest: watch::Receiver<u64>,
}

impl RegistrySource {
    /// Begins to follow the commits.
    pub(super) fn new(registry: Arc<Registry>) -> RegistrySource {
        let mut commits = registry.commits();
        let (sender, newest) = watch::channel(commits.borrow_and_update().0);
        tokio::spawn(async move {
            while commits.changed().await.is_ok() {
                let revision = commits.borrow_and_update().0;
                // A commit is announced again when secrets have changed, which are not sent.
                sender.send_if_modified(|newest| std::mem::replace(newest, revision) != revision);
            }
        });
        RegistrySource { registry, newest }
    }
}

impl Source for RegistrySource {
    fn current(&self) -> Version {
        let entities = self.registry.entities();
        // The lock keeps both the same age.
        let (revision, document) = (self.registry.revision().0, entities.document());
        Version { revision, document: Arc::new(document) }
    }

    fn epoch(&self) -> u64 {
        self.registry.epoch()
    }

    fn caught_up(&self) -> Pin<Box<dyn Future<Output = u64> + Send + '_>> {
        Box::pin(async {
            loop {
                if let Some(Revision(revision)) = self.registry.catch_up().await {
                    return revision;
                }
                tokio::time::sleep(STORE_RETRY_INTERVAL).await;
            }
        })
    }

    fn changes_since(&self, revision: u64) -> Option<Vec<Change>> {
        self.registry.changes_since(Revision(revision))
    }

    fn watch(&self) -> watch::Receiver<u64> {
        self.newest.clone()
    }
}
