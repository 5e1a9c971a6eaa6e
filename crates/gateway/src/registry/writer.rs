//! The one writer: decides queued writes, and commits them together.
use super::draft::{Draft, Staged};
use super::state::{RegistryState, now};
use super::write::Job;
use super::{CommittedWrite, DataPlane, WriteError};
use crate::store::{Committed, Loaded, Pending, Revision, Since, Store, StoreError};
use crate::threads::Background;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};
use weir_model::{Change, Entities, PluginSchema};

/// How many writes are committed together at most.
const MAX_BATCH: usize = 256;

/// How long a batch is decided anew before it fails, because other nodes commit first each time. A number of attempts alone
/// would be used up within a moment by a node that is quicker.
const MAX_CONTENTION: Duration = Duration::from_secs(5);

/// How often a batch is decided however long that takes: deciding may take longer than that.
const MIN_ATTEMPTS: u32 = 3;

/// The first and the longest backoff after the store failed.
const BACKOFF: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// How often expired entities are removed from the store, unless a write removes them sooner.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60);

/// The only task that changes the committed entities.
pub(super) struct Writer {
    state: Arc<RegistryState>,
    plane: Arc<dyn DataPlane>,
    store: Arc<dyn Store>,
    /// Decides writes. It is there from the beginning, because the system may refuse to start a thread later.
    thread: Background,
    draft: Draft,
    plugins: Arc<[PluginSchema]>,
    /// The draft may lack expired entities that are still stored.
    incomplete: bool,
    /// The backoff before the store is read again, while it fails.
    pause: Option<Duration>,
    /// The last write failed because the store was full.
    is_full: bool,
    /// [`MAX_CONTENTION`].
    pub(super) max_contention: Duration,
}

impl Writer {
    /// The draft holds everything in the store, expired entities too.
    pub(super) fn new(
        state: Arc<RegistryState>,
        plane: Arc<dyn DataPlane>,
        store: Arc<dyn Store>,
        draft: Draft,
    ) -> io::Result<Writer> {
        let (thread, plugins) = (Background::start_at_normal_priority("weir-writes")?, draft.plugins());
        Ok(Writer {
            state,
            plane,
            store,
            thread,
            draft,
            plugins,
            incomplete: false,
            pause: None,
            is_full: false,
            max_contention: MAX_CONTENTION,
        })
    }

    /// Writes until the queue is closed, and follows the commits of other nodes.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Box<dyn Job>>) {
        let store = self.store.clone();
        let mut changed = store.changed();
        let mut clean = interval(EXPIRY_INTERVAL);
        clean.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let mut jobs = Vec::new();
            tokio::select! {
                taken = queue.recv_many(&mut jobs, MAX_BATCH) => {
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

    /// Decides writes, commits their changes, and sends the outcomes. Removes expired entities too.
    async fn write(&mut self, mut jobs: Vec<Box<dyn Job>>) {
        let (begun, mut attempts) = (Instant::now(), 0);
        while attempts < MIN_ATTEMPTS || begun.elapsed() < self.max_contention {
            attempts += 1;
            let Some((expired, staged)) = self.stage(jobs).await else { return };
            let changed = staged.iter().flat_map(|staged| staged.outcome.iter().flatten().cloned());
            match self.commit(expired.into_iter().chain(changed).collect()).await {
                Ok(Committed::At(revision)) => return self.succeed(staged, revision),
                Ok(Committed::Outdated) => jobs = staged.into_iter().map(|staged| staged.job).collect(),
                Err(error) => {
                    self.lost(&error);
                    return fail(staged.into_iter().map(|staged| staged.job), &write_error(&error));
                }
            }
        }
        let busy = "other nodes keep writing at the same time: try again";
        fail(jobs.into_iter(), &WriteError::Unavailable(busy.to_owned()));
    }

    /// Takes long, because certificates and regexes are compiled to check them.
    async fn stage(&mut self, jobs: Vec<Box<dyn Job>>) -> Option<(Vec<Change>, Vec<Staged>)> {
        let (mut draft, plane) = (std::mem::take(&mut self.draft), self.plane.clone());
        let stage = self.thread.run(move || {
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

    /// Rebuilds the draft from the store; while that fails, from the committed entities.
    async fn recover(&mut self) {
        self.incomplete = true;
        self.draft = Draft::of(self.state.entities().clone(), self.plugins.clone());
        match self.load().await {
            Ok(()) => self.found(),
            Err(error) => self.lost(&error),
        }
    }

    /// Commits the staged changes, or undoes them. After `Outdated`, the commits of other nodes are applied.
    async fn commit(&mut self, changes: Vec<Change>) -> Result<Committed, StoreError> {
        let base = self.state.revision();
        if changes.is_empty() {
            return Ok(self.confirm(base).await);
        }
        let committed = self.store.commit(base, &changes).await;
        if let Ok(Committed::At(revision)) = committed {
            self.draft.keep();
            self.state.follow(revision, &changes);
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

    /// Confirms writes that change nothing: they stand unless other nodes have committed since. While the store is
    /// unavailable, nothing newer is known.
    async fn confirm(&mut self, base: Revision) -> Committed {
        self.follow(Ok(())).await;
        if self.state.revision() == base { Committed::At(base) } else { Committed::Outdated }
    }

    fn succeed(&mut self, staged: Vec<Staged>, revision: Revision) {
        for Staged { job, outcome } in staged {
            job.end(outcome.map(|changes| CommittedWrite { revision, changes }));
        }
    }

    /// Applies the commits of other nodes.
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
        let base = self.state.revision();
        match self.store.since(base).await? {
            Since::Changes { revision, changes } if revision == base && changes.is_empty() => {}
            Since::Changes { revision, changes } if revision >= base => {
                self.draft.follow(&changes);
                self.state.follow(revision, &changes);
            }
            // A store with an older revision than this node's was restored from a backup.
            Since::Changes { .. } | Since::Lost => self.load().await?,
        }
        Ok(())
    }

    /// Replaces the entities by the content of the store.
    async fn load(&mut self) -> Result<(), StoreError> {
        let Loaded { revision, entities } = self.store.load().await?;
        let entities = Entities::from_iter(entities);
        self.draft = Draft::of(entities.clone(), self.plugins.clone());
        self.incomplete = false;
        self.state.replace(revision, entities);
        Ok(())
    }

    /// The store works.
    fn found(&mut self) {
        self.pause = None;
        if self.state.set_reachable(true) {
            tracing::info!("the database answers again");
        }
    }

    /// The store failed. It is read again after a backoff.
    fn lost(&mut self, error: &StoreError) {
        let [first, longest] = BACKOFF;
        self.pause = Some(self.pause.map_or(first, |pause| longest.min(pause * 2)));
        if let StoreError::Full(_) = error {
            if !std::mem::replace(&mut self.is_full, true) {
                tracing::error!(%error, "writes are refused until there is room; the active configuration is still served");
            }
        } else if self.state.set_reachable(false) {
            tracing::error!(%error, "writes are refused; the active configuration is still served");
        }
    }
}

fn fail(jobs: impl Iterator<Item = Box<dyn Job>>, error: &WriteError<()>) {
    jobs.for_each(|job| job.end(Err(error.clone())));
}

fn write_error(error: &StoreError) -> WriteError<()> {
    match error {
        StoreError::Uncertain(message) => WriteError::Uncertain(message.clone()),
        error => WriteError::Unavailable(error.to_string()),
    }
}

/// Waits for the next change; after an error with a backoff.
fn listen(store: &dyn Store, after_error: bool) -> Pending<'_, ()> {
    if !after_error {
        return store.changed();
    }
    Box::pin(async move {
        sleep(Some(BACKOFF[1])).await;
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
