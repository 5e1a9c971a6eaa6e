//! What is configured now, who may change it, and putting it in force.
//!
//! ```text
//! write ─► queue ─► writer: decide, check, commit ─► entities ─► publisher: compile, publish ─► in force
//! ```
//! Readers see what is committed, and never what is about to be. A configuration that is declared as a whole has neither
//! writer nor publisher: it is compiled first, and then replaced at once.
mod draft;
mod publisher;
mod state;
#[cfg(test)]
mod tests;
mod write;
mod writer;

pub(crate) use state::{InForce, NotInForce};

use crate::low_priority::aside;
use crate::store::{Revision, Store};
use draft::Draft;
use publisher::Publisher;
use state::Known;
use std::io;
use std::sync::{Arc, RwLockReadGuard};
use tokio::sync::{Mutex, mpsc};
use weir_model::entity::{Entity, EntityKind};
use weir_model::{Change, ConstraintError, Document, Entities, PluginSchema, Uuid};
use weir_proxy::CompileError;
use write::{Job, Waiting};
use writer::Writer;

/// So many writes may wait before those who write must wait too.
const QUEUE: usize = 1024;

/// What is to be done to one entity.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// Create or replace it.
    Put(Entity),
    /// Delete it, and those that are nothing without it.
    Delete(EntityKind, Uuid),
}

/// A write that is committed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Written {
    /// As of this revision.
    pub(crate) revision: Revision,
    /// What it changed, with what went along with what was deleted.
    pub(crate) changes: Vec<Change>,
}

impl Written {
    /// What it put.
    pub(crate) fn entities(&self) -> impl Iterator<Item = &Entity> {
        self.changes.iter().filter_map(|change| change.entity.as_ref())
    }
}

/// Why a write changed nothing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum WriteError<E> {
    /// It was decided against.
    Decided(E),
    /// It breaks a rule across entities.
    Refused(ConstraintError),
    /// An entity cannot be compiled.
    Uncompilable(CompileError),
    /// It cannot be stored now.
    Unavailable(String),
    /// The configuration is declared, and can only be replaced as a whole.
    ReadOnly,
}

/// What serves the configuration.
pub(crate) trait DataPlane: Send + Sync + 'static {
    /// Whether an entity can be compiled among these others.
    fn check(&self, entity: &Entity, others: &Entities) -> Result<(), CompileError>;

    /// Compiles a configuration and puts it in force; returns when every worker serves it, or with everything that
    /// cannot be compiled. Takes long.
    fn publish(&self, document: &Document) -> Result<(), Vec<CompileError>>;
}

/// The configuration of a node.
pub(crate) struct Registry {
    known: Arc<Known>,
    plane: Arc<dyn DataPlane>,
    /// None where the configuration is declared.
    writes: Option<mpsc::Sender<Box<dyn Job>>>,
    /// Whose turn it is to replace the configuration.
    turn: Mutex<()>,
}

impl Registry {
    /// For a configuration that is declared as a whole, and in force.
    pub(crate) fn declared(plane: Arc<dyn DataPlane>, document: Document, hash: String) -> Registry {
        let document = dated(document);
        let (revision, entities) = (Revision(1), Entities::of(document.clone()));
        let known = Arc::new(Known::new(entities, InForce { revision, hash, document }));
        Registry { known, plane, writes: None, turn: Mutex::default() }
    }

    /// For a configuration that a store keeps, and that is in force as of this revision. Begins to follow the store.
    pub(crate) fn stored(
        plane: Arc<dyn DataPlane>,
        store: Arc<dyn Store>,
        revision: Revision,
        entities: Entities,
        plugins: &[PluginSchema],
    ) -> io::Result<Registry> {
        let in_force = InForce { revision, hash: state::hash(revision), document: entities.document() };
        let draft = Draft::of(entities.clone());
        let known = Arc::new(Known::new(entities, in_force));
        let (writes, queue) = mpsc::channel(QUEUE);
        tokio::spawn(Publisher::start(known.clone(), plane.clone(), plugins)?.run());
        tokio::spawn(Writer::new(known.clone(), plane.clone(), store, draft).run(queue));
        Ok(Registry { known, plane, writes: Some(writes), turn: Mutex::default() })
    }

    /// The entities, as committed. The lock is for moments: never across an await.
    pub(crate) fn entities(&self) -> RwLockReadGuard<'_, Entities> {
        self.known.entities()
    }

    /// The newest that is committed, as far as this node knows.
    pub(crate) fn revision(&self) -> Revision {
        self.known.revision()
    }

    /// What every worker serves.
    pub(crate) fn in_force(&self) -> Revision {
        self.known.in_force().revision
    }

    /// The configuration that every worker serves.
    pub(crate) fn configuration(&self) -> Arc<InForce> {
        self.known.in_force()
    }

    /// Whether entities can be written one by one.
    pub(crate) fn is_stored(&self) -> bool {
        self.writes.is_some()
    }

    /// Whether the store did what it was asked to the last time.
    pub(crate) fn is_reachable(&self) -> bool {
        self.known.is_reachable()
    }

    /// Why what is committed is not in force although it was tried.
    pub(crate) fn failure(&self) -> Option<NotInForce> {
        self.known.failure()
    }

    /// Returns once this revision is in force, or it turned out that it cannot be.
    pub(crate) async fn wait_in_force(&self, revision: Revision) -> Result<(), NotInForce> {
        self.known.tried(revision).await
    }

    /// One write. `decide` says what to do or why not, on the entities as they are when the write has its turn; it is
    /// called again if another node commits at the same time.
    pub(crate) async fn write<E: Send + 'static>(
        &self,
        decide: impl FnMut(&Entities) -> Result<Vec<Op>, E> + Send + 'static,
    ) -> Result<Written, WriteError<E>> {
        let Some(writes) = &self.writes else { return Err(WriteError::ReadOnly) };
        let (waiting, answer) = Waiting::new(decide);
        let ended = || WriteError::Unavailable("the write ended early; this is a defect".to_owned());
        writes.send(Box::new(waiting)).await.map_err(|_| ended())?;
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Replaces a configuration that is declared as a whole, or says everything that cannot be compiled.
    pub(crate) async fn declare(
        &self,
        document: Document,
        hash: String,
    ) -> Result<Revision, Vec<CompileError>> {
        let _turn = self.turn.lock().await;
        let document = dated(document);
        let plane = self.plane.clone();
        let work = move || plane.publish(&document).map(|()| (Entities::of(document.clone()), document));
        let ended = |error: io::Error| CompileError {
            entity: "configuration".to_owned(),
            of: None,
            message: error.to_string(),
        };
        let (entities, document) =
            aside("weir-compile", work).await.map_err(|error| vec![ended(error)])??;
        let revision = Revision(self.revision().0 + 1);
        self.known.replace(revision, entities);
        self.known.put_in_force(InForce { revision, hash, document });
        Ok(revision)
    }
}

/// Keys that last for a time, and do not say from when, last from now.
fn dated(mut document: Document) -> Document {
    for credential in &mut document.keyauth_credentials {
        if credential.ttl.is_some() && credential.created_at.is_none() {
            Arc::make_mut(credential).created_at = Some(state::now());
        }
    }
    document
}
