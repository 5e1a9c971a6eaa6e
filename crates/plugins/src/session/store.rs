//! Sessions whose data is in rows, which all nodes of a database share. A row's id is a hash of the session's, and its data is
//! sealed: who reads the database can use no session.

use super::content::{Entry, Session, decode_entries, encode_entries};
use super::seal::Sealer;
use crate::shared::row_cache::RowCache;
use aws_lc_rs::error::Unspecified;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use weir_plugin::{Background, BuildContext, Row, RowError, RowKey, Rows, Secret, Uuid};

/// The kind of the rows.
const SESSIONS: &str = "sessions";

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
    cache: Arc<RowCache<Vec<Entry>>>,
    background: Arc<Background>,
    sealer: Sealer,
    metadata: Metadata,
}

impl Store {
    pub(super) fn new(secret: &Secret, metadata: Metadata, build: &BuildContext<'_>) -> Self {
        Self {
            rows: build.rows(),
            cache: build.retained.get(),
            background: build.background(),
            sealer: Sealer::new(secret, "row"),
            metadata,
        }
    }

    /// The entries of a session; none if there is no such session, or the database does not answer.
    pub(super) async fn entries(&self, session: &Session) -> Option<Vec<Entry>> {
        let id = row_id(session);
        if let Some(known) = self.cache.get(id) {
            return known.map(|entries| entries.to_vec());
        }
        match self.rows.store().find(SESSIONS, RowKey::Id(id)).await {
            Ok(row) => {
                let entries = row.and_then(|row| self.opened(&row, session));
                self.cache.remember(id, entries.clone().map(Arc::new));
                entries
            }
            Err(error) => {
                tracing::error!(
                    "session: a session cannot be read, so that its client has to log in: {error}"
                );
                None
            }
        }
    }

    fn opened(&self, row: &Row, session: &Session) -> Option<Vec<Entry>> {
        decode_entries(&self.sealer.open(row.body["data"].as_str()?.as_bytes(), &session.id)?)
    }

    /// A session's row, which ends at this second.
    pub(super) fn row(&self, session: &Session, expires: u64) -> Result<Row, Unspecified> {
        let data = self.sealer.seal(&encode_entries(&session.entries), &session.id)?;
        let mut body = json!({ "data": data });
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
        self.cache.remember(row_id(session), Some(Arc::new(session.entries.clone())));
    }

    /// The change after which a session that has a new id ends at this second. One whose entries were not read ends now.
    pub(super) fn outdate(&self, old: &Session, end: u64) -> Result<RowChange, Unspecified> {
        Ok(if old.entries.is_empty() { self.delete(old) } else { RowChange::Update(self.row(old, end)?) })
    }

    /// The change that ends a session; this node no longer knows it.
    pub(super) fn delete(&self, session: &Session) -> RowChange {
        let id = row_id(session);
        self.cache.remember(id, None);
        RowChange::Delete(id)
    }

    /// Makes changes, one after the other.
    pub(super) async fn apply(&self, changes: Vec<RowChange>) -> Result<(), RowError> {
        apply(&self.rows, changes).await
    }

    /// The same after the client has its response.
    pub(super) fn apply_later(&self, changes: Vec<RowChange>) {
        let rows = self.rows.clone();
        self.background.spawn(async move {
            if let Err(error) = apply(&rows, changes).await {
                tracing::error!(
                    "session: a session cannot be stored, so that its client has to log in again: {error}"
                );
            }
        });
    }
}

async fn apply(rows: &Rows, changes: Vec<RowChange>) -> Result<(), RowError> {
    for change in changes {
        match change {
            RowChange::Insert(row) => rows.store().insert(SESSIONS, row).await?,
            RowChange::Update(row) => rows.store().update(SESSIONS, row).await?,
            RowChange::Delete(id) => rows.store().delete(SESSIONS, id).await?,
        };
    }
    Ok(())
}

fn row_id(session: &Session) -> Uuid {
    let hash = Sha256::digest(session.id);
    Uuid::from_slice(&hash[..16]).unwrap_or_default()
}
