//! Data planes that follow increments. Each has a connection of each of its workers; any of these asks, and one is called.
use super::super::fleet::Link;
use crate::wire::v2::SyncVersion;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::Notify;
use uuid::Uuid;

/// The data planes that are connected, by their ids.
#[derive(Debug, Default)]
pub(super) struct Peers(Mutex<HashMap<Uuid, Weak<Peer>>>);

/// A data plane, until its last connection ends.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) link: Link,
    state: Mutex<State>,
    /// Wakes another connection, if the one that was called has ended.
    pub(super) unannounced: Notify,
}

/// What is known of the versions of a data plane.
#[derive(Debug, Default)]
struct State {
    /// The hash that it had when it was connected last.
    before: String,
    /// The revision that it was called about last.
    announced: u64,
    /// The revision that it was sent last.
    offered: Option<u64>,
    /// Whether the numbers that it names are revisions of this control plane. Those of another one look alike.
    is_ours: bool,
}

impl Peers {
    /// The data plane of this id, which is connected if it was not yet.
    pub(super) fn join(&self, id: Uuid, connect: impl FnOnce() -> Link) -> Arc<Peer> {
        let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = peers.get(&id).and_then(Weak::upgrade) {
            return peer;
        }
        peers.retain(|_, peer| peer.strong_count() > 0);
        let link = connect();
        let state = State { before: link.hash(), ..State::default() };
        let peer = Arc::new(Peer { link, state: Mutex::new(state), unannounced: Notify::new() });
        peers.insert(id, Arc::downgrade(&peer));
        peer
    }
}

impl Peer {
    /// The revision that a data plane has which names this version; none if it is a version of another control plane, or of
    /// this one before it was restarted.
    pub(super) fn held(&self, version: &SyncVersion) -> Option<u64> {
        let number = version.number().filter(|number| *number > 0)?;
        let mut state = self.state();
        state.is_ours |= state.offered == Some(number) || state.before == version.hash();
        state.is_ours.then_some(number)
    }

    /// The data plane is sent this revision.
    pub(super) fn offer(&self, revision: u64) {
        self.state().offered = Some(revision);
    }

    /// Whether the data plane is to be called about this revision, which it is once.
    pub(super) fn announces(&self, revision: u64) -> bool {
        let mut state = self.state();
        let is_new = revision > state.announced;
        state.announced = state.announced.max(revision);
        is_new
    }

    /// The connection that was called has ended without an answer.
    pub(super) fn retract(&self) {
        self.state().announced = 0;
        self.unannounced.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
