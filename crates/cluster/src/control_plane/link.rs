//! The connection of a data plane, which says what is known of it.
use super::bounds::{self, MAX_MESSAGE_LEN, shortened};
use super::fleet::{Fleet, seconds};
use super::member::Entry;
use crate::Refusal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use uuid::Uuid;

/// A configuration that was sent to a data plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sent {
    pub(super) revision: u64,
    pub(super) hash: String,
    pub(super) bytes: usize,
    /// What was left out or rewritten for this data plane.
    pub(super) altered: Vec<String>,
}

/// The connection of a data plane. Once it is dropped, the data plane is offline.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) fleet: Arc<Fleet>,
    pub(super) id: Uuid,
    /// Names it in the log: its host, its id and its address.
    pub(super) name: String,
    /// Which of its connections this is: a newer one replaces an older one.
    pub(super) connection: u64,
}

impl Link {
    fn update(&self, change: impl FnOnce(&mut Entry, u64)) {
        let mut entries = self.fleet.entries();
        if let Some(entry) = entries.get_mut(&self.id) {
            if let Some(entry) = entry.of_connection(self.connection, self.fleet.id) {
                change(entry, seconds());
            }
            entry.forget_lost_connection();
            if entry.is_unshared {
                self.fleet.unshared.notify_one();
            }
        }
        drop(entries);
        self.fleet.notify();
    }

    /// The data plane has sent something, so this connection is alive. If another control plane has said that the data plane
    /// is there, that is over.
    pub(super) fn heard(&self) {
        let mut entries = self.fleet.entries();
        let Some(entry) = entries.get_mut(&self.id) else { return };
        if entry.reclaim(self.connection) {
            self.fleet.unshared.notify_one();
            drop(entries);
            self.fleet.notify();
        }
    }

    /// Records its labels. Those that Kong would not take are left out, and so are those beyond the limit.
    pub(super) fn introduced(&self, labels: BTreeMap<String, String>) {
        let labels = bounds::labels(labels);
        self.update(|entry, _| entry.labels = labels);
    }

    /// Records whether the data plane can serve the configuration, in Kong's words, and why not.
    pub(super) fn judged(&self, sync_status: &'static str, reason: Option<String>) {
        let reason = reason.map(|reason| shortened(reason, MAX_MESSAGE_LEN));
        self.update(|entry, now| entry.judged(sync_status, reason, now));
    }

    /// The data plane is to serve this.
    pub(super) fn sent(&self, mut sent: Sent) {
        sent.altered.truncate(bounds::MAX_ALTERED);
        self.update(|entry, now| entry.sent(sent, now));
    }

    /// The data plane says what it serves.
    pub(super) fn seen(&self, hash: &str) {
        self.update(|entry, now| entry.seen(hash, now));
    }

    /// The data plane serves this revision.
    pub(super) fn serves(&self, revision: u64, hash: &str) {
        self.update(|entry, now| entry.serves(revision, hash, now));
    }

    /// The data plane refuses a revision, if it is known which, which the log says of each entity, up to the limit.
    pub(super) fn refused(&self, revision: Option<u64>, refusals: Vec<Refusal>) {
        let refusals = bounds::refusals(refusals);
        let log =
            |refusal: &Refusal| tracing::error!("data plane {self} refuses the configuration: {refusal}");
        refusals.iter().for_each(log);
        self.update(|entry, now| entry.refused(revision, refusals, now));
    }

    /// A newer revision has the content that the data plane has refused already.
    pub(super) fn refuses_still(&self, revision: u64) {
        self.update(|entry, _| entry.failed_at(Some(revision)));
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.update(Entry::disconnected);
    }
}
