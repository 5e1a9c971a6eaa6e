//! SQLite: a file of this node's own.
use super::migrations::{self, Found, REACHED, REMOVE, Step, Task, Versions};
use super::row::{AFTER, ALL, EPOCH, NEWEST, Selected, TOMBSTONE_REVISIONS, VERSIONS, loaded, rows, since};
use super::sqlite_file;
use super::{Committed, Loaded, Pending, Revision, Since, Store, StoreError};
use crate::process_limit;
use rustix::fs::{FlockOperation, flock};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Transaction};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::Mutex;
use weir_model::{Change, PluginSchema};

const WRITE: &str = "INSERT INTO weir_entities (kind, id, revision, body) VALUES ($1, $2, $3, $4) \
    ON CONFLICT (kind, id) DO UPDATE SET revision = excluded.revision, body = excluded.body";

/// How long to wait for another process that has the file locked, as a backup has.
const BUSY: Duration = Duration::from_secs(5);

/// SQLite's code (`SQLITE_IOERR_SHMSIZE`) where the file `-shm`, the index of the log, cannot be made as large as it must be.
const NO_ROOM_FOR_INDEX: u32 = 4874;

/// Entities in a file.
pub(super) struct Sqlite {
    path: PathBuf,
    place: String,
    plugins: Vec<PluginSchema>,
    epoch: u64,
    /// None after a write that failed: see [`Sqlite::write`].
    writer: Mutex<Option<SqliteConnection>>,
    /// Reads while a commit waits for the disk.
    reader: Mutex<SqliteConnection>,
    pub(super) tombstone_revisions: u64,
    /// Its lock keeps others from writing: what they change would not be seen here.
    file: File,
}

impl Sqlite {
    /// Opens the file; creates it, and brings its tables up to date, where that is needed.
    pub(super) async fn open(
        path: &Path,
        plugins: Vec<PluginSchema>,
        is_shared: bool,
    ) -> Result<Sqlite, StoreError> {
        let place = place(path);
        let file = sqlite_file::open(path)?;
        lock(&file, &place, is_shared)?;
        let mut writer = connect(path, &place).await?;
        migrate_in(&mut writer, Task::Everything, None, &place).await?.log(&place);
        let epoch = sqlx::query_scalar(EPOCH).fetch_one(&mut writer).await;
        let epoch: i64 = epoch.map_err(|error| failure(&place, error))?;
        let (writer, reader) = (Mutex::new(Some(writer)), Mutex::new(connect(path, &place).await?));
        tracing::info!("the configuration is stored in the {place}");
        let path = path.to_owned();
        Ok(Sqlite {
            path,
            place,
            plugins,
            epoch: epoch.cast_unsigned(),
            writer,
            reader,
            tombstone_revisions: TOMBSTONE_REVISIONS,
            file,
        })
    }

    /// Opens the file of a node that may be running, to read it alone.
    pub(super) async fn open_to_read(path: &Path, plugins: Vec<PluginSchema>) -> Result<Sqlite, StoreError> {
        let place = place(path);
        if !path.exists() {
            return Err(StoreError::Unavailable(format!(
                "{place}: is not there: name the node's folder with `--prefix`, or the file with `sqlite_path`"
            )));
        }
        let file = sqlite_file::open(path)?;
        let (writer, reader) = (Mutex::default(), Mutex::new(connect(path, &place).await?));
        let path = path.to_owned();
        Ok(Sqlite {
            path,
            place,
            plugins,
            epoch: 0,
            writer,
            reader,
            tombstone_revisions: TOMBSTONE_REVISIONS,
            file,
        })
    }

    async fn all(&self) -> Result<Vec<Selected>, sqlx::Error> {
        sqlx::query_as(ALL).fetch_all(&mut *self.reader.lock().await).await
    }

    async fn after(&self, revision: Revision) -> Result<Vec<Selected>, sqlx::Error> {
        let after = sqlx::query_as(AFTER).bind(revision.0.cast_signed());
        after.fetch_all(&mut *self.reader.lock().await).await
    }

    fn failure(&self, error: sqlx::Error) -> StoreError {
        failure(&self.place, error)
    }

    /// Where the disk fails, the log may hold all of the commit all the same, which the next start finds. So it is where the
    /// index of the log does not fit on the disk, because that is written after the log.
    fn failure_of_commit(&self, error: sqlx::Error) -> StoreError {
        let is_in_log = code(&error) == Some(NO_ROOM_FOR_INDEX);
        match self.failure(error) {
            StoreError::Full(message) if !is_in_log => StoreError::Full(message),
            error @ (StoreError::Full(_) | StoreError::Unavailable(_)) => StoreError::uncertain(&error),
            error => error,
        }
    }

    /// A connection on which a write has failed is not used again. SQLite ends the transaction itself when the disk is
    /// full or fails; sqlx does not notice, and would refuse to begin another one on the same connection.
    async fn write(&self, base: Revision, changes: &[Change]) -> Result<Committed, StoreError> {
        let mut writer = self.writer.lock().await;
        let mut connection = match writer.take() {
            Some(connection) => connection,
            None => connect(&self.path, &self.place).await?,
        };
        let written = self.write_on(&mut connection, base, changes).await;
        match written {
            Ok(_) => *writer = Some(connection),
            // The failure that matters is the write's.
            Err(_) => drop(connection.close().await),
        }
        written
    }

    async fn write_on(
        &self,
        connection: &mut SqliteConnection,
        base: Revision,
        changes: &[Change],
    ) -> Result<Committed, StoreError> {
        let failed = |error| self.failure(error);
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
        let meta = sqlx::query_as(NEWEST).fetch_one(&mut *transaction);
        let (usable_from, migrated_to, newest): (i64, i64, i64) = meta.await.map_err(failed)?;
        let versions = Versions { usable_from, migrated_to };
        Found::of(Some(versions), &self.place)?.usable(&self.place)?;
        if newest != base.0.cast_signed() {
            return Ok(Committed::Outdated);
        }
        self.write_in(transaction, newest + 1, changes).await.map(Committed::At)
    }

    async fn write_in(
        &self,
        mut transaction: Transaction<'_, sqlx::Sqlite>,
        revision: i64,
        changes: &[Change],
    ) -> Result<Revision, StoreError> {
        let failed = |error| self.failure(error);
        for row in rows(changes) {
            let write = sqlx::query(WRITE).bind(row.kind).bind(row.id).bind(revision).bind(row.body);
            write.execute(&mut *transaction).await.map_err(failed)?;
        }
        let bump = sqlx::query("UPDATE weir_meta SET revision = $1").bind(revision);
        bump.execute(&mut *transaction).await.map_err(failed)?;
        let revision = Revision(revision.cast_unsigned());
        if let Some(oldest) = revision.forgets(self.tombstone_revisions) {
            let forget = sqlx::query("DELETE FROM weir_entities WHERE body IS NULL AND revision <= $1");
            forget.bind(oldest).execute(&mut *transaction).await.map_err(failed)?;
            let oldest = sqlx::query("UPDATE weir_meta SET oldest = $1").bind(oldest);
            oldest.execute(&mut *transaction).await.map_err(failed)?;
        }
        transaction.commit().await.map_err(|error| self.failure_of_commit(error))?;
        Ok(revision)
    }
}

impl Store for Sqlite {
    fn load(&self) -> Pending<'_, Loaded> {
        Box::pin(async {
            let selected = self.all().await.map_err(|error| self.failure(error))?;
            loaded(selected, &self.plugins, &self.place)
        })
    }

    fn commit<'a>(&'a self, base: Revision, changes: &'a [Change]) -> Pending<'a, Committed> {
        Box::pin(self.write(base, changes))
    }

    fn since(&self, revision: Revision) -> Pending<'_, Since> {
        Box::pin(async move {
            let selected = self.after(revision).await.map_err(|error| self.failure(error))?;
            since(revision, selected, &self.plugins, &self.place)
        })
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn share(&self, is_shared: bool) -> bool {
        let is_held = lock(&self.file, &self.place, is_shared).is_ok();
        if !is_held {
            // The system gives the old lock up before it finds that there is no new one.
            let _ = lock(&self.file, &self.place, true);
        }
        is_held
    }

    fn leave(&self) {
        // If it fails, other nodes are kept out for longer.
        let _ = flock(&self.file, FlockOperation::NonBlockingUnlock);
    }

    fn changed(&self) -> Pending<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// Does what a task asks for, unless a node uses the file; returns what was found before.
pub(super) async fn migrate(path: &Path, task: Task) -> Result<(String, Found), StoreError> {
    let place = place(path);
    if task != Task::Bootstrap && !path.exists() {
        return Ok((place, Found::Missing));
    }
    let file = sqlite_file::open(path)?;
    let mut connection = connect(path, &place).await?;
    let found = migrate_in(&mut connection, task, Some(&file), &place).await;
    connection.close().await.map_err(|error| failure(&place, error))?;
    Ok((place, found?))
}

/// The same. `to_lock` is the file where the process has not locked it.
async fn migrate_in(
    connection: &mut SqliteConnection,
    task: Task,
    to_lock: Option<&File>,
    place: &str,
) -> Result<Found, StoreError> {
    let failed = |error| failure(place, error);
    let found = Found::of(versions(connection).await.map_err(failed)?, place)?;
    if !found.is_changed_by(task, place)? {
        // Nothing is to be written, so that a process which writes need not be waited for.
        return Ok(found);
    }
    if let Some(file) = to_lock {
        lock(file, place, false)?;
    }
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
    let found = Found::of(versions(&mut transaction).await.map_err(failed)?, place)?;
    let steps = found.steps(task, place)?;
    if task == Task::Reset && found != Found::Missing {
        sqlx::raw_sql(REMOVE).execute(&mut *transaction).await.map_err(failed)?;
    }
    take(steps, &mut transaction).await.map_err(failed)?;
    transaction.commit().await.map_err(failed)?;
    Ok(found)
}

async fn take(steps: &[Step], connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    for step in steps {
        sqlx::raw_sql(step.sqlite).execute(&mut *connection).await?;
    }
    if !steps.is_empty() {
        let reached = sqlx::query(REACHED).bind(migrations::version()).bind(migrations::usable_from());
        reached.execute(connection).await?;
    }
    Ok(())
}

async fn versions(connection: &mut SqliteConnection) -> Result<Option<Versions>, sqlx::Error> {
    let there = "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = 'weir_meta'";
    let tables: i64 = sqlx::query_scalar(there).fetch_one(&mut *connection).await?;
    if tables == 0 {
        return Ok(None);
    }
    let versions: Option<(i64, i64)> = sqlx::query_as(VERSIONS).fetch_optional(connection).await?;
    Ok(versions.map(Versions::from))
}

/// Holds the file for this process, or for this node while one process replaces another, until it is closed. SQLite's own
/// locks are of another kind.
fn lock(file: &File, place: &str, is_shared: bool) -> Result<(), StoreError> {
    let operation = match is_shared {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    flock(file, operation).map_err(|_| {
        StoreError::Unavailable(format!(
            "{place}: another node uses it: stop that node, or name another with `sqlite_path`"
        ))
    })
}

pub(super) async fn connect(path: &Path, place: &str) -> Result<SqliteConnection, StoreError> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        // What has been acknowledged is on the disk, whatever happens to the process or the machine.
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY)
        .disable_statement_logging();
    options.connect().await.map_err(|error| failure(place, error))
}

pub(super) fn place(path: &Path) -> String {
    format!("SQLite file {}", path.display())
}

pub(super) fn failure(place: &str, error: sqlx::Error) -> StoreError {
    if let sqlx::Error::Io(cause) = &error
        && process_limit::is_reached(cause)
    {
        // Each connection has a thread.
        return StoreError::Unavailable(format!("{place}: {cause}{}", process_limit::hint(cause)));
    }
    let code = code(&error);
    if code == Some(NO_ROOM_FOR_INDEX) {
        return StoreError::Full(format!("{place}: {error}: make room on the disk"));
    }
    // The low byte of an extended code is the code proper.
    match code.map(|code| code & 0xff) {
        Some(11 | 26) => StoreError::Broken(format!(
            "{place}: {error}: it is damaged, or no database at all; restore it from a backup, or name another with \
             `sqlite_path`"
        )),
        Some(13) => StoreError::Full(format!("{place}: {error}: make room on the disk")),
        Some(5..=10 | 14) | None => StoreError::Unavailable(format!(
            "{place}: {error}: let weir write it, and no other program lock it"
        )),
        Some(_) => StoreError::Broken(format!("{place}: {error}: restore it from a backup")),
    }
}

/// SQLite's extended code: <https://sqlite.org/rescode.html>
fn code(error: &sqlx::Error) -> Option<u32> {
    error.as_database_error()?.code()?.parse().ok()
}
