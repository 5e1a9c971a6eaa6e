//! What all data planes get that have the same version and labels: kept once, encoded once.
use super::identity::{Digest, Identity};
use super::inventory::{Inventory, Key};
use super::journal::Journal;
use super::message::Compare;
use super::record::{Record, body_of};
use super::transfer::{Encoder, Transfer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weir_model::entity::EntityKind;
use weir_model::{Change, Document, PluginSchema, find_kind};

/// How many encoded transfers are kept until the next change. Data planes that are current need one, those that are a few
/// changes behind one for each state that they are in.
const MAX_ENCODED: usize = 16;

/// The configuration of some data planes, and how to get there.
#[derive(Debug)]
pub struct Cohort {
    plugins: Arc<[PluginSchema]>,
    identity: Identity,
    document: Arc<Document>,
    inventory: Inventory,
    journal: Journal,
    /// Transfers to the present content.
    encoded: Vec<Transfer>,
}

/// What a data plane needs next.
#[derive(Debug, Clone)]
pub enum Next {
    /// Nothing.
    Nothing,
    /// This transfer.
    Transfer(Transfer),
    /// This transfer, which is not encoded yet.
    Draft(Draft),
    /// Its content is unknown here: compare digests.
    Compare,
}

/// A transfer that is not encoded yet, because that takes long where there are many entities.
#[derive(Debug, Clone)]
pub struct Draft {
    document: Arc<Document>,
    /// The content that it changes; none if it is everything.
    from: Option<Digest>,
    to: Identity,
    /// The entities that it has; none if it is everything.
    keys: Option<BTreeSet<Key>>,
}

impl Draft {
    /// How many entities it has.
    pub fn entities(&self) -> usize {
        self.keys.as_ref().map_or_else(|| self.document.len(), BTreeSet::len)
    }

    /// The transfer.
    pub fn encode(&self) -> Transfer {
        let mut encoder = Encoder::new(self.entities());
        match &self.keys {
            None => self.document.entities().for_each(|entity| {
                let body = body_of(&entity);
                encoder.push(&Record { kind: entity.kind().as_str(), id: entity.id(), body: Some(&body) });
            }),
            Some(keys) => keys.iter().for_each(|(kind, id)| {
                let body = self.document.find(*kind, *id).map(|entity| body_of(&entity));
                encoder.push(&Record { kind: kind.as_str(), id: *id, body: body.as_deref() });
            }),
        }
        encoder.finish(self.from, self.to)
    }
}

/// The content of a cohort whose changes are unknown, with its digests. To make it takes long.
#[derive(Debug)]
pub struct Replacement {
    document: Arc<Document>,
    inventory: Inventory,
}

impl Replacement {
    /// A document in any order.
    pub fn new(document: Arc<Document>) -> Replacement {
        let document = sorted(document);
        Replacement { inventory: Inventory::of(&document), document }
    }
}

impl Cohort {
    /// A cohort with this content. `epoch` is new, unless the sequence continues one that data planes may know.
    pub fn new(plugins: Arc<[PluginSchema]>, epoch: u64, sequence: u64, document: Arc<Document>) -> Cohort {
        let Replacement { document, inventory } = Replacement::new(document);
        let identity = Identity { epoch, sequence, digest: inventory.digest() };
        let (journal, encoded) = (Journal::new(sequence), Vec::new());
        Cohort { plugins, identity, document, inventory, journal, encoded }
    }

    /// What its content is called.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Its entities.
    pub fn document(&self) -> &Arc<Document> {
        &self.document
    }

    /// The digests of its entities.
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// The kind of this name.
    pub(super) fn kind_called(&self, name: &str) -> Option<EntityKind> {
        find_kind(&self.plugins, name)
    }

    /// The digests of its kinds, which a data plane compares with its own.
    pub fn compare(&self) -> Compare {
        let kinds = self.inventory.kinds().map(|(kind, digest)| (kind.as_str().to_owned(), digest));
        Compare { kinds: kinds.collect() }
    }

    /// The content after these changes, of which `digests` are the [`digests`]. Where something else has the document,
    /// it is copied.
    pub fn apply(&mut self, sequence: u64, changes: &[Change], digests: Digests) {
        let document = Arc::make_mut(&mut self.document);
        changes.iter().for_each(|change| document.apply(change));
        let before = self.inventory.digest();
        let mut changed = Vec::new();
        for (key, digest) in digests {
            if digest != self.inventory.get(key) {
                self.inventory.set(key, digest);
                changed.push(key);
            }
        }
        self.note(sequence, before, changed);
    }

    /// The content, where the changes that led to it are unknown. Returns what it was, because freeing that takes long.
    pub fn replace(&mut self, sequence: u64, by: Replacement) -> Replacement {
        let changed = self.inventory.differences(&by.inventory);
        let before = self.inventory.digest();
        let document = std::mem::replace(&mut self.document, by.document);
        let inventory = std::mem::replace(&mut self.inventory, by.inventory);
        self.note(sequence, before, changed);
        Replacement { document, inventory }
    }

    fn note(&mut self, sequence: u64, before: Digest, changed: Vec<Key>) {
        let goes_on = sequence > self.identity.sequence;
        if sequence < self.identity.sequence || (!goes_on && !changed.is_empty()) {
            // Another history, whose sequences mean something else.
            self.journal = Journal::new(sequence);
        }
        self.identity = Identity { sequence, digest: self.inventory.digest(), ..self.identity };
        if !changed.is_empty() {
            self.journal.push(sequence, before, changed);
            self.encoded.clear();
        }
    }

    /// What a data plane with this content needs.
    pub fn next(&self, held: Digest) -> Next {
        if held == self.identity.digest {
            return Next::Nothing;
        }
        if held == Digest::default() {
            return self.whole();
        }
        if let Some(transfer) = self.find(Some(held)) {
            return Next::Transfer(transfer.clone());
        }
        match self.journal.since_digest(held) {
            Some(keys) => self.differing(held, keys),
            None => Next::Compare,
        }
    }

    /// The entities that changed after this state, those that changed last at the end, if that is known.
    pub fn changed_after(&self, state: Identity) -> Option<Vec<Key>> {
        self.journal.after(state.sequence, state.digest, self.identity.digest)
    }

    /// Everything.
    pub fn whole(&self) -> Next {
        self.transfer(None, None)
    }

    /// These entities, for a data plane with this content. Others with the same content get the same bytes.
    pub fn differing(&self, held: Digest, keys: BTreeSet<Key>) -> Next {
        self.transfer(Some(held), Some(keys))
    }

    fn transfer(&self, from: Option<Digest>, keys: Option<BTreeSet<Key>>) -> Next {
        let draft = || Draft { document: self.document.clone(), from, to: self.identity, keys };
        self.find(from).cloned().map_or_else(|| Next::Draft(draft()), Next::Transfer)
    }

    /// The transfer of a draft, if it is encoded already. It may name an older sequence with the same content.
    pub fn encoded(&self, draft: &Draft) -> Option<Transfer> {
        self.find(draft.from).filter(|transfer| transfer.to.digest == draft.to.digest).cloned()
    }

    fn find(&self, from: Option<Digest>) -> Option<&Transfer> {
        self.encoded.iter().find(|transfer| transfer.from == from)
    }

    /// Keeps a transfer for other data planes, unless the content has changed since.
    pub fn keep(&mut self, transfer: Transfer) {
        if transfer.to.digest != self.identity.digest {
            return;
        }
        if self.encoded.len() == MAX_ENCODED {
            self.encoded.remove(0);
        }
        self.encoded.push(transfer);
    }
}

/// The digest of each entity that changes put; none of one that they delete.
pub type Digests = BTreeMap<Key, Option<Digest>>;

/// Those of changes. Takes long where there are many.
pub fn digests(changes: &[Change]) -> Digests {
    let last: BTreeMap<Key, &Change> =
        changes.iter().map(|change| ((change.kind, change.id), change)).collect();
    let digest = |(kind, id): Key, change: &Change| {
        change.entity.as_ref().map(|entity| Digest::of_entity(kind.as_str(), id, &body_of(entity)))
    };
    last.into_iter().map(|(key, change)| (key, digest(key, change))).collect()
}

/// A document in which entities can be found by their ids.
fn sorted(document: Arc<Document>) -> Arc<Document> {
    if document.is_sorted() {
        return document;
    }
    let mut document = Arc::unwrap_or_clone(document);
    document.sort();
    Arc::new(document)
}
