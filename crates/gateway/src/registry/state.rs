//! The state that readers, writer and publisher share.
use crate::store::Revision;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::SystemTime;
use tokio::sync::watch;
use weir_model::{Change, Document, Entities};

/// A configuration that every worker serves.
#[derive(Debug)]
pub(crate) struct ActiveConfiguration {
    /// As of this revision.
    pub(crate) revision: Revision,
    /// Identifies it, as Kong's `configuration_hash`: 32 hexadecimal digits.
    pub(crate) hash: String,
    /// The configuration.
    pub(crate) document: Document,
}

/// What was committed since the publisher last looked.
pub(super) enum News {
    /// These changes, in their order.
    Changes(Vec<Change>),
    /// A whole new configuration.
    Whole(Box<Document>),
}

/// How many commits are remembered, for data planes that lack the latest.
const JOURNAL_LEN: usize = 1024;

/// The latest commits.
#[derive(Default)]
struct Journal {
    commits: VecDeque<(Revision, Vec<Change>)>,
    /// The revision before the first of them.
    base: Revision,
}

impl Journal {
    fn begin_at(revision: Revision) -> Journal {
        Journal { commits: VecDeque::new(), base: revision }
    }

    fn add(&mut self, revision: Revision, changes: &[Change]) {
        if self.commits.len() == JOURNAL_LEN
            && let Some((oldest, _)) = self.commits.pop_front()
        {
            self.base = oldest;
        }
        self.commits.push_back((revision, changes.to_vec()));
    }

    fn since(&self, revision: Revision) -> Option<Vec<Change>> {
        // A later one is of a history that a backup has replaced.
        let newest = self.commits.back().map_or(self.base, |(newest, _)| *newest);
        let later = self.commits.iter().filter(|(at, _)| *at > revision);
        (self.base..=newest)
            .contains(&revision)
            .then(|| later.flat_map(|(_, changes)| changes).cloned().collect())
    }
}

/// What the publisher has not taken yet.
#[derive(Default)]
struct Unseen {
    changes: Vec<Change>,
    /// Whether everything was replaced, so that the changes are incomplete.
    replaced: bool,
}

/// Why a committed revision could not be made active.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApplyError {
    /// The newest revision that was tried.
    pub(crate) revision: Revision,
    /// The errors.
    pub(crate) reason: String,
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "revision {} was saved but could not be applied; an older one stays active: {}; change or delete what \
             is named here",
            self.revision.0, self.reason
        )
    }
}

/// Identifies the content of a store as of a revision.
pub(super) fn hash(revision: Revision) -> String {
    format!("{:032x}", revision.0)
}

/// In seconds since 1970.
pub(super) fn now() -> i64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs().cast_signed())
}

/// The committed entities, and the active configuration.
pub(super) struct RegistryState {
    entities: RwLock<Entities>,
    /// Changed under the lock of the entities.
    unseen: Mutex<Unseen>,
    /// The same.
    journal: Mutex<Journal>,
    committed: watch::Sender<Revision>,
    active: Mutex<Arc<ActiveConfiguration>>,
    /// The newest revision that was made active, or could not be.
    attempted: watch::Sender<Revision>,
    /// Why the newest revision that was tried is not active.
    apply_error: Mutex<Option<ApplyError>>,
    reachable: AtomicBool,
}

impl RegistryState {
    pub(super) fn new(entities: Entities, active: ActiveConfiguration) -> RegistryState {
        RegistryState {
            entities: RwLock::new(entities),
            unseen: Mutex::default(),
            journal: Mutex::new(Journal::begin_at(active.revision)),
            committed: watch::Sender::new(active.revision),
            attempted: watch::Sender::new(active.revision),
            active: Mutex::new(Arc::new(active)),
            apply_error: Mutex::default(),
            reachable: AtomicBool::new(true),
        }
    }

    /// The entities without expired ones, even if the store still has those.
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

    /// Notifies of each commit.
    pub(super) fn commits(&self) -> watch::Receiver<Revision> {
        self.committed.subscribe()
    }

    /// Notifies as a commit does, of none.
    pub(super) fn announce(&self) {
        self.committed.send_modify(|_| {});
    }

    /// What was committed since the last call, and up to which revision; marks that as seen in `commits`.
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

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was committed after a revision; none if it is too old for that to be known.
    pub(super) fn changes_since(&self, revision: Revision) -> Option<Vec<Change>> {
        self.journal().since(revision)
    }

    /// Applies committed changes.
    pub(super) fn follow(&self, revision: Revision, changes: &[Change]) {
        let mut entities = self.entities.write().unwrap_or_else(PoisonError::into_inner);
        changes.iter().for_each(|change| entities.restore(change.clone()));
        self.unseen().changes.extend_from_slice(changes);
        self.journal().add(revision, changes);
        self.committed.send_replace(revision);
    }

    /// Replaces the committed entities.
    pub(super) fn replace(&self, revision: Revision, new: Entities) {
        let mut entities = self.entities.write().unwrap_or_else(PoisonError::into_inner);
        *entities = new;
        *self.unseen() = Unseen { replaced: true, ..Unseen::default() };
        *self.journal() = Journal::begin_at(revision);
        self.committed.send_replace(revision);
    }

    pub(super) fn active(&self) -> Arc<ActiveConfiguration> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the previously active configuration.
    pub(super) fn activate(&self, active: ActiveConfiguration) -> Arc<ActiveConfiguration> {
        let revision = active.revision;
        let mut place = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *place, Arc::new(active));
        drop(place);
        *self.apply_error.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.attempted.send_replace(revision);
        before
    }

    /// Records that a revision cannot be made active.
    pub(super) fn record_failure(&self, revision: Revision, reason: String) {
        let apply_error = ApplyError { revision, reason };
        *self.apply_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(apply_error);
        self.attempted.send_replace(revision);
    }

    /// Why the newest revision that was tried is not active, if so.
    pub(super) fn apply_error(&self) -> Option<ApplyError> {
        self.apply_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the revision, or a later one, is active or has failed.
    pub(super) async fn attempted(&self, revision: Revision) -> Result<(), ApplyError> {
        // Does not fail, because the sender is a field of this.
        let _ = self.attempted.subscribe().wait_for(|attempted| *attempted >= revision).await;
        let apply_error = self.apply_error();
        apply_error.filter(|_| self.active().revision < revision).map_or(Ok(()), Err)
    }

    pub(super) fn is_reachable(&self) -> bool {
        self.reachable.load(Ordering::Relaxed)
    }

    /// Records whether the store can be reached; returns whether that has changed.
    pub(super) fn set_reachable(&self, reachable: bool) -> bool {
        self.reachable.swap(reachable, Ordering::Relaxed) != reachable
    }
}
