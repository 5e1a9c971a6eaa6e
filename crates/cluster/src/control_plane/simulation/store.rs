//! The store that control planes share, and what one of them has read of it.
use crate::sync::inventory::Inventory;
use crate::sync::tests::{changed, consumer, document, service};
use crate::{Source, Version};
use fastrand::Rng;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;
use weir_model::{Change, Document};

/// All commits. Revisions count from 1.
pub(super) struct Store {
    documents: Vec<Arc<Document>>,
    changes: Vec<Vec<Change>>,
    by_hash: HashMap<String, u64>,
}

impl Store {
    pub(super) fn new() -> Store {
        let mut store = Store { documents: Vec::new(), changes: Vec::new(), by_hash: HashMap::new() };
        store.push(Arc::new(document([])), Vec::new());
        store
    }

    fn push(&mut self, document: Arc<Document>, changes: Vec<Change>) {
        self.documents.push(document.clone());
        self.changes.push(changes);
        let revision = self.revision();
        self.by_hash.insert(Inventory::of(&document).digest().to_string(), revision);
    }

    pub(super) fn revision(&self) -> u64 {
        self.documents.len() as u64
    }

    /// Commits some changes. No two commits lead to the same content.
    pub(super) fn commit(&mut self, random: &mut Rng) -> u64 {
        let next = self.revision() + 1;
        let mut changes = vec![Change::put(service(1, &format!("service-{next}")))];
        for _ in 0..random.usize(..4) {
            let id = random.u128(2..12);
            // A few of the long names are more than a chunk.
            let length = if random.u8(..24) == 0 { 30_000 } else { 0 };
            let text: String = (0..length).map(|_| random.alphanumeric()).collect();
            let consumer = consumer(id, &format!("consumer-{id}-{next}-{text}"));
            changes.push(match random.u8(..3) {
                0 => Change::delete(consumer.kind(), consumer.id()),
                _ => Change::put(consumer),
            });
        }
        let document = changed(&self.documents[next as usize - 2], &changes);
        self.push(document, changes);
        next
    }

    pub(super) fn document(&self, revision: u64) -> &Arc<Document> {
        &self.documents[revision as usize - 1]
    }

    /// The revision that has the content with this hash.
    pub(super) fn revision_of(&self, hash: &str) -> Option<u64> {
        self.by_hash.get(hash).copied()
    }
}

/// What a control plane has read of the store.
pub(super) struct Replica {
    pub(super) store: Arc<Mutex<Store>>,
    pub(super) known: watch::Sender<u64>,
    /// How many revisions back changes are known.
    pub(super) memory: u64,
}

impl Source for Replica {
    fn current(&self) -> Version {
        let revision = *self.known.borrow();
        Version { revision, document: self.store.lock().unwrap().document(revision).clone() }
    }

    fn epoch(&self) -> u64 {
        7
    }

    fn caught_up(&self) -> Pin<Box<dyn Future<Output = u64> + Send + '_>> {
        let committed = self.store.lock().unwrap().revision();
        Box::pin(async move {
            let _ = self.known.subscribe().wait_for(|known| *known >= committed).await;
            committed
        })
    }

    fn changes_since(&self, revision: u64) -> Option<Vec<Change>> {
        let known = *self.known.borrow();
        let store = self.store.lock().unwrap();
        let is_known = revision + self.memory >= known;
        is_known.then(|| store.changes[revision as usize..known as usize].concat())
    }

    fn watch(&self) -> watch::Receiver<u64> {
        self.known.subscribe()
    }
}
