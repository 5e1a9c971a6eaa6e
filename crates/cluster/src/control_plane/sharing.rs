//! The data planes of control planes that share a store: each control plane writes those that are connected to it, and reads
//! those of the others.
use super::fleet::{Fleet, seconds};
use super::member::Entry;
use std::collections::BTreeMap;
use std::time::Duration;
use uuid::Uuid;

/// A data plane as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its id.
    pub id: Uuid,
    /// The id of the control plane that it is connected to, or was connected to last.
    pub control_plane: Uuid,
    /// Whether it is connected.
    pub online: bool,
    /// When it was last heard of, in seconds since 1970.
    pub last_seen: u64,
    /// What else is known of it, as JSON.
    pub facts: String,
    /// Whether it has come from another control plane, whose row this one replaces.
    pub is_new: bool,
}

/// A row, and the number that its control plane wrote it with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamped {
    /// The row.
    pub row: Row,
    /// Larger is newer, among the rows of one control plane.
    pub stamp: u64,
}

impl Fleet {
    /// The id of this control plane.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// For how long data planes that are gone are known.
    pub fn purge_delay(&self) -> Duration {
        self.purge_delay
    }

    /// Returns once other control planes lack something.
    pub async fn unshared(&self) {
        self.unshared.notified().await;
    }

    /// Returns once a write waits for data planes, which may be those of other control planes.
    pub async fn awaited(&self) {
        self.awaited.notified().await;
    }

    /// Takes what other control planes lack of the data planes of this one. What could not be written, [`Fleet::unwritten`]
    /// takes back.
    pub fn take_unshared(&self) -> Vec<Row> {
        let mut taken = Vec::new();
        for entry in self.entries().values_mut().filter(|entry| entry.control_plane == self.id) {
            if std::mem::take(&mut entry.is_unshared) {
                taken.push(entry.clone());
                entry.is_new = false;
            }
        }
        taken.iter().map(row).collect()
    }

    /// Takes back rows that could not be written.
    pub fn unwritten(&self, rows: &[Row]) {
        let mut entries = self.entries();
        for row in rows {
            if let Some(entry) = entries.get_mut(&row.id).filter(|entry| entry.control_plane == self.id) {
                (entry.is_unshared, entry.is_new) = (true, entry.is_new || row.is_new);
            }
        }
    }

    /// Has all data planes of this control plane written again: others took it for gone.
    pub fn share_all(&self) {
        for entry in self.entries().values_mut() {
            entry.is_unshared |= entry.control_plane == self.id;
        }
        self.unshared.notify_one();
    }

    /// Counts the data planes of this control plane as gone, because it stops.
    pub fn leave(&self) {
        let now = seconds();
        for entry in self.entries().values_mut().filter(|entry| entry.control_plane == self.id) {
            entry.set_online(false, now);
        }
    }

    /// Takes over what other control planes have written. `alive`: how many seconds ago each control plane that runs said so.
    pub fn learn(&self, rows: Vec<Row>, alive: &BTreeMap<Uuid, u64>) {
        let mut entries = self.entries();
        for row in rows {
            let Ok(mut entry) = serde_json::from_str::<Entry>(&row.facts) else { continue };
            // What has just come here, the others do not know yet.
            let is_ours = |known: &Entry| {
                known.control_plane == self.id && (known.is_new || row.control_plane == self.id)
            };
            if entries.get(&row.id).is_some_and(is_ours) {
                continue;
            }
            let known = entries.remove(&row.id);
            entry.connection = known.as_ref().map_or(0, |known| known.connection);
            // What the others have written may be older than the connection to this control plane: then that will tell.
            entry.local = known.and_then(|known| known.into_local(self.id));
            (entry.control_plane, entry.last_seen) = (row.control_plane, row.last_seen);
            // What this control plane wrote before it was started again is connected to nothing.
            let is_elsewhere = row.control_plane != self.id && alive.contains_key(&row.control_plane);
            entry.set_online(row.online && is_elsewhere, seconds());
            entries.insert(row.id, entry);
        }
        drop(entries);
        self.notify();
    }

    /// Notes which control planes run: data planes of the others are offline. Those that are gone for long are forgotten.
    pub fn note_alive(&self, alive: &BTreeMap<Uuid, u64>) {
        let now = seconds();
        let mut entries = self.entries();
        for entry in entries.values_mut().filter(|entry| entry.control_plane != self.id && entry.online) {
            match alive.get(&entry.control_plane) {
                Some(ago) => entry.last_seen = entry.last_seen.max(now.saturating_sub(*ago)),
                None => entry.set_online(false, now),
            }
        }
        entries.retain(|_, entry| entry.ttl(now, self.purge_delay) > 0);
        drop(entries);
        self.notify();
    }
}

fn row(entry: &Entry) -> Row {
    Row {
        id: entry.id(),
        control_plane: entry.control_plane,
        online: entry.online,
        last_seen: entry.last_seen,
        // Nothing in it can fail to be written.
        facts: serde_json::to_string(entry).unwrap_or_default(),
        is_new: entry.is_new && entry.online,
    }
}

#[cfg(test)]
mod tests {
    use super::super::coverage::Share;
    use super::super::fleet::Introduction;
    use super::super::link::{Link, Sent};
    use super::super::member::State;
    use super::*;
    use std::sync::Arc;

    fn fleet(id: u128) -> Arc<Fleet> {
        Arc::new(Fleet::new(Uuid::from_u128(id), Duration::from_secs(60)))
    }

    fn connect(fleet: &Arc<Fleet>) -> Link {
        fleet.connect(Introduction {
            id: Uuid::from_u128(9),
            hostname: "dp".to_owned(),
            ip: "127.0.0.1".to_owned(),
            version: "3.9.1".to_owned(),
            certificate_expires: None,
            protocol: "weir".into(),
        })
    }

    fn serves(link: &Link, revision: u64) {
        link.sent(Sent { revision, hash: revision.to_string(), bytes: 1, altered: Vec::new() });
        link.serves(revision, &revision.to_string());
    }

    fn state(fleet: &Fleet) -> (State, Uuid) {
        let member = &fleet.members()[0];
        (member.state, member.control_plane)
    }

    fn alive(ids: &[u128]) -> BTreeMap<Uuid, u64> {
        ids.iter().map(|id| (Uuid::from_u128(*id), 0)).collect()
    }

    #[test]
    fn a_control_plane_counts_the_data_planes_of_another() {
        let (one, other) = (fleet(1), fleet(2));
        let link = connect(&one);
        serves(&link, 5);
        let rows = one.take_unshared();
        assert_eq!((rows.len(), rows[0].is_new, one.take_unshared()), (1, true, Vec::new()));
        other.learn(rows.clone(), &alive(&[1, 2]));
        assert_eq!(state(&other), (State::Connected, one.id()));
        assert!(other.coverage(5).reaches(Share::All) && !other.coverage(6).reaches(Share::All));
        assert!(other.take_unshared().is_empty(), "it is not its own");
        link.seen("5");
        assert!(one.take_unshared().is_empty(), "a ping is not written");
        one.unwritten(&rows);
        assert_eq!(one.take_unshared(), rows, "what was not written is taken again");
        other.note_alive(&alive(&[2]));
        assert_eq!(state(&other).0, State::Offline, "its control plane is gone");
        other.learn(rows, &alive(&[2]));
        assert_eq!(state(&other).0, State::Offline);
    }

    #[test]
    fn a_data_plane_belongs_to_the_control_plane_that_it_came_to_last() {
        let (one, other, both) = (fleet(1), fleet(2), alive(&[1, 2]));
        let old = connect(&one);
        serves(&old, 5);
        other.learn(one.take_unshared(), &both);
        let new = connect(&other);
        // Written before it came, and read after.
        other.learn(vec![row(&one.entries()[&Uuid::from_u128(9)])], &both);
        assert_eq!(state(&other).1, other.id());
        serves(&new, 6);
        one.learn(other.take_unshared(), &both);
        assert_eq!(state(&one), (State::Connected, other.id()));
        old.seen("5");
        drop(old);
        assert_eq!(state(&one), (State::Connected, other.id()), "the old connection says nothing of it");
        assert!(one.take_unshared().is_empty());
    }

    #[test]
    fn a_data_plane_that_has_come_back_is_not_shown_at_a_connection_that_is_dead() {
        let (one, other, both) = (fleet(1), fleet(2), alive(&[1, 2]));
        let dead = connect(&other);
        let back = connect(&one);
        serves(&back, 5);
        one.take_unshared();
        // Both write at once, the other one last.
        one.learn(other.take_unshared(), &both);
        assert_eq!(state(&one).1, other.id());
        serves(&back, 6);
        assert_eq!(
            (state(&one).1, one.take_unshared().len()),
            (other.id(), 0),
            "it has not said a word since"
        );
        back.heard();
        assert_eq!(state(&one), (State::Connected, one.id()));
        assert!(one.coverage(6).reaches(Share::All), "what was known of it meanwhile counts");
        let rows = one.take_unshared();
        assert!(rows[0].is_new, "it replaces the row of the other one");
        other.learn(rows, &both);
        drop(dead);
        assert_eq!((state(&other), other.take_unshared().len()), ((State::Connected, one.id()), 0));
    }
}
