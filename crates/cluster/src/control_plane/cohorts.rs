//! What data planes get by Weir's own protocol: kept once for all that get the same, and brought up to date with each commit.
use super::bounds;
use crate::Source;
use crate::sync::transfer::Transfer;
use crate::sync::{Cohort, Cohorts as All, Draft, Labels, Replacement, Selector, digests};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use weir_model::PluginSchema;

/// The configuration, as the data planes with each set of labels get it.
pub(super) struct Cohorts {
    source: Arc<dyn Source>,
    selector: Selector,
    all: Mutex<All>,
    /// Data planes that need the same transfer wait for the one that has it encoded.
    encoding: tokio::sync::Mutex<()>,
    /// The newest sequence.
    newest: watch::Sender<u64>,
    /// The names of the plugins that each set of labels leads to, as far as they were asked for.
    plugins: Mutex<BTreeMap<Labels, Arc<BTreeSet<String>>>>,
    /// How many data planes have the labels of a cohort.
    counts: Mutex<BTreeMap<Labels, usize>>,
}

/// A data plane with labels, until it is dropped.
pub(super) struct Counted<'c> {
    cohorts: &'c Cohorts,
    labels: Labels,
}

impl Cohorts {
    /// With what the source has now.
    pub(super) fn new(source: Arc<dyn Source>, plugins: Arc<[PluginSchema]>, selector: Selector) -> Cohorts {
        let version = source.current();
        let all = All::new(plugins, selector.clone(), source.epoch(), version.revision, version.document);
        Cohorts {
            source,
            selector,
            newest: watch::Sender::new(all.sequence()),
            all: Mutex::new(all),
            encoding: tokio::sync::Mutex::default(),
            plugins: Mutex::default(),
            counts: Mutex::default(),
        }
    }

    /// Follows the commits for as long as the process runs.
    pub(super) async fn follow(self: &Arc<Self>) {
        let mut revisions = self.source.watch();
        loop {
            let revision = *revisions.borrow_and_update();
            // A revision may go down, where a backup of the store was restored.
            if *self.newest.borrow() != revision {
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

    /// Returns once it has everything that was committed before the call, and the sequence of that.
    pub(super) async fn caught_up(&self) -> u64 {
        let revision = self.source.caught_up().await;
        // The sender is a field of this.
        let _ = self.newest.subscribe().wait_for(|newest| *newest >= revision).await;
        revision
    }

    pub(super) fn advance(&self, revision: u64) {
        let known = self.lock().sequence();
        // These may be newer than the revision, which is harmless: they come again.
        let changes = (known <= revision).then(|| self.source.changes_since(known)).flatten();
        let sequence = if let Some(changes) = changes {
            let digests = digests(&changes);
            self.lock().apply(revision, &changes, digests);
            revision
        } else {
            let version = self.source.current();
            let replacement = Replacement::new(version.document);
            // Freed without the lock.
            let _before = self.lock().replace(version.revision, replacement);
            version.revision
        };
        self.plugins.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.newest.send_replace(sequence);
    }

    /// Counts a data plane: as long as there is one with its labels, what they lead to is kept.
    pub(super) fn enter(&self, labels: &Labels) -> Counted<'_> {
        let labels = self.selector.relevant(&bounds::labels(labels.clone()));
        *self.counts().entry(labels.clone()).or_default() += 1;
        Counted { cohorts: self, labels }
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<Labels, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which labels select.
    pub(super) fn selector(&self) -> &Selector {
        &self.selector
    }

    /// The configuration. Hold the lock briefly, and never across an await.
    pub(super) fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies of each change.
    pub(super) fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }
}

impl Counted<'_> {
    /// The labels that select.
    pub(super) fn labels(&self) -> &Labels {
        &self.labels
    }

    /// The configuration of the data plane. Hold it briefly.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Cohort) -> T) -> T {
        work(self.cohorts.lock().of(&self.labels))
    }

    /// Encodes a transfer, once for all data planes that need it at the same time.
    pub(super) async fn encode(&self, draft: Draft) -> io::Result<Transfer> {
        let _turn = self.cohorts.encoding.lock().await;
        if let Some(transfer) = self.with(|cohort| cohort.encoded(&draft)) {
            return Ok(transfer);
        }
        let transfer = spawn_blocking(move || draft.encode()).await?;
        self.with(|cohort| cohort.keep(transfer.clone()));
        Ok(transfer)
    }

    /// The names of the plugins that the configuration uses.
    pub(super) fn plugins(&self) -> Arc<BTreeSet<String>> {
        let mut all = self.cohorts.lock();
        let mut plugins = self.cohorts.plugins.lock().unwrap_or_else(PoisonError::into_inner);
        let configured = || {
            let document = all.of(&self.labels).document();
            Arc::new(document.plugins.iter().map(|plugin| plugin.name.clone()).collect())
        };
        plugins.entry(self.labels.clone()).or_insert_with(configured).clone()
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut counts = self.cohorts.counts();
        let left = counts.get(&self.labels).map_or(0, |count| count - 1);
        if left > 0 {
            counts.insert(self.labels.clone(), left);
            return;
        }
        counts.remove(&self.labels);
        let is_kept = |labels: &Labels| labels.is_empty() || counts.contains_key(labels);
        self.cohorts.lock().retain(is_kept);
        let mut plugins = self.cohorts.plugins.lock().unwrap_or_else(PoisonError::into_inner);
        plugins.retain(|labels, _| is_kept(labels));
    }
}
