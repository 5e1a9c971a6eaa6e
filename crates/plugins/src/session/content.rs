//! What a session holds, and for how long it is valid.

use super::usage::Usage;
use serde::{Deserialize, Serialize};
use weir_plugin::Uuid;

/// A session as a cookie has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Session {
    /// Random, and new each time the session is saved.
    pub(crate) id: [u8; 32],
    /// When it began, in seconds since 1970.
    pub(crate) created: u64,
    /// When it was saved.
    pub(crate) saved: u64,
    /// When it was used; this is updated once a minute at most, in a cookie of its own.
    pub(crate) used: u64,
    /// Who is logged in, by audience. Empty in a cookie where rows hold it.
    pub(crate) entries: Vec<Entry>,
    pub(crate) history: History,
}

/// Which sessions are the same under another id, by their rows. A logout ends them all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// The one that it has replaced.
    pub(crate) predecessor: Option<Uuid>,
    /// The one that has replaced it: until `stale_ttl` is over it is valid yet, for requests that were on their way, but gets
    /// no other id.
    pub(crate) successor: Option<Uuid>,
}

/// Who is logged in at an audience.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) audience: String,
    /// The consumer's name.
    pub(crate) subject: String,
    pub(crate) consumer: Uuid,
    /// The credential's id.
    pub(crate) credential: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) groups: Option<Vec<String>>,
}

/// After how many seconds a session ends; 0 for never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timeouts {
    /// Without a request.
    pub(crate) idling: u64,
    /// Without being saved.
    pub(crate) rolling: u64,
    /// In any case.
    pub(crate) absolute: u64,
}

/// The longest time between two updates of when a session was used.
const MAX_TOUCH_INTERVAL: u64 = 60;

/// The bytes of a session before its entries.
const HEAD_LEN: usize = 32 + 3 * 8;

impl Session {
    pub(crate) fn new(now: u64, entries: Vec<Entry>) -> Self {
        Self { created: now, entries, ..Self::default() }
    }

    /// Whether any client has it.
    pub(crate) fn is_saved(&self) -> bool {
        self.saved > 0
    }

    /// The session with what its cookie of uses says.
    pub(crate) fn used_at(self, usage: Usage) -> Self {
        Self { saved: self.saved.max(usage.saved), used: self.used.max(usage.used), ..self }
    }

    pub(crate) fn entry(&self, audience: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.audience == audience)
    }

    /// Its entries for all other audiences.
    pub(crate) fn others(&self, audience: &str) -> Vec<Entry> {
        self.entries.iter().filter(|entry| entry.audience != audience).cloned().collect()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(&self.id);
        for time in [self.created, self.saved, self.used] {
            bytes.extend_from_slice(&time.to_be_bytes());
        }
        bytes.extend(encode_entries(&self.entries));
        bytes
    }

    /// None if the bytes are no session.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, entries) = bytes.split_at_checked(HEAD_LEN)?;
        let (id, times) = head.split_first_chunk()?;
        let (times, _) = times.as_chunks();
        let [created, saved, used] = *times else { return None };
        let [created, saved, used] = [created, saved, used].map(u64::from_be_bytes);
        let entries = decode_entries(entries)?;
        Some(Self { id: *id, created, saved, used, entries, history: History::default() })
    }
}

pub(crate) fn encode_entries(entries: &[Entry]) -> Vec<u8> {
    // Texts and ids are always JSON.
    serde_json::to_vec(entries).unwrap_or_default()
}

pub(crate) fn decode_entries(bytes: &[u8]) -> Option<Vec<Entry>> {
    serde_json::from_slice(bytes).ok()
}

impl Timeouts {
    /// What is left of each timeout that there is: idling, rolling, absolute. None if the session has ended.
    pub(crate) fn left(self, session: &Session, now: u64) -> Option<[Option<u64>; 3]> {
        let timeouts = [self.idling, self.rolling, self.absolute];
        let mut left = [None; 3];
        for (index, since) in [session.used, session.saved, session.created].into_iter().enumerate() {
            if timeouts[index] > 0 {
                left[index] = Some(timeouts[index].checked_sub(now.saturating_sub(since))?);
            }
        }
        Some(left)
    }

    /// Whether a session gets a new id: three quarters of the time are over.
    pub(crate) fn is_rolling_due(self, session: &Session, now: u64) -> bool {
        self.rolling > 0 && now.saturating_sub(session.saved) > self.rolling - self.rolling.div_ceil(4)
    }

    /// Whether the cookie is to say when the session was used.
    pub(crate) fn is_touch_due(self, session: &Session, now: u64) -> bool {
        let interval = MAX_TOUCH_INTERVAL.min(self.idling / 4);
        self.idling > 0 && now.saturating_sub(session.used) > interval
    }
}
