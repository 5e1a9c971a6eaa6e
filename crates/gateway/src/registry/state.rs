//! What readers, writer and publisher share.
use crate::store::Revision;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::SystemTime;
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

/// What was committed since it was asked for last.
pub(super) enum News {
    /// These changes, in their order.
    Changes(Vec<Change>),
    /// A configuration instead of the one before.
    Whole(Box<Document>),
}

/// What has not been asked for yet.
#[derive(Default)]
struct Unseen {
    changes: Vec<Change>,
    /// Whether all was replaced, so that changes say nothing.
    replaced: bool,
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

/// In seconds since 1970.
pub(super) fn now() -> i64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs().cast_signed())
}

/// What is committed, and what of it is in force.
pub(super) struct Known {
    entities: RwLock<Entities>,
    /// Changed under the lock of the entities.
    unseen: Mutex<Unseen>,
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
            unseen: Mutex::default(),
            committed: watch::Sender::new(in_force.revision),
            tried: watch::Sender::new(in_force.revision),
            in_force: Mutex::new(Arc::new(in_force)),
            failure: Mutex::default(),
            reachable: AtomicBool::new(true),
        }
    }

    /// Those that have expired are gone, whether or not the store knows that already.
    pub(super) fn entities(&self) -> RwLockReadGuard<'_, Entities> {
        let (read, now) = (|| self.entities.read().unwrap_or_else(PoisonError::into_inner), now());
        let entities = read();
        if !entities.have_expired(now) {
            return entities;
        }
        drop(entities);
        self.entities.write().unwrap_or_else(PoisonError::into_inner).expire(now);
        read()
    }

    pub(super) fn revision(&self) -> Revision {
        *self.committed.borrow()
    }

    /// Tells of each commit.
    pub(super) fn commits(&self) -> watch::Receiver<Revision> {
        self.committed.subscribe()
    }

    /// What was committed since the last call; up to which revision, `commits` has seen then.
    pub(super) fn news(&self, commits: &mut watch::Receiver<Revision>) -> (Revision, News) {
        let entities = self.entities();
        let unseen = std::mem::take(&mut *self.unseen());
        let news = match unseen.replaced {
            true => News::Whole(Box::new(entities.document())),
            false => News::Changes(unseen.changes),
        };
        (*commits.borrow_and_update(), news)
    }

    fn unseen(&self) -> MutexGuard<'_, Unseen> {
        self.unseen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These changes are committed.
    pub(super) fn follow(&self, revision: Revision, changes: &[Change]) {
        let mut entities = self.entities.write().unwrap_or_else(PoisonError::into_inner);
        changes.iter().for_each(|change| entities.restore(change.clone()));
        self.unseen().changes.extend_from_slice(changes);
        self.committed.send_replace(revision);
    }

    /// All of this is committed, and nothing else.
    pub(super) fn replace(&self, revision: Revision, new: Entities) {
        let mut entities = self.entities.write().unwrap_or_else(PoisonError::into_inner);
        *entities = new;
        *self.unseen() = Unseen { replaced: true, ..Unseen::default() };
        self.committed.send_replace(revision);
    }

    pub(super) fn in_force(&self) -> Arc<InForce> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns what was in force before.
    pub(super) fn put_in_force(&self, in_force: InForce) -> Arc<InForce> {
        let revision = in_force.revision;
        let mut place = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *place, Arc::new(in_force));
        drop(place);
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.tried.send_replace(revision);
        before
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
