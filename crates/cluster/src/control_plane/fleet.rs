//! The data planes that a control plane knows: which of them are connected, and what each of them serves.
use super::ADMISSION_RATE;
use super::bounds::{self, MAX_MESSAGE_LEN, MAX_NAME_LEN, shortened};
use super::capabilities::Capabilities;
use super::member::{Entry, Member};
use crate::Refusal;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

/// How many data planes are known, unless more are connected.
const MAX_ENTRIES: usize = 10_000;

/// What a data plane says of itself when it connects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Introduction {
    pub(super) id: Uuid,
    pub(super) hostname: String,
    pub(super) ip: String,
    pub(super) version: String,
    pub(super) certificate_expires: Option<i64>,
    pub(super) protocol: Cow<'static, str>,
}

impl Introduction {
    fn shortened(mut self) -> Introduction {
        self.hostname = shortened(self.hostname, MAX_NAME_LEN);
        self.version = shortened(self.version, MAX_NAME_LEN);
        self
    }
}

/// Forgets the data plane that has been gone for the longest time, if one is.
fn forget_oldest(entries: &mut BTreeMap<Uuid, Entry>) {
    let gone = entries.iter().filter(|(_, entry)| !entry.online);
    if let Some(id) = gone.min_by_key(|(_, entry)| entry.last_seen).map(|(id, _)| *id) {
        entries.remove(&id);
    }
}

/// The data planes that a control plane knows, connected or not: its own, and those of the control planes that share its
/// store.
#[derive(Debug)]
pub struct Fleet {
    /// This control plane.
    pub(super) id: Uuid,
    pub(super) purge_delay: Duration,
    entries: Mutex<BTreeMap<Uuid, Entry>>,
    /// Notifies of what other control planes lack.
    pub(super) unshared: Notify,
    /// Notifies of a write that waits for data planes.
    pub(super) awaited: Notify,
    /// Notifies of what data planes say.
    changed: watch::Sender<()>,
    pub(super) capabilities: Capabilities,
    /// Once the control plane stops: within what time its data planes are to go to another one.
    draining: watch::Sender<Option<Duration>>,
}

/// Which data planes serve a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage {
    /// How many of those that are connected do.
    pub serving: usize,
    /// Those that are connected and do not yet.
    pub behind: Vec<Member>,
    /// How many are not connected.
    pub offline: usize,
}

/// How many data planes are to serve a revision. One at least must.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// All that are known, connected or not.
    All,
    /// So many of a hundred that are connected.
    Percent(usize),
}

impl Coverage {
    /// Whether so many serve the revision.
    pub fn reaches(&self, share: Share) -> bool {
        share.is_reached(self.serving, self.serving + self.behind.len(), self.offline)
    }
}

impl Share {
    fn is_reached(self, serving: usize, connected: usize, offline: usize) -> bool {
        let is_reached = match self {
            Share::All => serving == connected + offline,
            Share::Percent(percent) => serving * 100 >= connected * percent,
        };
        serving > 0 && is_reached
    }
}

impl Fleet {
    /// The fleet of the control plane with this id, without data planes. One that is gone for so long is forgotten.
    pub fn new(id: Uuid, purge_delay: Duration) -> Fleet {
        Fleet {
            id,
            purge_delay,
            entries: Mutex::default(),
            unshared: Notify::new(),
            awaited: Notify::new(),
            changed: watch::Sender::new(()),
            draining: watch::Sender::new(None),
            capabilities: Capabilities::default(),
        }
    }

    /// Sends the data planes to other control planes. Returns once none is connected, but no later than the timeout.
    pub async fn drain(&self, timeout: Duration) {
        let mut changed = self.changed.subscribe();
        let is_own = |entry: &Entry| entry.is_online() && entry.control_plane == self.id;
        let online = || self.entries().values().filter(|entry| is_own(entry)).count();
        let count = u32::try_from(online()).unwrap_or(u32::MAX);
        self.draining.send_replace(Some((Duration::from_secs(1) / ADMISSION_RATE).saturating_mul(count)));
        let gone = async { while online() > 0 && changed.changed().await.is_ok() {} };
        // Those that are left are cut off.
        let _ = tokio::time::timeout(timeout, gone).await;
    }

    /// Returns once the control plane stops: within what time its data planes are to go to another one.
    pub(super) async fn drained(&self) -> Duration {
        let mut draining = self.draining.subscribe();
        let spread = draining.wait_for(Option::is_some).await;
        // The sender is a field of this.
        spread.ok().and_then(|spread| *spread).unwrap_or_default()
    }

    /// All of them, by their ids.
    pub fn members(&self) -> Vec<Member> {
        let now = seconds();
        let mut entries = self.entries();
        entries.retain(|_, entry| entry.ttl(now, self.purge_delay) > 0);
        entries.values().map(|entry| self.shown(entry, now)).collect()
    }

    /// One of them.
    pub fn member(&self, id: Uuid) -> Option<Member> {
        let now = seconds();
        self.entries().get(&id).map(|entry| self.shown(entry, now))
    }

    /// Which of them serve a revision.
    pub fn coverage(&self, revision: u64) -> Coverage {
        let now = seconds();
        let mut coverage = Coverage { serving: 0, behind: Vec::new(), offline: 0 };
        for entry in self.entries().values() {
            match () {
                () if entry.ttl(now, self.purge_delay) == 0 => {}
                () if !entry.is_online() => coverage.offline += 1,
                () if entry.has(revision) => coverage.serving += 1,
                () => coverage.behind.push(self.shown(entry, now)),
            }
        }
        coverage
    }

    /// Whether so many serve a revision. Asked after each word of a data plane, so it copies nothing of them.
    fn is_reached(&self, revision: u64, share: Share) -> bool {
        let now = seconds();
        let (mut serving, mut connected, mut offline) = (0, 0, 0);
        for entry in self.entries().values().filter(|entry| entry.ttl(now, self.purge_delay) > 0) {
            offline += usize::from(!entry.is_online());
            connected += usize::from(entry.is_online());
            serving += usize::from(entry.is_online() && entry.has(revision));
        }
        share.is_reached(serving, connected, offline)
    }

    /// Waits until so many data planes serve a revision, but no longer than the timeout.
    pub async fn wait(&self, revision: u64, share: Share, timeout: Duration) -> Coverage {
        let mut changed = self.changed.subscribe();
        let reached = async {
            while !self.is_reached(revision, share) {
                self.awaited.notify_one();
                if changed.changed().await.is_err() {
                    return;
                }
            }
        };
        // What is reached when the time is over is the answer, too.
        let _ = tokio::time::timeout(timeout, reached).await;
        self.coverage(revision)
    }

    /// Records that a data plane is connected, until the handle is dropped.
    pub(super) fn connect(self: &Arc<Self>, introduction: Introduction) -> Link {
        let (id, introduction) = (introduction.id, introduction.shortened());
        let name = format!("{} ({id}, {})", introduction.hostname, introduction.ip);
        let mut entries = self.entries();
        if entries.len() >= MAX_ENTRIES && !entries.contains_key(&id) {
            forget_oldest(&mut entries);
        }
        let before = entries.remove(&id);
        let entry = Entry::connected(introduction, self.id, before, seconds());
        let connection = entry.connection;
        entries.insert(id, entry);
        self.unshared.notify_one();
        Link { fleet: self.clone(), id, name, connection }
    }

    fn shown(&self, entry: &Entry, now: u64) -> Member {
        let member = entry.member(now, self.purge_delay);
        Member { rpc_capabilities: self.capabilities.of(member.id), ..member }
    }

    /// Notifies those who wait that something has changed.
    pub(super) fn notify(&self) {
        self.changed.send_replace(());
    }

    pub(super) fn entries(&self) -> MutexGuard<'_, BTreeMap<Uuid, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
    fleet: Arc<Fleet>,
    id: Uuid,
    /// Names it in the log: its host, its id and its address.
    name: String,
    /// Which of its connections this is: a newer one replaces an older one.
    connection: u64,
}

impl Link {
    /// The data plane.
    pub(super) fn id(&self) -> Uuid {
        self.id
    }

    fn update(&self, change: impl FnOnce(&mut Entry, u64)) {
        let mut entries = self.fleet.entries();
        if let Some(entry) = entries.get_mut(&self.id).filter(|entry| entry.connection == self.connection) {
            change(entry, seconds());
            if entry.is_unshared {
                self.fleet.unshared.notify_one();
            }
        }
        drop(entries);
        self.fleet.notify();
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

    /// The data plane refuses what was sent, which the log says of each entity, up to the limit.
    pub(super) fn refused(&self, refusals: Vec<Refusal>) {
        let refusals = bounds::refusals(refusals);
        let log =
            |refusal: &Refusal| tracing::error!("data plane {self} refuses the configuration: {refusal}");
        refusals.iter().for_each(log);
        self.update(|entry, now| entry.refused(refusals, now));
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

/// Since 1970.
pub(super) fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::super::bounds::MAX_LABELS;
    use super::*;
    use crate::control_plane::State;

    fn introduction(id: u128) -> Introduction {
        Introduction {
            id: Uuid::from_u128(id),
            hostname: "dp".to_owned(),
            ip: "127.0.0.1".to_owned(),
            version: "3.9.1".to_owned(),
            certificate_expires: Some(7),
            protocol: "v1".into(),
        }
    }

    fn sent(revision: u64, hash: &str) -> Sent {
        Sent { revision, hash: hash.to_owned(), bytes: 10, altered: vec!["services".to_owned()] }
    }

    #[test]
    fn states_follow_what_a_data_plane_says() {
        let fleet = Arc::new(Fleet::new(Uuid::nil(), Duration::from_secs(60)));
        let link = fleet.connect(introduction(1));
        let state = || fleet.members()[0].state;
        assert_eq!(state(), State::Behind);
        link.judged("normal", None);
        link.sent(sent(5, "aa"));
        link.seen("00");
        assert_eq!((state(), fleet.members()[0].revision), (State::Behind, None));
        link.seen("aa");
        assert_eq!((state(), fleet.members()[0].revision), (State::Connected, Some(5)));
        link.sent(sent(6, "bb"));
        let refusal = Refusal { entity: "route a".to_owned(), field: None, message: "no".to_owned() };
        link.refused(vec![refusal]);
        assert_eq!(state(), State::Failed);
        link.seen("bb");
        assert_eq!((state(), fleet.members()[0].last_refusal.len()), (State::Connected, 0));
        drop(link);
        assert_eq!(state(), State::Offline);
    }

    #[test]
    fn coverage_of_a_share_is_of_those_that_are_connected() {
        let fleet = Arc::new(Fleet::new(Uuid::nil(), Duration::from_secs(60)));
        let links: Vec<_> = (1..=4).map(|id| fleet.connect(introduction(id))).collect();
        links.iter().take(2).for_each(|link| link.serves(7, "aa"));
        let coverage = fleet.coverage(7);
        assert_eq!((coverage.serving, coverage.behind.len(), coverage.offline), (2, 2, 0));
        assert!(coverage.reaches(Share::Percent(50)) && !coverage.reaches(Share::Percent(51)));
        drop(links.into_iter().skip(2).collect::<Vec<_>>());
        assert_eq!(fleet.coverage(7).offline, 4, "the handles of all have gone");
        assert!(!fleet.coverage(7).reaches(Share::Percent(1)), "no data plane serves it");
        let back = fleet.connect(introduction(1));
        assert!(!fleet.coverage(7).reaches(Share::Percent(1)), "it has not said what it serves yet");
        back.serves(7, "aa");
        let coverage = fleet.coverage(7);
        assert!(coverage.reaches(Share::Percent(100)) && !coverage.reaches(Share::All));
    }

    #[test]
    fn what_has_another_hash_has_no_known_revision() {
        let fleet = Arc::new(Fleet::new(Uuid::nil(), Duration::from_secs(60)));
        let link = fleet.connect(introduction(1));
        link.sent(sent(5, "aa"));
        link.seen("aa");
        link.seen("bb");
        assert_eq!((fleet.coverage(5).serving, fleet.members()[0].revision), (0, None));
    }

    #[test]
    fn a_newer_connection_replaces_an_older_one() {
        let fleet = Arc::new(Fleet::new(Uuid::nil(), Duration::from_secs(60)));
        let old = fleet.connect(introduction(1));
        let new = fleet.connect(introduction(1));
        new.sent(sent(5, "aa"));
        new.seen("aa");
        old.seen("00");
        drop(old);
        assert_eq!((fleet.members().len(), fleet.members()[0].state), (1, State::Connected));
    }

    #[test]
    fn what_data_planes_say_of_themselves_is_bounded() {
        let fleet = Arc::new(Fleet::new(Uuid::nil(), Duration::from_secs(60)));
        (1..=MAX_ENTRIES as u128).for_each(|id| drop(fleet.connect(introduction(id))));
        let long = Introduction { hostname: "ü".repeat(1000), ..introduction(0) };
        let link = fleet.connect(long);
        let labels = (0..100).map(|number| (format!("key-{number:02}"), "value".to_owned()));
        link.introduced(labels.chain([("a".repeat(64), "b".to_owned())]).collect());
        let members = fleet.members();
        assert_eq!(members.len(), MAX_ENTRIES, "the oldest was forgotten");
        assert_eq!((members[0].state, members[0].hostname.len()), (State::Behind, 254));
        assert_eq!(members[0].labels.as_ref().map(BTreeMap::len), Some(MAX_LABELS));
    }

    #[test]
    fn a_data_plane_that_is_gone_is_forgotten() {
        let fleet = Arc::new(Fleet::new(Uuid::nil(), Duration::ZERO));
        drop(fleet.connect(introduction(1)));
        assert!(fleet.members().is_empty());
    }
}
