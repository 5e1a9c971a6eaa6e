//! The counts of one store as this node knows them, and the queues towards it.
//!
//! Requests never talk to a store. They count in memory and mark the entry as changed, or they queue a query and wait
//! for the reply. Tasks on the plugins' thread send both, in batches.

use super::breaker::Breaker;
use super::counter::{Limit, Usage};
use super::driver;
use super::entry::Entry;
use super::store::{CounterStore, Unavailable};
use crate::shared::counters::Table;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use weir_plugin::Background;

/// How many queries may be queued. With more, requests go on with what this node knows.
pub(super) const QUEUE: usize = 16 * 1024;
/// How many changed entries may be queued. Others are reported when they change again.
const MAX_CHANGES: usize = 256 * 1024;

/// A request's query.
pub(super) struct Query {
    pub(super) entry: Arc<Entry>,
    pub(super) limits: Arc<[Limit]>,
    pub(super) slides: bool,
    /// Whether to take one, or only to read the counts.
    pub(super) takes: bool,
    /// In milliseconds since 1970.
    pub(super) now: u64,
    pub(super) answer: oneshot::Sender<Usage>,
}

/// The counters of one store. The tasks end when it is dropped.
pub(crate) struct SharedCounters {
    pub(super) table: Table<Entry>,
    shared: Arc<Shared>,
    queries: OnceLock<mpsc::Sender<Query>>,
}

/// What the tasks share with requests.
pub(super) struct Shared {
    pub(super) breaker: Arc<Breaker>,
    /// How long counts are collected before they are reported to the store.
    pub(super) interval: Duration,
    pub(super) background: Arc<Background>,
    changed: Mutex<Changes>,
    /// Held during a report, so that a query never overtakes counts that it depends on.
    pub(super) reporting: tokio::sync::Mutex<()>,
}

/// An entry that has changed, and whether its windows slide.
pub(super) type Changed = (Arc<Entry>, bool);

/// The changes to report to the store.
#[derive(Default)]
struct Changes {
    entries: Vec<Changed>,
    /// Whether the node waits for the report before it exits.
    awaited: bool,
}

impl Shared {
    fn changed(&self) -> MutexGuard<'_, Changes> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mark(&self, entry: &Arc<Entry>, slides: bool) {
        let mut changes = self.changed();
        if changes.entries.len() >= MAX_CHANGES {
            return entry.changed.store(false, Relaxed);
        }
        changes.entries.push((entry.clone(), slides));
        if changes.entries.len() == 1 {
            self.breaker.wake.notify_one();
            if self.breaker.answers() && !std::mem::replace(&mut changes.awaited, true) {
                self.background.begin();
            }
        }
    }

    /// Whether there are changes to report, or a report is in progress.
    pub(super) fn has_changes(&self) -> bool {
        !self.changed().entries.is_empty() || self.reporting.try_lock().is_err()
    }

    /// Takes the changes to report now.
    pub(super) fn take_changes(&self) -> Vec<Changed> {
        std::mem::take(&mut self.changed().entries)
    }

    /// The changes that were taken are reported, except for these, which the node does not wait for.
    pub(super) fn reported_except(&self, unreported: impl Iterator<Item = Changed>) {
        let mut changes = self.changed();
        let was_empty = changes.entries.is_empty();
        for (entry, slides) in unreported {
            let has_room = changes.entries.len() < MAX_CHANGES;
            entry.changed.store(has_room, Relaxed);
            if has_room {
                changes.entries.push((entry, slides));
            }
        }
        let is_done = was_empty || !self.breaker.answers();
        if is_done && std::mem::replace(&mut changes.awaited, false) {
            self.background.end();
        }
    }
}

impl SharedCounters {
    /// For a store that gets the counts after each interval. No task runs before the first request.
    pub(super) fn new(store: Arc<dyn CounterStore>, interval: Duration, background: Arc<Background>) -> Self {
        let shared = Shared {
            breaker: Arc::new(Breaker::new(store)),
            interval,
            background,
            changed: Mutex::default(),
            reporting: tokio::sync::Mutex::default(),
        };
        Self { table: Table::default(), shared: Arc::new(shared), queries: OnceLock::new() }
    }

    /// Queues a query, unless the store is known not to answer.
    pub(super) fn query(
        &self,
        query: impl FnOnce(oneshot::Sender<Usage>) -> Query,
    ) -> Result<oneshot::Receiver<Usage>, Unavailable> {
        let queries = self.started();
        if !self.shared.breaker.answers() {
            return Err(self.shared.breaker.refusal());
        }
        let (sender, receiver) = oneshot::channel();
        let sent = queries.try_send(query(sender));
        sent.map_err(|_| Unavailable("too many requests wait".to_owned()))?;
        Ok(receiver)
    }

    /// Marks an entry as changed.
    pub(super) fn mark(&self, entry: &Arc<Entry>, slides: bool) {
        if entry.changed.load(Relaxed) || entry.changed.swap(true, Relaxed) {
            return;
        }
        self.started();
        self.shared.mark(entry, slides);
    }

    fn started(&self) -> &mpsc::Sender<Query> {
        self.queries.get_or_init(|| {
            let (sender, queries) = mpsc::channel(QUEUE);
            self.shared.background.spawn(driver::answer(self.shared.clone(), queries));
            self.shared.background.spawn(driver::report(self.shared.clone()));
            sender
        })
    }
}

impl Drop for SharedCounters {
    fn drop(&mut self) {
        self.shared.breaker.close();
    }
}
