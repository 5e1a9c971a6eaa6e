//! What a fleet shares: the configuration, its versions, and what a data plane does with it.
use crate::{Refusal, Update};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::watch;
use weir_model::{Change, Document};

/// A version of the configuration that a control plane serves.
#[derive(Debug, Clone)]
pub struct Version {
    /// Counts commits.
    pub revision: u64,
    /// Everything, as of this revision.
    pub document: Arc<Document>,
}

/// Where a control plane gets its configuration from.
pub trait Source: Send + Sync + 'static {
    /// The newest committed version. Takes long where there are many entities.
    fn current(&self) -> Version;
    /// The history that revisions count in: the same on all control planes of one store.
    fn epoch(&self) -> u64;
    /// Returns once everything is known that was committed before the call, and the revision of that. Waits for as long as
    /// the store cannot be read.
    fn caught_up(&self) -> Pin<Box<dyn Future<Output = u64> + Send + '_>>;
    /// What was committed after a revision; none if it is too old for that to be known.
    fn changes_since(&self, revision: u64) -> Option<Vec<Change>>;
    /// The newest committed revision, and a notice of each further one.
    fn watch(&self) -> watch::Receiver<u64>;
}

/// What a data plane does with what it gets.
pub trait Apply: Send + Sync + 'static {
    /// Makes an update active, under this hash; returns once every worker serves it, or with everything that is wrong.
    /// If it fails, what was active stays so.
    fn apply(&self, update: Update, hash: String) -> impl Future<Output = Result<(), Vec<Refusal>>> + Send;

    /// What is active, where that is kept.
    fn active(&self) -> Option<Document> {
        None
    }
}
