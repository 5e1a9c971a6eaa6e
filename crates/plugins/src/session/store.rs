//! Sessions whose data is in rows, which all nodes of a database share. A row's id is a hash of the session's, and its data is
//! sealed: who reads the database can use no session.

use super::content::{Entry, History, Session, decode_entries, encode_entries};
use super::seal::Sealer;
use crate::shared::row_cache::{MAX_KNOWN, RowCache};
use aws_lc_rs::error::Unspecified;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weir_plugin::{Background, BuildContext, Row, RowError, RowKey, Rows, Secret, Uuid, unix_time};

/// The kind of the rows.
const SESSIONS: &str = "sessions";

/// How many new sessions wait for the database at a time. Further clients stay without one, so that others do not wait.
const MAX_PENDING: usize = 256;

/// What a row has of a session.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) entries: Vec<Entry>,
    pub(super) history: History,
}

/// What is to be done with a row.
pub(super) enum RowChange {
    Insert(Row),
    Update(Row),
    Delete(Uuid),
}

/// What a row says beside the sealed data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Metadata {
    /// Whether it says whose session it is.
    pub(super) is_stored: bool,
    /// Whether it has a hash of the subject.
    pub(super) hashes_subject: bool,
}

/// Where the sessions of an instance are.
pub(super) struct Store {
    rows: Arc<Rows>,
    cache: Arc<RowCache<Stored>>,
    places: Arc<Semaphore>,
    background: Arc<Background>,
    sealer: Sealer,
    metadata: Metadata,
}

impl Store {
    pub(super) fn new(secret: &Secret, metadata: Metadata, build: &BuildContext<'_>) -> Self {
        Self {
            rows: build.rows("sessions of session"),
            cache: build.retained.get(),
            places: Arc::new(Semaphore::new(MAX_PENDING)),
            background: build.background(),
            sealer: Sealer::new(secret, "row"),
            metadata,
        }
    }

    /// What there is of a session; none if there is no such session, or the database does not answer.
    pub(super) async fn find(&self, session: &Session) -> Option<Arc<Stored>> {
        let id = row_id(session);
        if let Some(known) = self.cache.get(id) {
            return known;
        }
        match self.rows.store().find(SESSIONS, RowKey::Id(id)).await {
            Ok(row) => {
                let left = row.as_ref().map_or(MAX_KNOWN, |row| left(row.expires));
                let stored = row.and_then(|row| self.opened(&row, session)).map(Arc::new);
                self.cache.remember_for(left, id, stored.clone());
                stored
            }
            Err(error) => {
                tracing::error!(
                    "session: a session cannot be read, so that its client has to log in: {error}"
                );
                None
            }
        }
    }

    fn opened(&self, row: &Row, session: &Session) -> Option<Stored> {
        let entries = decode_entries(&self.sealer.open(row.body["data"].as_str()?.as_bytes(), &session.id)?)?;
        let id = |name: &str| row.body[name].as_str().and_then(|id| id.parse().ok());
        Some(Stored {
            entries,
            history: History { predecessor: id("predecessor"), successor: id("successor") },
        })
    }

    /// A session's row, which ends at this second.
    pub(super) fn row(&self, session: &Session, expires: u64) -> Result<Row, Unspecified> {
        let data = self.sealer.seal(&encode_entries(&session.entries), &session.id)?;
        let mut body = json!({ "data": data });
        let History { predecessor, successor } = session.history;
        for (name, id) in [("predecessor", predecessor), ("successor", successor)] {
            if let Some(id) = id {
                body[name] = id.to_string().into();
            }
        }
        if self.metadata.is_stored {
            let of_entry = |entry: &Entry| json!({ "audience": entry.audience, "subject": self.subject(&entry.subject) });
            body["metadata"] = session.entries.iter().map(of_entry).collect();
        }
        Ok(Row { id: row_id(session), first: None, second: None, body, expires: Some(expires) })
    }

    fn subject(&self, subject: &str) -> String {
        match self.metadata.hashes_subject {
            true => URL_SAFE_NO_PAD.encode(Sha256::digest(subject)),
            false => subject.to_owned(),
        }
    }

    /// Has this node know a session before it can be read.
    pub(super) fn announce(&self, session: &Session) {
        let stored = Stored { entries: session.entries.clone(), history: session.history };
        self.cache.remember(row_id(session), Some(Arc::new(stored)));
    }

    /// The change after which a session that another has replaced ends at this second. One whose entries were not read ends now.
    pub(super) fn outdate(
        &self,
        old: &Session,
        new: &Session,
        (now, end): (u64, u64),
    ) -> Result<RowChange, Unspecified> {
        if old.entries.is_empty() || end <= now {
            return Ok(self.end(row_id(old)));
        }
        let history = History { successor: Some(row_id(new)), ..old.history };
        let old = Session { history, ..old.clone() };
        let stored = Stored { entries: old.entries.clone(), history };
        self.cache.remember_for(Duration::from_secs(end - now), row_id(&old), Some(Arc::new(stored)));
        Ok(RowChange::Update(self.row(&old, end)?))
    }

    /// The changes that end a session, under each of its ids; this node no longer knows it.
    pub(super) fn delete(&self, session: &Session) -> Vec<RowChange> {
        let History { predecessor, successor } = session.history;
        let ids = [Some(row_id(session)), predecessor, successor];
        ids.into_iter().flatten().map(|id| self.end(id)).collect()
    }

    fn end(&self, id: Uuid) -> RowChange {
        self.cache.remember(id, None);
        RowChange::Delete(id)
    }

    /// A place for a new session among those that wait for the database, if there is one.
    pub(super) fn reserve(&self) -> Option<OwnedSemaphorePermit> {
        self.places.clone().try_acquire_owned().ok()
    }

    /// Makes changes, one after the other.
    pub(super) async fn apply(&self, changes: Vec<RowChange>) -> Result<(), RowError> {
        apply((&self.rows, &self.cache), changes).await
    }

    /// The same after the client has its response.
    pub(super) fn apply_later(&self, changes: Vec<RowChange>, place: OwnedSemaphorePermit) {
        let (rows, cache) = (self.rows.clone(), self.cache.clone());
        self.background.spawn(async move {
            let _place = place;
            if let Err(error) = apply((&rows, &cache), changes).await {
                tracing::error!(
                    "session: a session cannot be stored, so that its client has to log in again: {error}"
                );
            }
        });
    }
}

async fn apply((rows, cache): (&Rows, &RowCache<Stored>), changes: Vec<RowChange>) -> Result<(), RowError> {
    for change in changes {
        match change {
            RowChange::Insert(row) => rows.store().insert(SESSIONS, row).await?,
            RowChange::Update(row) => rows.store().update(SESSIONS, row).await?,
            RowChange::Delete(id) => {
                let deleted = rows.store().delete(SESSIONS, id).await?;
                // Another request may have read it meanwhile.
                cache.remember(id, None);
                deleted
            }
        };
    }
    Ok(())
}

/// How long a row is valid yet.
fn left(expires: Option<u64>) -> Duration {
    expires.map_or(MAX_KNOWN, |expires| Duration::from_secs(expires.saturating_sub(unix_time())))
}

pub(super) fn row_id(session: &Session) -> Uuid {
    let hash = Sha256::digest(session.id);
    Uuid::from_slice(&hash[..16]).unwrap_or_default()
}
