//! Where entities are stored: a [`Store`] holds entities and a revision, and knows nothing of HTTP.
//!
//! Both kinds have the same two tables: `weir_entities`, a row for each entity with the revision that wrote it, its
//! body as JSON or none once it is deleted; and `weir_meta`, one row, with the newest revision and the version of the
//! tables. Beside them is `weir_rows`, what traffic creates and what ends by itself, such as tokens.
mod change_listener;
mod counters;
mod etcd;
pub(crate) mod fleet;
pub(crate) mod migrations;
mod postgres;
mod replica;
mod row;
mod rows;
mod sqlite;
mod sqlite_file;
pub(crate) mod transfer;
mod yaml;

use crate::prefix;
use crate::settings::{Database, Settings};
pub(crate) use etcd::{Check, Etcd};

use counters::Counters;
use postgres::Postgres;
use replica::Replica;
use rows::{DatabaseRows, Driver, PostgresRows, SqliteRows};
use sqlite::Sqlite;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use weir_model::entity::Entity;
use weir_model::{Change, PluginSchema};
use weir_plugin::{Background, RowStore};
use weir_plugins::limits::CounterStore;

/// The future of an operation.
pub(crate) type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Counts committed batches; 0 = nothing was ever written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Revision(pub(crate) u64);

impl Revision {
    /// Up to which revision this commit removes tombstones, if they are kept for so many revisions. Only now and then,
    /// because removing costs.
    fn forgets(self, tombstone_revisions: u64) -> Option<i64> {
        let is_time = self.0.is_multiple_of(tombstone_revisions) && self.0 > tombstone_revisions;
        is_time.then(|| (self.0 - tombstone_revisions).cast_signed())
    }
}

/// Everything that a store holds.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// As of this revision.
    pub(crate) revision: Revision,
    /// In no particular order.
    pub(crate) entities: Vec<Entity>,
}

/// The outcome of a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Committed {
    /// It is stored, as this revision.
    At(Revision),
    /// Another node committed first; nothing was changed.
    Outdated,
}

/// What other nodes have committed.
#[derive(Debug)]
pub(crate) enum Since {
    /// Every entity that changed, as it is now.
    Changes {
        /// As of this revision.
        revision: Revision,
        /// Those written by earlier revisions first.
        changes: Vec<Change>,
    },
    /// The revision is too old: load everything.
    Lost,
}

/// Stores entities.
pub(crate) trait Store: Send + Sync + 'static {
    /// Everything, as of one revision.
    fn load(&self) -> Pending<'_, Loaded>;
    /// All or nothing, durable when it returns; only if `base` is still the newest revision. When it fails as
    /// uncertain, the batch may have been stored nevertheless: `since` shows whether it was.
    fn commit<'a>(&'a self, base: Revision, changes: &'a [Change]) -> Pending<'a, Committed>;
    /// What has changed after a revision.
    fn since(&self, revision: Revision) -> Pending<'_, Since>;
    /// The history that revisions count in: the same on all nodes of one database.
    fn epoch(&self) -> u64 {
        0
    }
    /// Returns when another node may have committed; never, if there cannot be another node.
    fn changed(&self) -> Pending<'_, ()>;
    /// Whether entities derive from what it holds, so that they cannot be written.
    fn is_translated(&self) -> bool {
        false
    }
    /// Lets another process of this node use it too, or no longer; false if it still does.
    fn share(&self, _: bool) -> bool {
        true
    }
    /// Leaves it to another process of this node, which uses it too: other nodes are kept out for as long as that runs.
    fn leave(&self) {}
    /// What it holds and cannot be used.
    fn unusable(&self) -> Vec<UnusableObject> {
        Vec::new()
    }
}

/// Something in a store that is not active.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnusableObject {
    /// Where it is.
    pub(crate) key: String,
    /// Why.
    pub(crate) reason: String,
}

/// Why a store fails; the text says how to fix it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreError {
    /// It cannot be reached, or is busy: try again later.
    Unavailable(String),
    /// A commit failed, and it is not known whether it was stored.
    Uncertain(String),
    /// It has no room to write, and nothing was written; it can still be read. A commit that has found no room only after it
    /// was written is `Uncertain`.
    Full(String),
    /// Its tables are missing, or of an older version.
    NotMigrated(String),
    /// Its tables are of a newer version, which this program cannot use.
    TooNew(String),
    /// Its content or its configuration is invalid.
    Broken(String),
}

impl StoreError {
    /// The error of a commit that may have been stored all the same.
    fn uncertain(error: &StoreError) -> StoreError {
        StoreError::Uncertain(format!(
            "{error}; it is not known whether the change was stored: read it before you send it again"
        ))
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (StoreError::Unavailable(message)
        | StoreError::Uncertain(message)
        | StoreError::Full(message)
        | StoreError::NotMigrated(message)
        | StoreError::TooNew(message)
        | StoreError::Broken(message)) = self;
        f.write_str(message)
    }
}

/// Opens the store that the settings name; none for `database = off`. `check` says what of an etcd can be used. A process
/// that replaces another shares the store with it.
pub(crate) async fn open(
    settings: &Settings,
    plugins: Vec<PluginSchema>,
    check: Check,
    replaces: bool,
) -> Result<Option<Arc<dyn Store>>, StoreError> {
    if let Some(endpoints) = &settings.apisix_etcd {
        return Ok(Some(Arc::new(Etcd::of(endpoints, settings, plugins, check)?)));
    }
    open_shared(settings, plugins, replaces).await
}

/// Opens the database that the settings name; none for `database = off`.
pub(crate) async fn open_database(
    settings: &Settings,
    plugins: Vec<PluginSchema>,
) -> Result<Option<Arc<dyn Store>>, StoreError> {
    open_shared(settings, plugins, false).await
}

async fn open_shared(
    settings: &Settings,
    plugins: Vec<PluginSchema>,
    is_shared: bool,
) -> Result<Option<Arc<dyn Store>>, StoreError> {
    if settings.apisix_etcd.is_some() {
        return Err(StoreError::Broken(
            "apisix_etcd: the configuration is in etcd, as APISIX's objects: read and write it with APISIX's tools"
                .to_owned(),
        ));
    }
    Ok(match database(settings) {
        Database::Off => None,
        Database::Sqlite => Some(Arc::new(Sqlite::open(&sqlite_path(settings)?, plugins, is_shared).await?)),
        Database::Postgres => {
            let replica = Replica::of(settings)?;
            let store = Postgres::open(postgres::Server::of(settings)?, plugins).await?;
            Some(Arc::new(store.with_replica(replica)))
        }
    })
}

/// The counters that the nodes of one database share, if the database can be shared. Connects on first use.
pub(crate) fn counters(settings: &Settings) -> Result<Option<Arc<dyn CounterStore>>, StoreError> {
    Ok(match database(settings) {
        Database::Off | Database::Sqlite => None,
        Database::Postgres => Some(Arc::new(Counters::new(postgres::Server::of(settings)?))),
    })
}

/// The rows that the nodes of one database share; none without a database. Connects on first use.
pub(crate) fn rows(
    settings: &Settings,
    background: Arc<Background>,
) -> Result<Option<Arc<dyn RowStore>>, StoreError> {
    let driver: Arc<dyn Driver> = match database(settings) {
        Database::Off => return Ok(None),
        Database::Sqlite => Arc::new(SqliteRows::new(sqlite_path(settings)?)),
        Database::Postgres => Arc::new(PostgresRows::new(postgres::Server::of(settings)?)),
    };
    Ok(Some(Arc::new(DatabaseRows::new(driver, background))))
}

/// Opens the store read-only, while nodes may use it.
pub(crate) async fn open_to_read(
    settings: &Settings,
    plugins: Vec<PluginSchema>,
) -> Result<Option<Arc<dyn Store>>, StoreError> {
    match database(settings) {
        Database::Sqlite => Ok(Some(Arc::new(Sqlite::open_to_read(&sqlite_path(settings)?, plugins).await?))),
        Database::Off | Database::Postgres => open_database(settings, plugins).await,
    }
}

/// Where the configuration lives: in a declarative file if one is given, otherwise in SQLite.
pub(crate) fn database(settings: &Settings) -> Database {
    if settings.apisix_etcd.is_some() {
        return Database::Off;
    }
    let file = settings.declarative_config.is_some() || settings.declarative_config_string.is_some();
    settings.database.unwrap_or(if file { Database::Off } else { Database::Sqlite })
}

/// The warning if settings of PostgreSQL are given but another database is used. Kong's containers often leave out
/// `KONG_DATABASE`, because PostgreSQL is its default.
pub(crate) fn unused(settings: &Settings, given: &[&str]) -> Option<String> {
    let names: Vec<_> = given.iter().copied().filter(|name| name.starts_with("pg_")).collect();
    let used = match database(settings) {
        Database::Postgres => return None,
        Database::Sqlite => "SQLite",
        Database::Off => "no database",
    };
    (!names.is_empty()).then(|| {
        format!("{} given, and {used} is used: set database=postgres, or leave them out", names.join(", "))
    })
}

fn sqlite_path(settings: &Settings) -> Result<PathBuf, StoreError> {
    let prefix = prefix::or_default(settings.prefix.clone());
    let prefix = prefix.map_err(|error| StoreError::Unavailable(error.to_string()))?;
    Ok(prefix.join(&settings.sqlite_path))
}

#[cfg(test)]
mod tests;
