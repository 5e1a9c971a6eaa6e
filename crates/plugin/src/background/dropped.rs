//! Counts entries that could not be delivered, per plugin entity.

use crate::background::Background;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use weir_model::Uuid;

/// The counters of entries that were dropped, by plugin. They are kept as long as their plugins.
#[derive(Default)]
pub struct Dropped(Mutex<BTreeMap<(String, Uuid), Weak<AtomicU64>>>);

impl Dropped {
    /// The counter of a plugin's entity.
    pub fn of(&self, plugin: &str, id: Uuid) -> Arc<AtomicU64> {
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counters.retain(|_, counter| counter.strong_count() > 0);
        let counter = counters.entry((plugin.to_owned(), id)).or_default();
        counter.upgrade().unwrap_or_else(|| {
            let made = Arc::default();
            *counter = Arc::downgrade(&made);
            made
        })
    }

    /// How many were dropped of each plugin's entity.
    pub fn counts(&self) -> Vec<(String, Uuid, u64)> {
        let counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = |((plugin, id), counter): (&(String, Uuid), &Weak<AtomicU64>)| {
            Some((plugin.clone(), *id, counter.upgrade()?.load(Ordering::Relaxed)))
        };
        counters.iter().filter_map(count).collect()
    }
}

/// A plugin entity's access to the thread, and its counters.
pub(crate) struct Sender {
    /// Its name in the log.
    pub name: String,
    pub background: Arc<Background>,
    pub dropped: Arc<AtomicU64>,
    pub untold: Mutex<Untold>,
}

impl Sender {
    /// Counts entries as dropped, and logs why at intervals, because an outage may drop one entry at a time.
    pub(super) fn lose(&self, entries: u64, why: &str) {
        self.dropped.fetch_add(entries, Ordering::Relaxed);
        let due = self.untold.lock().unwrap_or_else(PoisonError::into_inner).add(entries, Instant::now());
        if let Some(entries) = due {
            let seconds = PAUSE.as_secs();
            tracing::error!(
                queue = self.name,
                entries,
                "entries are dropped (logged at most once in {seconds} seconds): {why}"
            );
        }
    }
}

impl Sender {
    /// How many entries were dropped that were not logged yet.
    pub(super) fn untold(&self) -> u64 {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner).entries
    }
}

/// The pause between two log messages about dropped entries of one queue.
const PAUSE: Duration = Duration::from_secs(60);

/// Dropped entries that were not logged yet.
#[derive(Default)]
pub(crate) struct Untold {
    entries: u64,
    last: Option<Instant>,
}

impl Untold {
    /// How many to log now, if it is time.
    fn add(&mut self, entries: u64, now: Instant) -> Option<u64> {
        self.entries += entries;
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < PAUSE) {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_logged_at_once_and_then_at_intervals() {
        let (mut untold, start) = (Untold::default(), Instant::now());
        assert_eq!(untold.add(2, start), Some(2));
        assert_eq!((0..1000).find_map(|_| untold.add(1, start + PAUSE / 2)), None);
        assert_eq!(untold.add(3, start + PAUSE), Some(1003));
        assert_eq!(untold.add(1, start + PAUSE), None);
    }

    #[test]
    fn counters_are_shared_by_those_of_one_plugin_and_go_with_the_last_of_them() {
        let dropped = Dropped::default();
        let (old, new) = (dropped.of("file-log", Uuid::nil()), dropped.of("file-log", Uuid::nil()));
        old.fetch_add(2, Ordering::Relaxed);
        drop(old);
        assert_eq!(dropped.counts(), [("file-log".to_owned(), Uuid::nil(), 2)]);
        drop(new);
        assert_eq!(dropped.counts(), []);
    }
}
