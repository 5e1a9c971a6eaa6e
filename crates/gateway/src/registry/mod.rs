//! The entities of the node, how writes change them, and how they become active.
//!
//! ```text
//! write ─► queue ─► writer: decide, check, commit ─► entities ─► publisher: compile, publish ─► active
//! ```
//! Readers see committed entities only. A configuration that is declared as a whole, or that a control plane sends, has
//! neither writer nor publisher: it is compiled first, and then replaced at once.
mod draft;
mod publisher;
mod state;
#[cfg(test)]
mod tests;
mod write;
mod writer;

pub(crate) use state::{ActiveConfiguration, ApplyError};

use crate::store::{Revision, Store, UnusableObject};
use crate::threads::{Background, spawn_low_priority};
use draft::Draft;
use publisher::Publisher;
use state::RegistryState;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, RwLockReadGuard};
use tokio::sync::{Mutex, OnceCell, mpsc, watch};
use tokio::task::JoinHandle;
use weir_cluster::Update;
use weir_model::entity::{Entity, EntityKind};
use weir_model::schema::FieldValue;
use weir_model::{Change, ConstraintError, Document, Entities, PluginSchema, Uuid};
use weir_proxy::CompileError;
use write::{Job, QueuedWrite};
use writer::Writer;

/// The revision of a declared configuration that was never replaced.
pub(crate) const INITIAL: Revision = Revision(1);

/// How many writes may be queued; further writers wait until there is room in the queue.
const MAX_QUEUED_WRITES: usize = 1024;

/// The thread that compiles a configuration.
const THREAD: &str = "weir-compile";

/// How many errors a response lists at most.
const MAX_REPORTED_ERRORS: usize = 3;

/// A change of one entity.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// Create or replace it.
    Put(Entity),
    /// Delete it, and the entities that depend on it.
    Delete(EntityKind, Uuid),
}

/// A write that is committed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CommittedWrite {
    /// As of this revision.
    pub(crate) revision: Revision,
    /// The entities that it changed, with those deleted as dependents.
    pub(crate) changes: Vec<Change>,
}

impl CommittedWrite {
    /// The entities that it put.
    pub(crate) fn entities(&self) -> impl Iterator<Item = &Entity> {
        self.changes.iter().filter_map(|change| change.entity.as_ref())
    }
}

/// Why a write changed nothing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum WriteError<E> {
    /// `decide` returned an error.
    Rejected(E),
    /// It breaks a rule across entities.
    Refused(ConstraintError),
    /// An entity cannot be compiled.
    Uncompilable(CompileError),
    /// It cannot be stored now.
    Unavailable(String),
    /// It may have been stored, or not: the store failed while it was committed.
    Uncertain(String),
    /// The configuration is declared, and can only be replaced as a whole.
    ReadOnly,
}

/// The part of the node that serves the configuration.
pub(crate) trait DataPlane: Send + Sync + 'static {
    /// Whether an entity can be compiled among these others.
    fn check(&self, entity: &Entity, others: &Entities) -> Result<(), CompileError>;

    /// Compiles a configuration and makes it active; returns when every worker serves it, or with all errors. Takes
    /// long.
    fn publish(&self, document: &Document) -> Result<(), Vec<CompileError>>;
}

/// The configuration of a node.
pub(crate) struct Registry {
    state: Arc<RegistryState>,
    plane: Arc<dyn DataPlane>,
    /// None where the configuration is replaced as a whole.
    writes: Option<mpsc::Sender<Box<dyn Job>>>,
    /// Where entities are stored, with `writes`.
    store: Option<Arc<dyn Store>>,
    /// Replacements of the configuration wait for each other.
    turn: Mutex<()>,
    /// Compiles what replaces a configuration as a whole.
    background: OnceCell<Background>,
}

impl Registry {
    /// For a configuration that is declared as a whole, and that is active.
    pub(crate) fn declared(plane: Arc<dyn DataPlane>, document: Document, hash: String) -> Registry {
        let document = dated(document);
        let entities = Entities::of(document.clone());
        Registry::read_only(plane, document, entities, hash)
    }

    /// For a configuration that a control plane has sent, and that is active.
    pub(crate) fn received(
        plane: Arc<dyn DataPlane>,
        document: Document,
        hash: String,
    ) -> io::Result<Registry> {
        let document = dated(document);
        let entities = Entities::of(shown_by_data_planes(&document));
        // The system may start no thread when the next configuration comes.
        let background = OnceCell::new_with(Some(Background::start(THREAD)?));
        Ok(Registry { background, ..Registry::read_only(plane, document, entities, hash) })
    }

    fn read_only(
        plane: Arc<dyn DataPlane>,
        document: Document,
        entities: Entities,
        hash: String,
    ) -> Registry {
        let revision = INITIAL;
        let state = Arc::new(RegistryState::new(entities, ActiveConfiguration { revision, hash, document }));
        Registry {
            state,
            plane,
            writes: None,
            store: None,
            turn: Mutex::default(),
            background: OnceCell::new(),
        }
    }

    /// For a configuration that a store holds, and that is active as of this revision. Begins to follow the store.
    pub(crate) fn stored(
        plane: Arc<dyn DataPlane>,
        store: Arc<dyn Store>,
        revision: Revision,
        entities: Entities,
        plugins: &[PluginSchema],
    ) -> io::Result<Registry> {
        let active =
            ActiveConfiguration { revision, hash: state::hash(revision), document: entities.document() };
        let draft = Draft::of(entities.clone(), plugins.into());
        let state = Arc::new(RegistryState::new(entities, active));
        let (writes, queue) = mpsc::channel(MAX_QUEUED_WRITES);
        let publisher = Publisher::start(state.clone(), plane.clone(), plugins)?;
        let writer = Writer::new(state.clone(), plane.clone(), store.clone(), draft)?;
        tokio::spawn(publisher.run());
        let writing = tokio::spawn(writer.run(queue));
        tokio::spawn(notice_panic(writing, state.clone()));
        let (turn, background) = (Mutex::default(), OnceCell::new());
        Ok(Registry { state, plane, writes: Some(writes), store: Some(store), turn, background })
    }

    /// The committed entities. Hold the lock briefly, and never across an await.
    pub(crate) fn entities(&self) -> RwLockReadGuard<'_, Entities> {
        self.state.entities()
    }

    /// The newest committed revision that this node knows.
    pub(crate) fn revision(&self) -> Revision {
        self.state.revision()
    }

    /// The history that revisions count in: the same on all nodes of one store.
    pub(crate) fn epoch(&self) -> u64 {
        self.store.as_ref().map_or(0, |store| store.epoch())
    }

    /// Lets another process of this node use the store too, or no longer; false if it still does.
    pub(crate) fn share_store(&self, is_shared: bool) -> bool {
        self.store.as_ref().is_none_or(|store| store.share(is_shared))
    }

    /// Leaves the store to the next process of this node, which uses it too.
    pub(crate) fn leave_store(&self) {
        if let Some(store) = &self.store {
            store.leave();
        }
    }

    /// Takes over what other nodes had committed before the call, and returns the revision of that; none while the store
    /// cannot be read.
    pub(crate) async fn catch_up(&self) -> Option<Revision> {
        let nothing = |_: &Entities| Ok::<_, Infallible>(Vec::new());
        let confirmed = self.write(nothing).await.ok()?;
        self.is_reachable().then_some(confirmed.revision)
    }

    /// The revision that every worker serves.
    pub(crate) fn active(&self) -> Revision {
        self.state.active().revision
    }

    /// The configuration that every worker serves.
    pub(crate) fn configuration(&self) -> Arc<ActiveConfiguration> {
        self.state.active()
    }

    /// Whether entities can be written one by one.
    pub(crate) fn is_stored(&self) -> bool {
        self.writes.is_some()
    }

    /// Whether entities derive from something else that is stored, as from APISIX's objects in etcd.
    pub(crate) fn is_translated(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.is_translated())
    }

    /// What is stored and cannot be used.
    pub(crate) fn unusable_objects(&self) -> Vec<UnusableObject> {
        self.store.as_ref().map(|store| store.unusable()).unwrap_or_default()
    }

    /// Whether the last operation of the store succeeded.
    pub(crate) fn is_reachable(&self) -> bool {
        self.state.is_reachable()
    }

    /// Why the newest revision could not be made active, if so.
    pub(crate) fn apply_error(&self) -> Option<ApplyError> {
        self.state.apply_error()
    }

    /// Notifies of each commit.
    pub(crate) fn commits(&self) -> watch::Receiver<Revision> {
        self.state.commits()
    }

    /// What was committed after a revision; none if it is too old for that to be known.
    pub(crate) fn changes_since(&self, revision: Revision) -> Option<Vec<Change>> {
        self.state.changes_since(revision)
    }

    /// Returns once this revision is active, or could not be made so.
    pub(crate) async fn wait_active(&self, revision: Revision) -> Result<(), ApplyError> {
        self.state.attempted(revision).await
    }

    /// Writes. `decide` returns the changes, or why there are none, from the entities as they are when it is the
    /// write's turn; it is called again if another node commits at the same time.
    pub(crate) async fn write<E: Send + 'static>(
        &self,
        decide: impl FnMut(&Entities) -> Result<Vec<Op>, E> + Send + 'static,
    ) -> Result<CommittedWrite, WriteError<E>> {
        let Some(writes) = &self.writes else { return Err(WriteError::ReadOnly) };
        let (waiting, answer) = QueuedWrite::new(decide);
        let ended = |what: &str| WriteError::Unavailable(format!("{what} ended early; this is a defect"));
        writes.send(Box::new(waiting)).await.map_err(|_| ended("the task that writes"))?;
        answer.await.unwrap_or_else(|_| Err(ended("the write")))
    }

    /// Replaces a configuration that is declared as a whole, or returns all errors of its compilation.
    pub(crate) async fn declare(
        &self,
        document: Document,
        hash: String,
    ) -> Result<Revision, Vec<CompileError>> {
        let _turn = self.turn.lock().await;
        let work = publication(self.plane.clone(), Document::clone, move || dated(document));
        let published = spawn_low_priority(THREAD, work).await.map_err(|error| vec![ended(&error)])??;
        Ok(self.activate(published, hash))
    }

    /// Makes active what a control plane sends, or returns all errors of its compilation. What was active stays so if it
    /// fails, and the errors are in the status.
    pub(crate) async fn push(&self, update: Update, hash: String) -> Result<Revision, Vec<CompileError>> {
        let _turn = self.turn.lock().await;
        let active = self.configuration();
        let updated = move || {
            dated(match update {
                Update::Whole(document) => *document,
                Update::Changes(changes) => {
                    let mut document = active.document.clone();
                    changes.iter().for_each(|change| document.apply(change));
                    document
                }
            })
        };
        let work = publication(self.plane.clone(), shown_by_data_planes, updated);
        let published = match self.in_background(work).await {
            Ok(published) => published,
            Err(error) => Err(vec![ended(&error)]),
        };
        let published = published.inspect_err(|errors| {
            let reasons: Vec<_> = errors.iter().take(MAX_REPORTED_ERRORS).map(ToString::to_string).collect();
            self.state.record_failure(Revision(self.revision().0 + 1), reasons.join("; "));
        })?;
        Ok(self.activate(published, hash))
    }

    /// Runs work that recurs with each change on a thread of the idle class.
    async fn in_background<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let background = self.background.get_or_try_init(async || Background::start(THREAD)).await?;
        background.run(work).await
    }

    fn activate(&self, (entities, document): Published, hash: String) -> Revision {
        let revision = Revision(self.revision().0 + 1);
        self.state.replace(revision, entities);
        self.state.activate(ActiveConfiguration { revision, hash, document });
        revision
    }

    /// Compiles the configuration anew with the secrets that vaults have now.
    pub(crate) async fn refresh(&self) {
        if self.is_stored() {
            return self.state.announce();
        }
        let _turn = self.turn.lock().await;
        let active = self.configuration();
        let work = publication(self.plane.clone(), |_| Document::default(), move || active.document.clone());
        let published = spawn_low_priority(THREAD, work).await;
        let errors = match published {
            Ok(Ok(_)) => return,
            Ok(Err(errors)) => errors,
            Err(error) => vec![ended(&error)],
        };
        errors.iter().for_each(|error| tracing::error!("{error}"));
        tracing::error!(
            "the secrets that vaults have now are not used: the configuration cannot be compiled"
        );
    }
}

/// If the writer panics, nothing is written or followed any more, which the status shows as a store that cannot be reached. What is
/// active is served on, so that the process does not end.
async fn notice_panic(writing: JoinHandle<()>, state: Arc<RegistryState>) {
    if let Err(error) = writing.await
        && error.is_panic()
    {
        state.set_reachable(false);
        tracing::error!(
            "the task that writes to the database panicked; this is a defect. Writes are refused, and those of other nodes are \
             not seen: restart the node. The active configuration is still served"
        );
    }
}

/// The entities that can be read of a configuration, and the configuration, which every worker serves.
type Published = (Entities, Document);

/// The work of compiling a configuration and making workers serve it. `shown`: the entities that can be read.
fn publication(
    plane: Arc<dyn DataPlane>,
    shown: fn(&Document) -> Document,
    document: impl FnOnce() -> Document,
) -> impl FnOnce() -> Result<Published, Vec<CompileError>> {
    move || {
        let document = document();
        plane.publish(&document)?;
        Ok((Entities::of(shown(&document)), document))
    }
}

fn ended(error: &io::Error) -> CompileError {
    CompileError { entity: "configuration".to_owned(), of: None, message: error.to_string() }
}

/// What a data plane shows of its configuration, by its status listener: it has no Admin API. To index the rest takes more
/// memory than the rest itself.
fn shown_by_data_planes(document: &Document) -> Document {
    let (upstreams, targets) = (document.upstreams.clone(), document.targets.clone());
    Document { upstreams, targets, ..Document::default() }
}

/// Entities with a `ttl` and without a time of creation count as created now.
fn dated(mut document: Document) -> Document {
    document.custom.replace(|entity| {
        let lasts = matches!(entity.field_value(entity.kind().schema().ttl?), FieldValue::Integer(_));
        let is_dated = !matches!(entity.field_value("created_at"), FieldValue::Unset);
        if lasts && !is_dated { entity.with("created_at", state::now().into()) } else { None }
    });
    document
}
