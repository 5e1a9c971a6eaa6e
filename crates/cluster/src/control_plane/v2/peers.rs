//! Data planes that follow increments. Each has a connection of each of its workers; any of these asks, and one is called.
use super::super::link::Link;
use super::super::payloads::Form;
use crate::sync::Labels;
use crate::sync::identity::Identity;
use crate::wire::v2::SyncVersion;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

/// Of how many data planes that are gone it is kept what they were sent.
const MAX_KNOWN: usize = 10_000;

/// How many revisions that a data plane was sent are kept: its connections may ask at the same time.
const MAX_OFFERS: usize = 8;

/// The data planes that have been connected, by their ids.
#[derive(Debug, Default)]
pub(super) struct Peers(Mutex<HashMap<Uuid, Known>>);

/// A data plane that may be connected.
#[derive(Debug)]
struct Known {
    peer: Weak<Peer>,
    state: Arc<Mutex<State>>,
}

/// A data plane, until its last connection ends.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) link: Link,
    state: Arc<Mutex<State>>,
    /// Wakes another connection, if the one that was called has ended.
    pub(super) unannounced: Notify,
}

/// What is known of the versions of a data plane.
#[derive(Debug, Default)]
struct State {
    /// The revision that it was called about last.
    announced: u64,
    /// What it was sent last, the newest at the end.
    offers: VecDeque<Offer>,
}

/// What a data plane was sent. The number alone tells nothing: that of another control plane looks alike, and the same
/// revision has other entities for other labels, and others in another form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) identity: Identity,
    pub(super) form: Form,
    /// Those that select.
    pub(super) labels: Labels,
}

impl Peers {
    /// The data plane of this id, which is connected if it was not yet.
    pub(super) fn join(&self, id: Uuid, connect: impl FnOnce() -> Link) -> Arc<Peer> {
        let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = peers.get(&id).and_then(|known| known.peer.upgrade()) {
            return peer;
        }
        if peers.len() >= MAX_KNOWN {
            peers.retain(|_, known| known.peer.strong_count() > 0);
        }
        let state = peers.get(&id).map(|known| known.state.clone()).unwrap_or_default();
        let peer = Arc::new(Peer { link: connect(), state: state.clone(), unannounced: Notify::new() });
        peers.insert(id, Known { peer: Arc::downgrade(&peer), state });
        peer
    }
}

impl Peer {
    /// What a data plane of this form and labels has which names this version; none if this process has not sent it that.
    pub(super) fn held(&self, version: &SyncVersion, form: Form, labels: &Labels) -> Option<Identity> {
        let number = version.number().filter(|number| *number > 0)?;
        let state = self.state();
        let named = state.offers.iter().rev().find(|offer| offer.identity.sequence == number)?;
        (named.form == form && named.labels == *labels).then_some(named.identity)
    }

    /// The data plane is sent this.
    pub(super) fn offer(&self, offer: Offer) {
        let mut state = self.state();
        state.offers.retain(|known| known.identity.sequence != offer.identity.sequence);
        if state.offers.len() == MAX_OFFERS {
            state.offers.pop_front();
        }
        state.offers.push_back(offer);
    }

    /// The newest revision, if the data plane is to be called about it, which it is once. It may be lower than the one before.
    pub(super) fn announces(&self, newest: &mut watch::Receiver<u64>) -> Option<u64> {
        let mut state = self.state();
        // Read under the lock, so that no connection goes back to what another one has passed.
        let revision = *newest.borrow_and_update();
        (std::mem::replace(&mut state.announced, revision) != revision).then_some(revision)
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

#[cfg(test)]
mod tests {
    use super::super::super::fleet::{Fleet, Introduction};
    use super::*;
    use crate::sync::identity::Digest;
    use crate::wire::compat::KongVersion;
    use std::time::Duration;

    fn link(fleet: &Arc<Fleet>) -> Link {
        fleet.connect(Introduction {
            id: Uuid::nil(),
            hostname: "dp".to_owned(),
            ip: "127.0.0.1".to_owned(),
            version: "3.9.1".to_owned(),
            certificate_expires: None,
            protocol: "v2".into(),
        })
    }

    fn offer(sequence: u64) -> Offer {
        let identity = Identity { epoch: 1, sequence, digest: Digest::default() };
        let form = Form { version: KongVersion::CURRENT, takes_expressions: false };
        Offer { identity, form, labels: Labels::new() }
    }

    #[test]
    fn a_revision_counts_where_it_was_sent_in_this_form_for_these_labels() {
        let (fleet, peers) = (Arc::new(Fleet::new(Uuid::nil(), Duration::from_secs(60))), Peers::default());
        let peer = peers.join(Uuid::nil(), || link(&fleet));
        let Offer { identity, form, labels } = offer(5);
        let (five, six) = (SyncVersion::Number(5), SyncVersion::Number(6));
        assert_eq!(peer.held(&five, form, &labels), None, "it was sent nothing");
        peer.offer(offer(5));
        drop(peer);
        let back = peers.join(Uuid::nil(), || link(&fleet));
        assert_eq!(back.held(&five, form, &labels), Some(identity), "it was away, and has it still");
        assert_eq!(back.held(&six, form, &labels), None);
        let others = Labels::from([("region".to_owned(), "eu".to_owned())]);
        assert_eq!(back.held(&five, form, &others), None, "its labels were others");
        let expressions = Form { takes_expressions: true, ..form };
        assert_eq!(back.held(&five, expressions, &labels), None, "its flavor was another");
        (6..6 + MAX_OFFERS as u64).for_each(|revision| back.offer(offer(revision)));
        assert_eq!(back.held(&five, form, &labels), None, "it was sent much since");
    }

    #[test]
    fn a_revision_that_goes_down_is_announced() {
        let (fleet, peers) = (Arc::new(Fleet::new(Uuid::nil(), Duration::from_secs(60))), Peers::default());
        let peer = peers.join(Uuid::nil(), || link(&fleet));
        let sender = watch::Sender::new(7);
        let (mut one, mut other) = (sender.subscribe(), sender.subscribe());
        assert_eq!((peer.announces(&mut one), peer.announces(&mut other)), (Some(7), None));
        sender.send_replace(3);
        assert_eq!((peer.announces(&mut one), peer.announces(&mut other)), (Some(3), None));
    }
}
