//! What could not be delivered, by whose it was.

use crate::background::Background;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use weir_model::Uuid;

/// The counters of entries that were dropped, by plugin. They are kept as long as their plugins.
#[derive(Default)]
pub(crate) struct Dropped(Mutex<BTreeMap<(String, Uuid), Weak<AtomicU64>>>);

impl Dropped {
    /// The counter of a plugin's entity.
    pub(crate) fn of(&self, plugin: &str, id: Uuid) -> Arc<AtomicU64> {
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
    pub(crate) fn counts(&self) -> Vec<(String, Uuid, u64)> {
        let counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = |((plugin, id), counter): (&(String, Uuid), &Weak<AtomicU64>)| {
            Some((plugin.clone(), *id, counter.upgrade()?.load(Ordering::Relaxed)))
        };
        counters.iter().filter_map(count).collect()
    }
}

/// Whose entries are delivered, where, and how many were not.
pub(crate) struct Sender {
    /// What the log calls it.
    pub(crate) name: String,
    pub(crate) background: Arc<Background>,
    pub(crate) dropped: Arc<AtomicU64>,
}

impl Sender {
    /// Counts entries as dropped, and says why.
    pub(super) fn lose(&self, entries: u64, why: &str) {
        self.dropped.fetch_add(entries, Ordering::Relaxed);
        tracing::error!(queue = self.name, entries, "entries are dropped: {why}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
