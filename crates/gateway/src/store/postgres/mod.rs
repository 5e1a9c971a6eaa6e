//! PostgreSQL: a database that several nodes share.
mod history;
mod host;
mod migration;
mod server;
mod tls;

use super::change_listener;
use super::migrations::version;
use super::replica::Replica;
use super::row::{AFTER, ALL, EPOCH, Row, Selected, TOMBSTONE_REVISIONS, loaded, rows, since};
use super::{Committed, Loaded, Pending, Revision, Since, Store, StoreError};
use history::Begun;
pub(in crate::store) use server::Server;
use sqlx::postgres::PgConnection;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, Notify};
use tokio::task::AbortHandle;
use weir_model::{Change, Entities, PluginSchema};

/// A whole commit: one statement is one transaction, and takes one round trip. A second node waits for the row of
/// `weir_meta`, and then finds another revision than its own, or a version that it cannot use. A history that was noted for
/// another table is that of a restored dump: `history.rs`.
const COMMIT: &str = "\
    WITH bumped AS ( \
        UPDATE weir_meta SET revision = revision + 1 \
        WHERE revision = $1 AND version <= $6 AND migrated_to >= $6 \
            AND (history = '' OR history LIKE '%/' || tableoid::text) RETURNING revision \
    ), \
    written AS ( \
        INSERT INTO weir_entities (kind, id, revision, body) \
        SELECT given.kind, given.id, bumped.revision, given.body \
        FROM bumped, UNNEST($2::text[], $3::text[], $4::text[]) AS given (kind, id, body) \
        ON CONFLICT (kind, id) DO UPDATE SET revision = excluded.revision, body = excluded.body \
    ) \
    SELECT revision, pg_notify($5, '') FROM bumped";

const FORGET: &str = "\
    WITH forgotten AS (UPDATE weir_meta SET oldest = $1 WHERE oldest < $1) \
    DELETE FROM weir_entities WHERE body IS NULL AND revision <= $1";

/// How many times `pg_timeout` a commit may take: to find that a connection is lost, to make another, and to write.
const COMMIT_TIMEOUT_FACTOR: u32 = 3;

/// How many times `pg_timeout` entities may take to arrive: it may be all of them.
pub(super) const LOAD_TIMEOUT_FACTOR: u32 = 12;

/// Entities in a database.
pub(super) struct Postgres {
    server: Arc<Server>,
    /// Where everything is read from, apart from what it lacks yet.
    replica: Option<Replica>,
    plugins: Vec<PluginSchema>,
    epoch: u64,
    channel: String,
    /// None while it is in use, and after an error, so that a cancelled operation leaves no half-read response behind.
    connection: Mutex<Option<PgConnection>>,
    /// That connection was made to a standby, which may have been promoted since.
    is_of_standby: AtomicBool,
    heard: Arc<Notify>,
    listening: AbortHandle,
    pub(super) tombstone_revisions: u64,
}

impl Postgres {
    /// Connects to tables that are there, and starts to listen.
    pub(super) async fn open(server: Server, plugins: Vec<PluginSchema>) -> Result<Postgres, StoreError> {
        let mut connection = server.connect().await?;
        let ready = server.in_time(server.timeout, make_ready(&server, &mut connection)).await?;
        let (schema, epoch, is_of_standby) = ready;
        let channel = change_listener::channel("weir", schema.as_deref());
        let (server, heard) = (Arc::new(server), Arc::new(Notify::new()));
        let channels = vec![(channel.clone(), heard.clone())];
        let listening = tokio::spawn(change_listener::listen(server.clone(), channels));
        Ok(Postgres {
            server,
            replica: None,
            plugins,
            epoch: epoch.cast_unsigned(),
            channel,
            connection: Mutex::new(Some(connection)),
            is_of_standby: AtomicBool::new(is_of_standby),
            heard,
            listening: listening.abort_handle(),
            tombstone_revisions: TOMBSTONE_REVISIONS,
        })
    }

    /// The same, with a replica to read everything from.
    pub(super) fn with_replica(mut self, replica: Option<Replica>) -> Postgres {
        self.replica = replica;
        self
    }

    /// Everything that a replica holds, and what it lacks yet; none if it does not answer, or holds another history.
    async fn load_from_replica(&self) -> Result<Option<Loaded>, StoreError> {
        let Some(replica) = &self.replica else { return Ok(None) };
        let Loaded { revision, entities } = match replica.load(&self.plugins).await {
            Ok(loaded) => loaded,
            Err(error) => {
                tracing::warn!("{error}; the entities are read from {} instead", self.server.place);
                return Ok(None);
            }
        };
        Ok(match self.since(revision).await? {
            Since::Changes { revision, changes } => {
                let mut entities = Entities::from_iter(entities);
                changes.into_iter().for_each(|change| entities.restore(change));
                Some(Loaded { revision, entities: entities.iter().cloned().collect() })
            }
            Since::Lost => None,
        })
    }

    /// The connection, or a new one if it was lost meanwhile.
    async fn connected(&self, held: Option<PgConnection>) -> Result<PgConnection, StoreError> {
        if let Some(mut connection) = held
            && self.server.is_usable(&mut connection).await
        {
            return Ok(connection);
        }
        let mut connection = self.server.connect().await?;
        self.begin_history(&mut connection).await?;
        Ok(connection)
    }

    async fn begin_history(&self, connection: &mut PgConnection) -> Result<(), StoreError> {
        let is_of_standby = begin_history(&self.server, connection).await?;
        self.is_of_standby.store(is_of_standby, Ordering::Relaxed);
        Ok(())
    }

    async fn all(&self) -> Result<Vec<Selected>, StoreError> {
        let mut held = self.connection.lock().await;
        let mut connection = self.connected(held.take()).await?;
        let selected = sqlx::query_as(ALL).fetch_all(&mut connection).await;
        let selected = selected.map_err(|error| self.server.failure(error))?;
        *held = Some(connection);
        Ok(selected)
    }

    async fn after(&self, revision: Revision) -> Result<Vec<Selected>, StoreError> {
        let mut held = self.connection.lock().await;
        let mut connection = self.connected(held.take()).await?;
        let after = sqlx::query_as(AFTER).bind(revision.0.cast_signed());
        let selected = after.fetch_all(&mut connection).await;
        let selected = selected.map_err(|error| self.server.failure(error))?;
        *held = Some(connection);
        Ok(selected)
    }

    /// While `is_uncertain`, the commit may have been stored.
    async fn write(
        &self,
        base: Revision,
        rows: Vec<Row>,
        is_uncertain: &AtomicBool,
    ) -> Result<Committed, StoreError> {
        let mut held = self.connection.lock().await;
        let mut connection = self.connected(held.take()).await?;
        if self.is_of_standby.load(Ordering::Relaxed) {
            self.begin_history(&mut connection).await?;
        }
        let mut written = self.write_on(&mut connection, base, &rows, is_uncertain).await;
        if written.as_ref().is_err_and(history::is_of_older_tables) {
            // Tables of an older version are named. Those of this one may have been migrated meanwhile.
            self.server.found(&mut connection).await?.usable(&self.server.place)?;
            written = self.write_on(&mut connection, base, &rows, is_uncertain).await;
        }
        let written = written.map_err(|error| self.server.failure(error))?;
        if written == Committed::Outdated {
            self.server.found(&mut connection).await?.usable(&self.server.place)?;
            self.begin_history(&mut connection).await?;
        }
        *held = Some(connection);
        Ok(written)
    }

    /// Writes. From when the commit is sent, `is_uncertain` unless it is known that it was not stored.
    async fn write_on(
        &self,
        connection: &mut PgConnection,
        base: Revision,
        rows: &[Row],
        is_uncertain: &AtomicBool,
    ) -> Result<Committed, sqlx::Error> {
        let (mut kinds, mut ids, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
        for Row { kind, id, body } in rows {
            kinds.push(*kind);
            ids.push(id.as_str());
            bodies.push(body.as_deref());
        }
        let commit = sqlx::query_as(COMMIT).bind(base.0.cast_signed()).bind(kinds).bind(ids).bind(bodies);
        let commit = commit.bind(&self.channel).bind(version());
        is_uncertain.store(true, Ordering::Relaxed);
        let written: Result<Option<(i64, ())>, _> = commit.fetch_optional(&mut *connection).await;
        let may_be_stored = written.as_ref().map_or_else(may_be_stored, Option::is_some);
        is_uncertain.store(may_be_stored, Ordering::Relaxed);
        let Some((revision, ())) = written? else { return Ok(Committed::Outdated) };
        let revision = Revision(revision.cast_unsigned());
        if let Some(oldest) = revision.forgets(self.tombstone_revisions)
            && let Err(error) = sqlx::query(FORGET).bind(oldest).execute(connection).await
        {
            // What was written is kept; the deleted are forgotten another time.
            tracing::warn!(%error, "tombstones of deleted entities could not be removed; a later commit removes them");
        }
        Ok(Committed::At(revision))
    }
}

impl Store for Postgres {
    fn load(&self) -> Pending<'_, Loaded> {
        let limit = self.server.timeout * LOAD_TIMEOUT_FACTOR;
        Box::pin(async move {
            if let Some(loaded) = self.load_from_replica().await? {
                return Ok(loaded);
            }
            let selected = self.server.in_time(limit, self.all()).await?;
            loaded(selected, &self.plugins, &self.server.place)
        })
    }

    fn commit<'a>(&'a self, base: Revision, changes: &'a [Change]) -> Pending<'a, Committed> {
        // Large batches may take longer.
        let more = Duration::from_millis(changes.len() as u64);
        let limit = self.server.timeout * COMMIT_TIMEOUT_FACTOR + more;
        Box::pin(async move {
            let is_uncertain = AtomicBool::new(false);
            let write = self.write(base, rows(changes), &is_uncertain);
            let written = self.server.in_time(limit, write).await;
            written.map_err(|error| match is_uncertain.load(Ordering::Relaxed) {
                true => StoreError::uncertain(&error),
                false => error,
            })
        })
    }

    fn since(&self, revision: Revision) -> Pending<'_, Since> {
        let limit = self.server.timeout * LOAD_TIMEOUT_FACTOR;
        Box::pin(async move {
            let selected = self.server.in_time(limit, self.after(revision)).await?;
            since(revision, selected, &self.plugins, &self.server.place)
        })
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn changed(&self) -> Pending<'_, ()> {
        Box::pin(async {
            self.heard.notified().await;
            Ok(())
        })
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// Sees that the tables can be used; returns their schema, the epoch of their revisions, and whether the server is a standby.
async fn make_ready(
    server: &Server,
    connection: &mut PgConnection,
) -> Result<(Option<String>, i64, bool), StoreError> {
    let failed = |error| server.failure(error);
    let found = server.found(connection).await?;
    found.usable(&server.place)?;
    found.log(&server.place);
    let is_of_standby = begin_history(server, connection).await?;
    let schema = sqlx::query_scalar("SELECT current_schema()::text").fetch_one(&mut *connection).await;
    let epoch = sqlx::query_scalar(EPOCH).fetch_one(connection).await;
    Ok((schema.map_err(failed)?, epoch.map_err(failed)?, is_of_standby))
}

/// Begins another history if the server is not the one that wrote last. Returns whether it is a standby.
async fn begin_history(server: &Server, connection: &mut PgConnection) -> Result<bool, StoreError> {
    let begun = history::begin(connection).await.map_err(|error| server.failure(error))?;
    if let Begun::At(revision) = begun {
        tracing::warn!(
            "{}: another server than before, or restored data: a standby was promoted or a backup restored; all nodes \
             read everything again, as of revision {revision}",
            server.place
        );
    }
    Ok(begun == Begun::Standby)
}

/// Whether a commit that ended with this error may be stored: no answer came, or one that does not tell.
fn may_be_stored(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else { return true };
    let code = error.code().unwrap_or_default();
    // The connection failed behind a pooler; the server shuts down or crashed; the outcome is not known to it either.
    code.starts_with("08") || code.starts_with("57P") || code == "40003"
}
