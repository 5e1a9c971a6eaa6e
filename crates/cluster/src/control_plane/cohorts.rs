//! What data planes get by Weir's own protocol: kept once, and brought up to date with each commit.
use crate::Source;
use crate::sync::identity::Identity;
use crate::sync::transfer::Transfer;
use crate::sync::{Cohort, Draft, Replacement, digests};
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use weir_model::PluginSchema;

/// The configuration that all data planes get.
pub(super) struct Cohorts {
    source: Arc<dyn Source>,
    all: Mutex<Cohort>,
    /// Data planes that need the same transfer wait for the one that has it encoded.
    encoding: tokio::sync::Mutex<()>,
    newest: watch::Sender<Identity>,
    /// The names of the plugins that it configures.
    plugins: Mutex<Arc<BTreeSet<String>>>,
}

impl Cohorts {
    /// With what the source has now. The history is a new one, because nothing is known of earlier ones.
    pub(super) fn new(source: Arc<dyn Source>, plugins: Arc<[PluginSchema]>) -> Cohorts {
        let version = source.current();
        let cohort = Cohort::new(plugins, fastrand::u64(..), version.revision, version.document);
        let newest = watch::Sender::new(cohort.identity());
        let plugins = Mutex::new(configured_plugins(&cohort));
        Cohorts { source, all: Mutex::new(cohort), encoding: Default::default(), newest, plugins }
    }

    /// Follows the commits for as long as the process runs.
    pub(super) async fn follow(self: &Arc<Self>) {
        let mut revisions = self.source.watch();
        loop {
            let revision = *revisions.borrow_and_update();
            if self.newest.borrow().sequence < revision {
                let cohorts = self.clone();
                // Not here, because it takes long where there are many entities, and connections go on meanwhile.
                if let Err(error) = spawn_blocking(move || cohorts.advance(revision)).await {
                    tracing::error!(%error, "a change was not prepared for data planes; this is a defect");
                }
            }
            if revisions.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    fn advance(&self, revision: u64) {
        let known = self.cohort().identity().sequence;
        // These may be newer than the revision, which is harmless: they come again.
        let changes = (known <= revision).then(|| self.source.changes_since(known)).flatten();
        if let Some(changes) = changes {
            let digests = digests(&changes);
            self.cohort().apply(revision, &changes, digests);
        } else {
            let version = self.source.current();
            let replacement = Replacement::new(version.document);
            // Freed without the lock.
            let _before = self.cohort().replace(version.revision, replacement);
        }
        let cohort = self.cohort();
        *self.plugins.lock().unwrap_or_else(PoisonError::into_inner) = configured_plugins(&cohort);
        self.newest.send_replace(cohort.identity());
    }

    /// Encodes a transfer, once for all data planes that need it at the same time.
    pub(super) async fn encode(&self, draft: Draft) -> io::Result<Transfer> {
        let _turn = self.encoding.lock().await;
        if let Some(transfer) = self.cohort().encoded(&draft) {
            return Ok(transfer);
        }
        let transfer = spawn_blocking(move || draft.encode()).await?;
        self.cohort().keep(transfer.clone());
        Ok(transfer)
    }

    /// The names of the plugins that the configuration uses.
    pub(super) fn plugins(&self) -> Arc<BTreeSet<String>> {
        self.plugins.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The configuration. Hold the lock briefly, and never across an await.
    pub(super) fn cohort(&self) -> MutexGuard<'_, Cohort> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies of each change.
    pub(super) fn newest(&self) -> watch::Receiver<Identity> {
        self.newest.subscribe()
    }
}

fn configured_plugins(cohort: &Cohort) -> Arc<BTreeSet<String>> {
    Arc::new(cohort.document().plugins.iter().map(|plugin| plugin.name.clone()).collect())
}
