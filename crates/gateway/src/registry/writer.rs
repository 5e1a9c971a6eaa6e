//! The one writer: decides what waits, and commits it together.
use super::draft::{Draft, Staged};
use super::state::{Known, now};
use super::write::Job;
use super::{DataPlane, WriteError, Written};
use crate::store::{Committed, Loaded, Pending, Revision, Since, Store, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use weir_model::{Change, Entities};

/// So many writes are committed together at most.
const BATCH: usize = 256;

/// How often a batch is decided anew because other nodes committed first.
const ATTEMPTS: usize = 16;

/// The first and the longest pause before a store that did not answer is asked again.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// How often what has expired is removed from the store, where no write does that sooner.
const CLEAN_EVERY: Duration = Duration::from_secs(60);

/// The one who changes what is known.
pub(super) struct Writer {
    known: Arc<Known>,
    plane: Arc<dyn DataPlane>,
    store: Arc<dyn Store>,
    draft: Draft,
    /// The draft may lack what has expired and is still stored.
    incomplete: bool,
    /// The pause before the store is asked for what others committed, where it has not answered that yet.
    pause: Option<Duration>,
    /// The last write was refused because the store had no room.
    is_full: bool,
}

impl Writer {
    /// The draft is of all that the store has, be it expired.
    pub(super) fn new(
        known: Arc<Known>,
        plane: Arc<dyn DataPlane>,
        store: Arc<dyn Store>,
        draft: Draft,
    ) -> Writer {
        Writer { known, plane, store, draft, incomplete: false, pause: None, is_full: false }
    }

    /// Writes until there is nobody left to ask for it, and follows what other nodes write.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Box<dyn Job>>) {
        let store = self.store.clone();
        let mut changed = store.changed();
        let mut clean = interval(CLEAN_EVERY);
        clean.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let mut jobs = Vec::new();
            tokio::select! {
                taken = queue.recv_many(&mut jobs, BATCH) => {
                    if taken == 0 {
                        return;
                    }
                    self.write(jobs).await;
                }
                heard = &mut changed => {
                    changed = listen(&*store, heard.is_err());
                    self.follow(heard).await;
                }
                () = sleep(self.pause) => self.follow(Ok(())).await,
                _ = clean.tick() => {
                    if self.draft.have_expired(now()) {
                        self.write(Vec::new()).await;
                    }
                }
            }
        }
    }

    /// Decides writes, commits what they change, and tells everyone how it went. What has expired goes along.
    async fn write(&mut self, mut jobs: Vec<Box<dyn Job>>) {
        for _ in 0..ATTEMPTS {
            let Some((expired, staged)) = self.stage(jobs).await else { return };
            let changed = staged.iter().flat_map(|staged| staged.outcome.iter().flatten().cloned());
            match self.commit(expired.into_iter().chain(changed).collect()).await {
                Ok(Committed::At(revision)) => return self.succeed(staged, revision),
                Ok(Committed::Outdated) => jobs = staged.into_iter().map(|staged| staged.job).collect(),
                Err(error) => {
                    self.lost(&error);
                    return fail(staged.into_iter().map(|staged| staged.job), &error.to_string());
                }
            }
        }
        fail(jobs.into_iter(), "other nodes write all the time: try again");
    }

    /// Deciding may take long: certificates and regexes are tried out.
    async fn stage(&mut self, jobs: Vec<Box<dyn Job>>) -> Option<(Vec<Change>, Vec<Staged>)> {
        let (mut draft, plane) = (std::mem::take(&mut self.draft), self.plane.clone());
        let stage = spawn_blocking(move || {
            let expired = draft.expire(now());
            let staged = draft.stage(jobs, &*plane);
            (draft, expired, staged)
        });
        match stage.await {
            Ok((draft, expired, staged)) => {
                self.draft = draft;
                Some((expired, staged))
            }
            Err(error) => {
                tracing::error!(%error, "a write ended early; this is a defect");
                self.recover().await;
                None
            }
        }
    }

    /// Makes the draft anew, of all that the store has. Where that does not answer now, of what is known until it does.
    async fn recover(&mut self) {
        self.incomplete = true;
        self.draft = Draft::of(self.known.entities().clone());
        match self.load().await {
            Ok(()) => self.found(),
            Err(error) => self.lost(&error),
        }
    }

    /// Commits what is staged, or undoes it. Outdated: what others committed is known now.
    async fn commit(&mut self, changes: Vec<Change>) -> Result<Committed, StoreError> {
        let base = self.known.revision();
        if changes.is_empty() {
            return Ok(self.confirm(base).await);
        }
        let committed = self.store.commit(base, &changes).await;
        if let Ok(Committed::At(revision)) = committed {
            self.draft.keep();
            self.known.follow(revision, &changes);
            self.found();
            if std::mem::take(&mut self.is_full) {
                tracing::info!("the database takes writes again");
            }
            return committed;
        }
        self.draft.undo();
        if let Ok(Committed::Outdated) = committed {
            self.catch_up().await?;
        }
        committed
    }

    /// Writes that change nothing were decided on the newest entities, unless others have committed since. A store that
    /// is away has none that are newer.
    async fn confirm(&mut self, base: Revision) -> Committed {
        self.follow(Ok(())).await;
        if self.known.revision() == base { Committed::At(base) } else { Committed::Outdated }
    }

    fn succeed(&mut self, staged: Vec<Staged>, revision: Revision) {
        for Staged { job, outcome } in staged {
            job.end(outcome.map(|changes| Written { revision, changes }));
        }
    }

    /// Takes over what other nodes have committed, now that there may be something.
    async fn follow(&mut self, heard: Result<(), StoreError>) {
        let followed = match heard {
            Ok(()) => self.catch_up().await,
            Err(error) => Err(error),
        };
        match followed {
            Ok(()) => self.found(),
            Err(error) => self.lost(&error),
        }
    }

    async fn catch_up(&mut self) -> Result<(), StoreError> {
        if self.incomplete {
            return self.load().await;
        }
        let base = self.known.revision();
        match self.store.since(base).await? {
            Since::Changes { revision, .. } if revision == base => {}
            Since::Changes { revision, changes } if revision > base => {
                self.draft.follow(&changes);
                self.known.follow(revision, &changes);
            }
            // A store that is older than what is known was put back from a copy.
            Since::Changes { .. } | Since::Lost => self.load().await?,
        }
        Ok(())
    }

    /// Takes all that the store has instead of what is known.
    async fn load(&mut self) -> Result<(), StoreError> {
        let Loaded { revision, entities } = self.store.load().await?;
        let entities = Entities::from_iter(entities);
        self.draft = Draft::of(entities.clone());
        self.incomplete = false;
        self.known.replace(revision, entities);
        Ok(())
    }

    /// The store answered.
    fn found(&mut self) {
        self.pause = None;
        if self.known.set_reachable(true) {
            tracing::info!("the database answers again");
        }
    }

    /// The store did not answer or could not write. What it holds is read again soon.
    fn lost(&mut self, error: &StoreError) {
        let [first, longest] = PAUSES;
        self.pause = Some(self.pause.map_or(first, |pause| longest.min(pause * 2)));
        if let StoreError::Full(_) = error {
            if !std::mem::replace(&mut self.is_full, true) {
                tracing::error!(%error, "writes are refused until there is room; the configuration in force stays");
            }
        } else if self.known.set_reachable(false) {
            tracing::error!(%error, "writes are refused; the configuration in force stays");
        }
    }
}

fn fail(jobs: impl Iterator<Item = Box<dyn Job>>, message: &str) {
    jobs.for_each(|job| job.end(Err(WriteError::Unavailable(message.to_owned()))));
}

/// Waits for the next change; after an error not at once.
fn listen(store: &dyn Store, after_error: bool) -> Pending<'_, ()> {
    if !after_error {
        return store.changed();
    }
    Box::pin(async move {
        sleep(Some(PAUSES[1])).await;
        store.changed().await
    })
}

/// Forever without a pause.
async fn sleep(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}
