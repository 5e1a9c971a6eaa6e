//! Which entities changed lately: the fast path for data planes that are a few changes behind. Without it, they compare
//! digests, so nothing depends on how far it reaches back.
use super::identity::Digest;
use super::inventory::Key;
use std::collections::{BTreeSet, VecDeque};

/// Once there are more entities in it, the oldest changes are forgotten.
const MAX_KEYS: usize = 50_000;

/// The last changes, oldest first.
#[derive(Debug)]
pub(super) struct Journal {
    /// The sequence after which it has all of them.
    begins: u64,
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
    /// One of the changes after this sequence.
    pub(super) fn new(begins: u64) -> Journal {
        Journal { begins, entries: VecDeque::new(), keys: 0 }
    }

    /// Adds a change.
    pub(super) fn push(&mut self, sequence: u64, before: Digest, keys: Vec<Key>) {
        self.keys += keys.len();
        self.entries.push_back(Entry { sequence, before, keys });
        while self.keys > MAX_KEYS {
            let Some(oldest) = self.entries.pop_front() else { return };
            self.begins = oldest.sequence;
            self.keys -= oldest.keys.len();
        }
    }

    /// The entities that changed since the content had this digest, if the journal reaches back so far.
    pub(super) fn since_digest(&self, digest: Digest) -> Option<BTreeSet<Key>> {
        let newest = self.entries.iter().rposition(|entry| entry.before == digest)?;
        Some(self.entries.range(newest..).flat_map(|entry| &entry.keys).copied().collect())
    }

    /// The entities that changed after this sequence, at which the content had this digest, if the journal reaches back so
    /// far. Those that changed last stand at the end. `now`: the digest of the content.
    pub(super) fn after(&self, sequence: u64, digest: Digest, now: Digest) -> Option<Vec<Key>> {
        let first = self.entries.partition_point(|entry| entry.sequence <= sequence);
        let known = self.entries.get(first).map_or(now, |entry| entry.before);
        if sequence < self.begins || known != digest {
            return None;
        }
        let mut seen = BTreeSet::new();
        let newest_first = self.entries.range(first..).rev().flat_map(|entry| entry.keys.iter().rev());
        let mut keys: Vec<Key> = newest_first.filter(|key| seen.insert(**key)).copied().collect();
        keys.reverse();
        Some(keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::Uuid;
    use weir_model::entity::EntityKind;

    fn key(id: u128) -> Key {
        (EntityKind::Services, Uuid::from_u128(id))
    }

    fn digest(id: u128) -> Digest {
        Digest::of_entity("services", Uuid::from_u128(id), b"")
    }

    #[test]
    fn what_changed_after_a_sequence_is_known_as_far_as_the_journal_reaches() {
        let mut journal = Journal::new(5);
        journal.push(6, digest(5), vec![key(1), key(2)]);
        journal.push(8, digest(6), vec![key(1)]);
        assert_eq!(journal.after(5, digest(5), digest(8)), Some(vec![key(2), key(1)]));
        assert_eq!(journal.after(6, digest(6), digest(8)), Some(vec![key(1)]));
        assert_eq!(journal.after(9, digest(8), digest(8)), Some(Vec::new()));
        assert_eq!(journal.after(4, digest(5), digest(8)), None, "it begins later");
        assert_eq!(journal.after(6, digest(7), digest(8)), None, "that was other content");
        assert_eq!(journal.after(9, digest(6), digest(8)), None, "that is other content");
        journal.push(9, digest(8), (0..MAX_KEYS as u128).map(key).collect());
        assert_eq!(journal.after(7, digest(6), digest(9)), None);
        assert_eq!(journal.after(9, digest(9), digest(9)), Some(Vec::new()));
    }
}
