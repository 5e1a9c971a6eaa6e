//! The counts of one store as this node knows them, and who asks it.
//!
//! Requests never speak to a store. They count in memory and leave word of that, or they leave a question and wait for
//! the answer. Tasks on the plugins' thread carry both, many at a time.

use super::super::counters::Table;
use super::breaker::Breaker;
use super::counter::{Limit, Usage};
use super::driver;
use super::entry::Entry;
use super::store::{CounterStore, Unavailable};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use weir_plugin::Background;

/// So many questions may wait to be carried; with more, requests go on by what is known.
pub(super) const QUEUE: usize = 16 * 1024;
/// Of so many entries there may be news; those that are more are told of when they change again.
const MOST_NEWS: usize = 256 * 1024;

/// A request's question.
pub(super) struct Ask {
    pub(super) entry: Arc<Entry>,
    pub(super) limits: Arc<[Limit]>,
    pub(super) slides: bool,
    /// Whether one is to be taken, or only the counts are asked for.
    pub(super) takes: bool,
    /// In milliseconds since 1970.
    pub(super) now: u64,
    pub(super) answer: oneshot::Sender<Usage>,
}

/// What requests need of a store. The tasks end when it is dropped.
pub(crate) struct Ledger {
    pub(super) table: Table<Entry>,
    shared: Arc<Shared>,
    asks: OnceLock<mpsc::Sender<Ask>>,
}

/// What the tasks share with requests.
pub(super) struct Shared {
    pub(super) breaker: Arc<Breaker>,
    /// How long counts are gathered before the store is told.
    pub(super) interval: Duration,
    pub(super) background: Arc<Background>,
    changed: Mutex<News>,
    /// Held while the store is told, so that a question never overtakes counts that it depends on.
    pub(super) telling: tokio::sync::Mutex<()>,
}

/// An entry that has changed, and whether its windows slide.
pub(super) type Changed = (Arc<Entry>, bool);

/// What the store is to be told of.
#[derive(Default)]
struct News {
    entries: Vec<Changed>,
    /// Whether the node is to wait for that before it ends.
    awaited: bool,
}

impl Shared {
    fn changed(&self) -> MutexGuard<'_, News> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mark(&self, entry: &Arc<Entry>, slides: bool) {
        let mut news = self.changed();
        if news.entries.len() >= MOST_NEWS {
            return entry.changed.store(false, Relaxed);
        }
        news.entries.push((entry.clone(), slides));
        if news.entries.len() == 1 {
            self.breaker.news.notify_one();
            if self.breaker.answers() && !std::mem::replace(&mut news.awaited, true) {
                self.background.begin();
            }
        }
    }

    /// Whether the store has yet to be told of something, or is being told.
    pub(super) fn has_news(&self) -> bool {
        !self.changed().entries.is_empty() || self.telling.try_lock().is_err()
    }

    /// What is to be told now.
    pub(super) fn take_news(&self) -> Vec<Changed> {
        std::mem::take(&mut self.changed().entries)
    }

    /// What was taken is told, but for these, for which nobody is to wait.
    pub(super) fn told_but(&self, untold: impl Iterator<Item = Changed>) {
        let mut news = self.changed();
        let was_empty = news.entries.is_empty();
        for (entry, slides) in untold {
            let has_room = news.entries.len() < MOST_NEWS;
            entry.changed.store(has_room, Relaxed);
            if has_room {
                news.entries.push((entry, slides));
            }
        }
        let is_done = was_empty || !self.breaker.answers();
        if is_done && std::mem::replace(&mut news.awaited, false) {
            self.background.end();
        }
    }
}

impl Ledger {
    /// Of a store that is told after each interval of what was counted. Nothing runs until a request comes.
    pub(super) fn new(store: Arc<dyn CounterStore>, interval: Duration, background: Arc<Background>) -> Self {
        let shared = Shared {
            breaker: Arc::new(Breaker::new(store)),
            interval,
            background,
            changed: Mutex::default(),
            telling: tokio::sync::Mutex::default(),
        };
        Self { table: Table::default(), shared: Arc::new(shared), asks: OnceLock::new() }
    }

    /// Leaves a question, unless the store does not answer anyway.
    pub(super) fn ask(
        &self,
        ask: impl FnOnce(oneshot::Sender<Usage>) -> Ask,
    ) -> Result<oneshot::Receiver<Usage>, Unavailable> {
        let asks = self.started();
        if !self.shared.breaker.answers() {
            return Err(self.shared.breaker.refusal());
        }
        let (sender, receiver) = oneshot::channel();
        let sent = asks.try_send(ask(sender));
        sent.map_err(|_| Unavailable("too many requests wait".to_owned()))?;
        Ok(receiver)
    }

    /// Leaves word that the counts of an entry have changed.
    pub(super) fn mark(&self, entry: &Arc<Entry>, slides: bool) {
        if entry.changed.load(Relaxed) || entry.changed.swap(true, Relaxed) {
            return;
        }
        self.started();
        self.shared.mark(entry, slides);
    }

    fn started(&self) -> &mpsc::Sender<Ask> {
        self.asks.get_or_init(|| {
            let (sender, asks) = mpsc::channel(QUEUE);
            self.shared.background.spawn(driver::answer(self.shared.clone(), asks));
            self.shared.background.spawn(driver::tell(self.shared.clone()));
            sender
        })
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.shared.breaker.close();
    }
}
