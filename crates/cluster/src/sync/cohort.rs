//! What all data planes get that have the same version and labels: kept once, encoded once.
use super::identity::{Digest, Identity};
use super::inventory::{Inventory, Key};
use super::journal::Journal;
use super::message::Compare;
use super::record::{Record, body_of};
use super::transfer::{Encoder, Transfer};
use std::collections::BTreeSet;
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
    /// Transfers to the present content, by the digest that they begin with.
    encoded: Vec<(Digest, Transfer)>,
    whole: Option<Transfer>,
}

/// What a data plane needs next.
#[derive(Debug, Clone)]
pub enum Next {
    /// Nothing.
    Nothing,
    /// This transfer.
    Transfer(Transfer),
    /// Its content is unknown here: compare digests.
    Compare,
}

impl Cohort {
    /// A cohort with this content. `epoch` is new, unless the sequence continues one that data planes may know.
    pub fn new(plugins: Arc<[PluginSchema]>, epoch: u64, sequence: u64, document: Arc<Document>) -> Cohort {
        let document = sorted(document);
        let inventory = Inventory::of(&document);
        let identity = Identity { epoch, sequence, digest: inventory.digest() };
        let (journal, encoded) = (Journal::new(sequence), Vec::new());
        Cohort { plugins, identity, document, inventory, journal, encoded, whole: None }
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

    /// The content after these changes. The entities of the document stand in the order of their ids.
    pub fn advance(&mut self, sequence: u64, document: Arc<Document>, changes: &[Change]) {
        debug_assert!(document.is_sorted());
        self.document = document;
        self.update(sequence, changes);
    }

    /// The content after these changes, where nothing else has the document.
    pub(super) fn apply(&mut self, sequence: u64, changes: &[Change]) {
        let document = Arc::make_mut(&mut self.document);
        changes.iter().for_each(|change| document.apply(change));
        self.update(sequence, changes);
    }

    fn update(&mut self, sequence: u64, changes: &[Change]) {
        let keys: BTreeSet<_> = changes.iter().map(|change| (change.kind, change.id)).collect();
        let before = self.inventory.digest();
        let mut changed = Vec::new();
        for key in keys {
            let digest = self
                .document
                .find(key.0, key.1)
                .map(|entity| Digest::of_entity(key.0.as_str(), key.1, &body_of(&entity)));
            if digest != self.inventory.get(key) {
                self.inventory.set(key, digest);
                changed.push(key);
            }
        }
        self.note(sequence, before, changed);
    }

    /// The content, where the changes that led to it are unknown.
    pub fn replace(&mut self, sequence: u64, document: Arc<Document>) {
        self.document = sorted(document);
        let inventory = Inventory::of(&self.document);
        let changed = self.inventory.differences(&inventory);
        let before = self.inventory.digest();
        self.inventory = inventory;
        self.note(sequence, before, changed);
    }

    fn note(&mut self, sequence: u64, before: Digest, changed: Vec<Key>) {
        self.identity = Identity { sequence, digest: self.inventory.digest(), ..self.identity };
        if !changed.is_empty() {
            self.journal.push(sequence, before, changed);
            self.encoded.clear();
            self.whole = None;
        }
    }

    /// What a data plane with this content needs.
    pub fn next(&mut self, held: Digest) -> Next {
        if held == self.identity.digest {
            return Next::Nothing;
        }
        if held == Digest::default() {
            return Next::Transfer(self.whole());
        }
        if let Some(transfer) = self.encoded(held) {
            return Next::Transfer(transfer);
        }
        match self.journal.since_digest(held) {
            Some(keys) => Next::Transfer(self.encode(held, &keys)),
            None => Next::Compare,
        }
    }

    /// The entities that changed after this state, if that is known.
    pub fn changed_after(&self, state: Identity) -> Option<BTreeSet<Key>> {
        self.journal.after(state.sequence, state.digest)
    }

    /// The entities that changed after this sequence, those that changed last at the end, if that is known.
    pub fn changed_since(&self, sequence: u64) -> Option<Vec<Key>> {
        self.journal.after_sequence(sequence)
    }

    /// A transfer of these entities to a data plane with this content. Others with the same content get the same bytes.
    pub fn encode(&mut self, held: Digest, keys: &BTreeSet<Key>) -> Transfer {
        let mut encoder = Encoder::new(keys.len());
        for (kind, id) in keys {
            let body = self.document.find(*kind, *id).map(|entity| body_of(&entity));
            encoder.push(&Record { kind: kind.as_str(), id: *id, body: body.as_deref() });
        }
        let transfer = encoder.finish(Some(held), self.identity);
        if self.encoded.len() == MAX_ENCODED {
            self.encoded.remove(0);
        }
        self.encoded.push((held, transfer.clone()));
        transfer
    }

    /// A transfer of everything.
    pub fn whole(&mut self) -> Transfer {
        if let Some(transfer) = &self.whole {
            return transfer.clone();
        }
        let mut encoder = Encoder::new(self.document.len());
        for entity in self.document.entities() {
            let body = body_of(&entity);
            encoder.push(&Record { kind: entity.kind().as_str(), id: entity.id(), body: Some(&body) });
        }
        let transfer = encoder.finish(None, self.identity);
        self.whole = Some(transfer.clone());
        transfer
    }

    /// A transfer that is encoded already. It may name an older sequence with the same content.
    fn encoded(&self, held: Digest) -> Option<Transfer> {
        let found = self.encoded.iter().find(|(from, _)| *from == held);
        found.map(|(_, transfer)| transfer.clone())
    }
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
