//! A data plane as its control plane shows it: Kong's fields, and what Weir knows beyond them.
use super::fleet::Introduction;
use super::link::Sent;
use crate::Refusal;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;
use uuid::Uuid;

/// The hash of a data plane that has no configuration.
pub(crate) const EMPTY_HASH: &str = "00000000000000000000000000000000";

/// Whether a data plane serves the newest configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It does.
    Connected,
    /// It is connected, and serves an older one.
    Behind,
    /// It has refused the newest one, or cannot be sent it.
    Failed,
    /// It is not connected.
    Offline,
}

/// A data plane as `/clustering/data-planes` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Member {
    /// Its id.
    pub id: Uuid,
    /// The name of its host.
    pub hostname: String,
    /// The address that it connects from.
    pub ip: String,
    /// Its version of Kong.
    pub version: String,
    /// The hash of what it serves.
    pub config_hash: String,
    /// Whether it gets configurations, in Kong's words.
    pub sync_status: Cow<'static, str>,
    /// When it was last heard of, in seconds since 1970.
    pub last_seen: u64,
    /// When its state changed last, in seconds since 1970.
    pub updated_at: u64,
    /// For how many seconds it is known.
    pub ttl: u64,
    /// Its labels.
    pub labels: Option<BTreeMap<String, String>>,
    /// Its certificate.
    pub cert_details: Option<CertDetails>,
    /// What it can be called for by Kong's second protocol.
    pub rpc_capabilities: Vec<String>,
    /// Whether it serves the newest configuration.
    pub state: State,
    /// For how long it has been in this state, in seconds.
    pub state_seconds: u64,
    /// The protocol that it speaks.
    pub protocol: Cow<'static, str>,
    /// The id of the control plane that it is connected to, or was connected to last.
    pub control_plane: Uuid,
    /// The revision that it serves, if that is known.
    pub revision: Option<u64>,
    /// How many revisions it lacks, if that is known.
    pub lag: Option<u64>,
    /// What was left out or rewritten for it.
    pub altered: Vec<String>,
    /// Why it is not sent the configuration.
    pub held_back: Option<String>,
    /// What is wrong with the configuration that it refused last, until it applies one.
    pub last_refusal: Vec<Refusal>,
    /// How often it was sent a configuration, by any control plane.
    pub pushes: u64,
    /// How many bytes these had.
    pub pushed_bytes: u64,
    /// How many it refused.
    pub refusals: u64,
}

/// The certificate of a data plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CertDetails {
    /// When it ends, in seconds since 1970.
    pub expiry_timestamp: i64,
}

/// What is known of a data plane.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Counts its connections to this control plane.
    #[serde(skip)]
    pub(super) connection: u64,
    /// Whether other control planes lack something of this.
    #[serde(skip)]
    pub(super) is_unshared: bool,
    /// Whether other control planes lack that the data plane has come here.
    #[serde(skip)]
    pub(super) is_new: bool,
    /// What its connection to this control plane says, while another control plane says that it is connected there. One of the
    /// two connections is dead.
    #[serde(skip)]
    pub(super) local: Option<Box<Entry>>,
    /// The control plane that it is connected to, or was connected to last.
    pub(super) control_plane: Uuid,
    pub(super) labels: BTreeMap<String, String>,
    introduction: Introduction,
    pub(super) online: bool,
    sync_status: Cow<'static, str>,
    held_back: Option<String>,
    /// What it says that it serves.
    pub(super) hash: String,
    /// The revision of that.
    revision: Option<u64>,
    /// What it was sent last.
    newest: Option<Sent>,
    refusals: Vec<Refusal>,
    /// The newest revision that it has refused or cannot be sent.
    failed: Option<u64>,
    pub(super) last_seen: u64,
    updated_at: u64,
    state: State,
    state_since: u64,
    counts: Counts,
}

#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
struct Counts {
    pushes: u64,
    bytes: u64,
    refusals: u64,
}

impl Entry {
    /// A data plane that has just connected, which may have been known before.
    pub(super) fn connected(
        introduction: Introduction,
        control_plane: Uuid,
        before: Option<Entry>,
        now: u64,
    ) -> Entry {
        let mut entry = Entry {
            connection: before.as_ref().map_or(0, |before| before.connection) + 1,
            is_unshared: true,
            is_new: true,
            local: None,
            control_plane,
            introduction,
            labels: BTreeMap::new(),
            online: true,
            sync_status: "unknown".into(),
            held_back: None,
            hash: EMPTY_HASH.to_owned(),
            revision: None,
            newest: None,
            refusals: Vec::new(),
            failed: None,
            last_seen: now,
            updated_at: now,
            state: State::Behind,
            state_since: now,
            counts: before.as_ref().map(|before| before.counts).unwrap_or_default(),
        };
        if let Some(before) = before {
            // Which revision that is now, the connection tells.
            entry.hash = before.hash;
            entry.refusals = before.refusals;
            (entry.state, entry.state_since) = (before.state, before.state_since);
        }
        entry.settle(now);
        entry
    }

    pub(super) fn disconnected(&mut self, now: u64) {
        self.set_online(false, now);
    }

    /// Notes whether it is connected to a control plane that runs.
    pub(super) fn set_online(&mut self, online: bool, now: u64) {
        self.online = online;
        self.settle(now);
    }

    /// What a connection to this control plane says; none if it is not the newest.
    pub(super) fn of_connection(&mut self, connection: u64, control_plane: Uuid) -> Option<&mut Entry> {
        let entry = match self.local {
            Some(ref mut local) => local,
            None => self,
        };
        (entry.connection == connection && entry.control_plane == control_plane).then_some(entry)
    }

    /// What is kept of its connection to this control plane while another one says that it is connected there.
    pub(super) fn into_local(self, control_plane: Uuid) -> Option<Box<Entry>> {
        match self.local {
            None => (self.online && self.control_plane == control_plane).then(|| Box::new(self)),
            local => local,
        }
    }

    /// Keeps nothing of a connection that has ended.
    pub(super) fn forget_lost_connection(&mut self) {
        self.local.take_if(|local| !local.online);
    }

    /// It is connected here after all; false if nothing else was known.
    pub(super) fn reclaim(&mut self, connection: u64) -> bool {
        let Some(local) = self.local.take_if(|local| local.connection == connection) else { return false };
        *self = Entry { is_unshared: true, is_new: true, ..*local };
        true
    }

    pub(super) fn id(&self) -> Uuid {
        self.introduction.id
    }

    pub(super) fn judged(&mut self, sync_status: &'static str, held_back: Option<String>, now: u64) {
        if (&*self.sync_status, &self.held_back) != (sync_status, &held_back) {
            (self.sync_status, self.held_back) = (sync_status.into(), held_back);
            self.is_unshared = true;
        }
        if self.held_back.is_some() {
            self.failed_at(self.newest.as_ref().map(|newest| newest.revision));
        }
        self.settle(now);
    }

    pub(super) fn sent(&mut self, sent: Sent, now: u64) {
        if sent.bytes > 0 {
            self.counts.pushes += 1;
            self.counts.bytes += sent.bytes as u64;
        }
        self.newest = Some(sent);
        self.settle(now);
    }

    pub(super) fn seen(&mut self, hash: &str, now: u64) {
        self.last_seen = now;
        if self.hash != hash {
            (self.hash, self.revision) = (hash.to_owned(), None);
            self.is_unshared = true;
        }
        if let Some(newest) = self.newest.as_ref().filter(|newest| newest.hash == hash) {
            let revision = newest.revision;
            self.serves_revision(revision);
            self.refusals.clear();
        }
        self.settle(now);
    }

    /// It serves this revision.
    pub(super) fn serves(&mut self, revision: u64, hash: &str, now: u64) {
        self.seen(hash, now);
        self.serves_revision(revision);
    }

    fn serves_revision(&mut self, revision: u64) {
        if self.revision < Some(revision) {
            self.revision = Some(revision);
            self.is_unshared = true;
        }
    }

    pub(super) fn refused(&mut self, revision: Option<u64>, refusals: Vec<Refusal>, now: u64) {
        self.failed_at(revision);
        self.counts.refusals += 1;
        self.refusals = refusals;
        self.is_unshared = true;
        self.settle(now);
    }

    /// It has refused a revision or cannot be sent it.
    pub(super) fn failed_at(&mut self, revision: Option<u64>) {
        if self.failed < revision {
            self.failed = revision;
            self.is_unshared = true;
        }
    }

    /// Decides the state, and since when it is so.
    fn settle(&mut self, now: u64) {
        let serves_newest = self.newest.as_ref().is_some_and(|newest| newest.hash == self.hash);
        let state = match () {
            () if !self.online => State::Offline,
            () if self.held_back.is_some() || !self.refusals.is_empty() => State::Failed,
            () if serves_newest => State::Connected,
            () => State::Behind,
        };
        if state != self.state {
            (self.state, self.state_since, self.updated_at) = (state, now, now);
            self.is_unshared = true;
        }
    }

    /// Whether it is connected.
    pub(super) fn is_online(&self) -> bool {
        self.online
    }

    /// Whether it serves this revision or a later one.
    pub(super) fn has(&self, revision: u64) -> bool {
        self.revision.is_some_and(|own| own >= revision)
    }

    /// Whether it will not serve this revision: it has refused it or a later one, or cannot be sent it.
    pub(super) fn has_failed(&self, revision: u64) -> bool {
        self.state == State::Failed && self.failed.is_some_and(|failed| failed >= revision)
    }

    /// For how many seconds it is known, without another word of it.
    pub(super) fn ttl(&self, now: u64, purge_delay: Duration) -> u64 {
        match self.online {
            true => purge_delay.as_secs().max(1),
            false => purge_delay.as_secs().saturating_sub(now.saturating_sub(self.last_seen)),
        }
    }

    pub(super) fn member(&self, now: u64, purge_delay: Duration, newest_revision: u64) -> Member {
        let introduction = &self.introduction;
        let newest = self.newest.as_ref();
        Member {
            id: introduction.id,
            hostname: introduction.hostname.clone(),
            ip: introduction.ip.clone(),
            version: introduction.version.clone(),
            config_hash: self.hash.clone(),
            sync_status: self.sync_status.clone(),
            last_seen: self.last_seen,
            updated_at: self.updated_at,
            ttl: self.ttl(now, purge_delay),
            labels: (!self.labels.is_empty()).then(|| self.labels.clone()),
            cert_details: introduction
                .certificate_expires
                .map(|expiry_timestamp| CertDetails { expiry_timestamp }),
            rpc_capabilities: Vec::new(),
            state: self.state,
            state_seconds: now.saturating_sub(self.state_since),
            protocol: introduction.protocol.clone(),
            control_plane: self.control_plane,
            revision: self.revision,
            lag: self.revision.map(|own| newest_revision.saturating_sub(own)),
            altered: newest.map(|newest| newest.altered.clone()).unwrap_or_default(),
            held_back: self.held_back.clone(),
            last_refusal: self.refusals.clone(),
            pushes: self.counts.pushes,
            pushed_bytes: self.counts.bytes,
            refusals: self.counts.refusals,
        }
    }
}
