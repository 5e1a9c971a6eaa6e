//! Which entities changed lately: the fast path for data planes that are a few changes behind. Without it, they compare
//! digests, so nothing depends on how far it reaches back.
use super::identity::Digest;
use super::inventory::Key;
use std::collections::{BTreeSet, VecDeque};

/// Once there are more entities in it, the oldest changes are forgotten.
const MAX_KEYS: usize = 50_000;

/// The last changes, oldest first.
#[derive(Debug, Default)]
pub(super) struct Journal {
    entries: VecDeque<Entry>,
    keys: usize,
}

#[derive(Debug)]
struct Entry {
    sequence: u64,
    /// Of the content before the change.
    before: Digest,
    keys: Vec<Key>,
}

impl Journal {
    /// Adds a change.
    pub(super) fn push(&mut self, sequence: u64, before: Digest, keys: Vec<Key>) {
        self.keys += keys.len();
        self.entries.push_back(Entry { sequence, before, keys });
        while self.keys > MAX_KEYS {
            let Some(oldest) = self.entries.pop_front() else { return };
            self.keys -= oldest.keys.len();
        }
    }

    /// The entities that changed since the content had this digest, if the journal reaches back so far.
    pub(super) fn since_digest(&self, digest: Digest) -> Option<BTreeSet<Key>> {
        let newest = self.entries.iter().rposition(|entry| entry.before == digest)?;
        Some(self.entries.range(newest..).flat_map(|entry| &entry.keys).copied().collect())
    }

    /// The entities that changed after this sequence, at which the content had this digest, if the journal reaches back so
    /// far.
    pub(super) fn after(&self, sequence: u64, digest: Digest) -> Option<BTreeSet<Key>> {
        let first = self.entries.partition_point(|entry| entry.sequence <= sequence);
        let is_complete = self.entries.get(first).is_none_or(|entry| entry.before == digest);
        is_complete.then(|| self.entries.range(first..).flat_map(|entry| &entry.keys).copied().collect())
    }
}
