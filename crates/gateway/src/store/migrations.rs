//! The tables and their migrations.
use super::{StoreError, database, postgres, sqlite, sqlite_path};
use crate::cli::Program;
use crate::settings::{Database, Settings};

/// Migrates the tables from one version to the next. Released migrations are never edited.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) sqlite: &'static str,
    pub(super) postgres: &'static str,
}

const ENTITIES: &str = "
    CREATE TABLE weir_entities (
        kind TEXT NOT NULL, id TEXT NOT NULL, revision BIGINT NOT NULL, body TEXT, PRIMARY KEY (kind, id)
    );
    CREATE INDEX weir_entities_revision ON weir_entities (revision);
    CREATE INDEX weir_entities_deleted ON weir_entities (revision) WHERE body IS NULL;
    CREATE TABLE weir_meta (version BIGINT NOT NULL, revision BIGINT NOT NULL, oldest BIGINT NOT NULL);
    INSERT INTO weir_meta (version, revision, oldest) VALUES (0, 0, 0);
";

/// Kong's tables of rate limits, which may be there if Kong used the schema.
const COUNTERS: &str = "
    CREATE TABLE IF NOT EXISTS ratelimiting_metrics (
        identifier TEXT NOT NULL, period TEXT NOT NULL, period_date TIMESTAMP WITH TIME ZONE NOT NULL,
        service_id UUID NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000'::UUID,
        route_id UUID NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000'::UUID,
        value INTEGER, ttl TIMESTAMP WITH TIME ZONE,
        PRIMARY KEY (identifier, period, period_date, service_id, route_id)
    );
    ALTER TABLE ratelimiting_metrics ADD COLUMN IF NOT EXISTS ttl TIMESTAMP WITH TIME ZONE;
    CREATE INDEX IF NOT EXISTS ratelimiting_metrics_ttl_idx ON ratelimiting_metrics (ttl);
    CREATE TABLE IF NOT EXISTS response_ratelimiting_metrics (LIKE ratelimiting_metrics INCLUDING ALL);
    ALTER TABLE response_ratelimiting_metrics ADD COLUMN IF NOT EXISTS ttl TIMESTAMP WITH TIME ZONE;
";

/// The history that revisions count in, which all control planes of the database share.
const EPOCH: [&str; 2] = [
    "ALTER TABLE weir_meta ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0;
     UPDATE weir_meta SET epoch = random() & 9223372036854775807;",
    "ALTER TABLE weir_meta ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0;
     UPDATE weir_meta SET epoch = (random() * 9007199254740991)::bigint;",
];

/// What control planes know of their data planes.
const FLEET: &str = "
    CREATE TABLE weir_data_planes (
        id TEXT PRIMARY KEY, control_plane TEXT NOT NULL, stamp BIGINT NOT NULL, online BOOLEAN NOT NULL,
        last_seen BIGINT NOT NULL, facts TEXT NOT NULL
    );
    CREATE INDEX weir_data_planes_stamp ON weir_data_planes (control_plane, stamp);
    CREATE TABLE weir_control_planes (id TEXT PRIMARY KEY, seen BIGINT NOT NULL);
";

/// Which server's history the revisions count in: `postgres/history.rs`.
const HISTORY: &str = "ALTER TABLE weir_meta ADD COLUMN history TEXT NOT NULL DEFAULT '';";

/// Rows that traffic creates, such as tokens: `rows/mod.rs`.
const ROWS: &str = "
    CREATE TABLE weir_rows (
        kind TEXT NOT NULL, id TEXT NOT NULL, first_key TEXT, second_key TEXT, body TEXT NOT NULL, expires BIGINT,
        PRIMARY KEY (kind, id)
    );
    CREATE UNIQUE INDEX weir_rows_first ON weir_rows (kind, first_key);
    CREATE UNIQUE INDEX weir_rows_second ON weir_rows (kind, second_key);
    CREATE INDEX weir_rows_expires ON weir_rows (expires) WHERE expires IS NOT NULL;
";

pub(super) const STEPS: &[Step] = &[
    Step { sqlite: ENTITIES, postgres: ENTITIES },
    // A file has one node, which counts in its memory.
    Step { sqlite: "", postgres: COUNTERS },
    Step { sqlite: EPOCH[0], postgres: EPOCH[1] },
    Step { sqlite: FLEET, postgres: FLEET },
    // A file has no standby.
    Step { sqlite: "", postgres: HISTORY },
    Step { sqlite: ROWS, postgres: ROWS },
];

/// The version of the tables that is used here.
pub(super) fn version() -> i64 {
    STEPS.len().try_into().unwrap_or(i64::MAX)
}

/// What `weir migrations` does with the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// Look at them.
    Status,
    /// Create them where there are none.
    Bootstrap,
    /// Bring those of an older version up to date.
    Up,
    /// The same, as the second part of Kong's migrations.
    Finish,
    /// Bootstrap or up, as needed.
    Everything,
    /// Look at them, as `Status`.
    List,
    /// Remove them.
    Reset,
}

impl Task {
    /// Whether it may change the tables.
    pub(crate) fn changes(self) -> bool {
        !matches!(self, Task::Status | Task::List)
    }
}

/// Removes the tables of entities. Those of rate limits stay, because they may be Kong's.
pub(super) const REMOVE: &str = "DROP TABLE weir_entities; DROP TABLE weir_meta; DROP TABLE IF EXISTS weir_data_planes; \
    DROP TABLE IF EXISTS weir_control_planes; DROP TABLE IF EXISTS weir_rows;";

/// The state of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing.
    Missing,
    /// Those of an older version.
    Behind(usize),
    /// Those of this version.
    Current,
}

impl Found {
    /// By the version that the tables say they are; none where there are no tables.
    pub(super) fn of(version: Option<i64>, place: &str) -> Result<Found, StoreError> {
        let Some(version) = version else { return Ok(Found::Missing) };
        match usize::try_from(version) {
            Ok(version) if version < STEPS.len() => Ok(Found::Behind(version)),
            Ok(version) if version == STEPS.len() => Ok(Found::Current),
            _ => Err(StoreError::NotMigrated(format!(
                "{place}: its tables have version {version}, which is newer than this weir knows ({}): use the weir \
                 that migrated it, or a later one",
                STEPS.len()
            ))),
        }
    }

    /// The steps that a task takes from here, each with the version that it leads to.
    pub(super) fn steps(self, task: Task) -> impl Iterator<Item = (i64, &'static Step)> {
        let first = match (self, task) {
            (Found::Missing, Task::Bootstrap | Task::Everything) => 0,
            (Found::Behind(version), Task::Up | Task::Finish | Task::Everything) => version,
            _ => STEPS.len(),
        };
        (1..).zip(STEPS).skip(first)
    }

    /// The version of the tables, if there are some.
    pub(crate) fn version(self) -> Option<usize> {
        match self {
            Found::Missing => None,
            Found::Behind(version) => Some(version),
            Found::Current => Some(STEPS.len()),
        }
    }

    /// Whether the tables can be used as they are.
    pub(super) fn usable(self, place: &str) -> Result<(), StoreError> {
        match self {
            Found::Current => Ok(()),
            Found::Missing => Err(not_bootstrapped(place)),
            Found::Behind(version) => Err(StoreError::NotMigrated(format!(
                "{place}: its tables have version {version} and must have {}: {}",
                STEPS.len(),
                to_run("up")
            ))),
        }
    }
}

/// Nothing is there to be used.
pub(super) fn not_bootstrapped(place: &str) -> StoreError {
    StoreError::NotMigrated(format!("{place}: it has no tables yet: {}", to_run("bootstrap")))
}

/// The hint to run a task, by the name that the program was called by.
fn to_run(task: &str) -> String {
    format!("run `{} migrations {task}`", Program::of_this_process().command())
}

/// The outcome of a task.
#[derive(Debug)]
pub(crate) struct Migrated {
    /// The database, as messages name it.
    pub(crate) place: String,
    /// What was there before.
    pub(crate) found: Found,
}

impl Migrated {
    /// What is said of a task.
    pub(crate) fn report(&self, task: Task) -> String {
        let (Migrated { place, found }, newest) = (self, STEPS.len());
        match (task, found) {
            (Task::Reset, Found::Missing) => format!("{place}: not bootstrapped: nothing to remove"),
            (Task::Reset, _) => format!("{place}: removed"),
            (Task::Status | Task::List, Found::Missing) => {
                format!("{place}: not bootstrapped: {}", to_run("bootstrap"))
            }
            (Task::Status | Task::List | Task::Bootstrap, Found::Behind(version)) => {
                format!("{place}: version {version} of {newest}: {}", to_run("up"))
            }
            (Task::Status | Task::List, Found::Current) => format!("{place}: version {newest}: up to date"),
            (_, Found::Current) => format!("{place}: version {newest}: nothing to do"),
            (_, Found::Missing) => format!("{place}: bootstrapped, version {newest}"),
            (_, Found::Behind(version)) => format!("{place}: migrated from version {version} to {newest}"),
        }
    }

    /// Whether the tables can be used after a task.
    pub(crate) fn leaves_usable(&self, task: Task) -> bool {
        match self.found {
            Found::Current => task != Task::Reset,
            Found::Missing => matches!(task, Task::Bootstrap | Task::Everything),
            Found::Behind(_) => matches!(task, Task::Up | Task::Finish | Task::Everything),
        }
    }
}

/// The version that tables are migrated to.
pub(crate) fn newest() -> usize {
    STEPS.len()
}

/// Performs a task.
pub(crate) async fn perform(task: Task, settings: &Settings) -> Result<Migrated, StoreError> {
    let (place, found) = match database(settings) {
        Database::Off => {
            let message = "database is `off`, so there are no tables: set it to `postgres` or `sqlite`";
            return Err(StoreError::NotMigrated(message.to_owned()));
        }
        Database::Sqlite => sqlite::migrate(&sqlite_path(settings)?, task).await?,
        Database::Postgres => postgres::Server::of(settings)?.migrate(task).await?,
    };
    match (task, found) {
        (Task::Up | Task::Finish, Found::Missing) => Err(not_bootstrapped(&place)),
        _ => Ok(Migrated { place, found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(found: Found, task: Task) -> Vec<i64> {
        found.steps(task).map(|(version, _)| version).collect()
    }

    #[test]
    fn each_task_takes_its_own_steps() {
        let all: Vec<i64> = (1..).take(STEPS.len()).collect();
        assert_eq!(steps(Found::Missing, Task::Bootstrap), all);
        assert_eq!(steps(Found::Missing, Task::Everything), all);
        assert_eq!(steps(Found::Behind(0), Task::Up), all);
        assert_eq!(steps(Found::Behind(0), Task::Everything), all);
        for (found, task) in [
            (Found::Missing, Task::Up),
            (Found::Missing, Task::Status),
            (Found::Behind(0), Task::Bootstrap),
            (Found::Behind(0), Task::Status),
            (Found::Current, Task::Everything),
        ] {
            assert_eq!(steps(found, task), [0; 0], "{found:?} {task:?}");
        }
    }

    #[test]
    fn tables_of_a_later_version_are_left_alone() {
        let newer = i64::try_from(STEPS.len()).unwrap() + 1;
        let refused = Found::of(Some(newer), "here").unwrap_err();
        assert!(
            matches!(&refused, StoreError::NotMigrated(message) if message.contains("newer")),
            "{refused}"
        );
        assert_eq!(Found::of(None, "here"), Ok(Found::Missing));
    }
}
