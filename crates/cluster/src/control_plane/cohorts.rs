//! What data planes get by Weir's own protocol: kept once, and brought up to date with each commit.
use crate::Source;
use crate::sync::Cohort;
use crate::sync::identity::Identity;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use weir_model::PluginSchema;

/// The configuration that all data planes get.
pub(super) struct Cohorts {
    source: Arc<dyn Source>,
    all: Mutex<Cohort>,
    newest: watch::Sender<Identity>,
    /// The names of the plugins that it configures.
    plugins: Mutex<Arc<BTreeSet<String>>>,
}

impl Cohorts {
    /// With what the source has now.
    pub(super) fn new(source: Arc<dyn Source>, plugins: Arc<[PluginSchema]>) -> Cohorts {
        let version = source.current();
        let cohort = Cohort::new(plugins, source.epoch(), version.revision, version.document);
        let newest = watch::Sender::new(cohort.identity());
        let plugins = Mutex::new(configured_plugins(&cohort));
        Cohorts { source, all: Mutex::new(cohort), newest, plugins }
    }

    /// Follows the commits for as long as the process runs.
    pub(super) async fn follow(&self) {
        let mut revisions = self.source.watch();
        loop {
            let revision = *revisions.borrow_and_update();
            if self.newest.borrow().sequence != revision {
                self.advance();
            }
            if revisions.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Returns once it has everything that was committed before the call, and the sequence of that.
    pub(super) async fn caught_up(&self) -> u64 {
        let revision = self.source.caught_up().await;
        // The sender is a field of this.
        let _ = self.newest.subscribe().wait_for(|newest| newest.sequence >= revision).await;
        revision
    }

    fn advance(&self) {
        // Changes may be newer than the version, which is harmless: they are looked up in it, and come again.
        let version = self.source.current();
        let mut cohort = self.cohort();
        match self.source.changes_since(cohort.identity().sequence) {
            Some(changes) => cohort.advance(version.revision, version.document, &changes),
            None => cohort.replace(version.revision, version.document),
        }
        *self.plugins.lock().unwrap_or_else(PoisonError::into_inner) = configured_plugins(&cohort);
        self.newest.send_replace(cohort.identity());
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
