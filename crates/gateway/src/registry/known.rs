//! What readers, writer and publisher share.
use crate::store::Revision;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use tokio::sync::watch;
use weir_model::{Change, Document, Entities};

/// A configuration that every worker serves.
#[derive(Debug)]
pub(crate) struct InForce {
    /// As of this revision.
    pub(crate) revision: Revision,
    /// Identifies it, as Kong's `configuration_hash`: 32 hexadecimal digits.
    pub(crate) hash: String,
    /// What it says.
    pub(crate) document: Document,
}

/// Why what is committed is not in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotInForce {
    /// The newest revision that was tried.
    pub(crate) revision: Revision,
    /// What is wrong with it.
    pub(crate) reason: String,
}

impl fmt::Display for NotInForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "revision {} is stored, but it cannot be put in force, and an older one is served: {}; change or delete \
             what is named here",
            self.revision.0, self.reason
        )
    }
}

/// Identifies what a store has as of a revision.
pub(super) fn hash(revision: Revision) -> String {
    format!("{:032x}", revision.0)
}

/// What is committed, and what of it is in force.
pub(super) struct Known {
    entities: RwLock<Entities>,
    committed: watch::Sender<Revision>,
    in_force: Mutex<Arc<InForce>>,
    /// The newest revision that is in force or cannot be.
    tried: watch::Sender<Revision>,
    /// Why the newest that was tried is not in force.
    failure: Mutex<Option<NotInForce>>,
    reachable: AtomicBool,
}

impl Known {
    pub(super) fn new(entities: Entities, in_force: InForce) -> Known {
        Known {
            entities: RwLock::new(entities),
            committed: watch::Sender::new(in_force.revision),
            tried: watch::Sender::new(in_force.revision),
            in_force: Mutex::new(Arc::new(in_force)),
            failure: Mutex::default(),
            reachable: AtomicBool::new(true),
        }
    }

    pub(super) fn entities(&self) -> RwLockReadGuard<'_, Entities> {
        self.entities.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn revision(&self) -> Revision {
        *self.committed.borrow()
    }

    /// Tells of each commit.
    pub(super) fn commits(&self) -> watch::Receiver<Revision> {
        self.committed.subscribe()
    }

    /// The newest that is committed; as of which revision, `commits` has seen then.
    pub(super) fn newest(&self, commits: &mut watch::Receiver<Revision>) -> (Revision, Document) {
        let entities = self.entities();
        (*commits.borrow_and_update(), entities.document())
    }

    /// These changes are committed.
    pub(super) fn follow(&self, revision: Revision, changes: &[Change]) {
        let mut entities = self.entities.write().unwrap_or_else(PoisonError::into_inner);
        changes.iter().for_each(|change| entities.restore(change.clone()));
        self.committed.send_replace(revision);
    }

    /// All of this is committed, and nothing else.
    pub(super) fn replace(&self, revision: Revision, new: Entities) {
        let mut entities = self.entities.write().unwrap_or_else(PoisonError::into_inner);
        *entities = new;
        self.committed.send_replace(revision);
    }

    pub(super) fn in_force(&self) -> Arc<InForce> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn put_in_force(&self, in_force: InForce) {
        let revision = in_force.revision;
        *self.in_force.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(in_force);
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.tried.send_replace(revision);
    }

    /// This revision cannot be in force.
    pub(super) fn give_up(&self, revision: Revision, reason: String) {
        let failure = NotInForce { revision, reason };
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
        self.tried.send_replace(revision);
    }

    /// Why the newest that was tried is not in force, if it is not.
    pub(super) fn failure(&self) -> Option<NotInForce> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns once it is known whether the revision is in force, or a later one.
    pub(super) async fn tried(&self, revision: Revision) -> Result<(), NotInForce> {
        // The sender is here as well, so there is one to wait for.
        let _ = self.tried.subscribe().wait_for(|tried| *tried >= revision).await;
        let failure = self.failure();
        failure.filter(|_| self.in_force().revision < revision).map_or(Ok(()), Err)
    }

    pub(super) fn is_reachable(&self) -> bool {
        self.reachable.load(Ordering::Relaxed)
    }

    /// Notes whether the store can be reached, and tells whether that is news.
    pub(super) fn set_reachable(&self, reachable: bool) -> bool {
        self.reachable.swap(reachable, Ordering::Relaxed) != reachable
    }
}
