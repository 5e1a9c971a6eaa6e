//! The tables and their migrations.
use super::{StoreError, database, postgres, sqlite, sqlite_path};
use crate::cli::Program;
use crate::settings::{Database, Settings};
use std::fmt;
use std::time::Duration;

/// Migrates the tables from one version to the next. Released migrations are never edited.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) sqlite: &'static str,
    pub(super) postgres: &'static str,
    /// Whether programs that do not know the step can use the tables after it, because it only adds to them: a table, an
    /// index, or a column with a default. A step that changes the tables of rows, data planes or rate limits in another
    /// way needs a new table instead, because statements on those do not look at the version.
    ///
    /// In PostgreSQL it creates only what is not there, apart from columns of `weir_meta` and `weir_entities`: when a dump
    /// from before the step is restored, these two tables are as they were, and those that the dump lacks stay.
    pub(super) is_additive: bool,
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
    CREATE TABLE IF NOT EXISTS weir_data_planes (
        id TEXT PRIMARY KEY, control_plane TEXT NOT NULL, stamp BIGINT NOT NULL, online BOOLEAN NOT NULL,
        last_seen BIGINT NOT NULL, facts TEXT NOT NULL
    );
    CREATE INDEX IF NOT EXISTS weir_data_planes_stamp ON weir_data_planes (control_plane, stamp);
    CREATE TABLE IF NOT EXISTS weir_control_planes (id TEXT PRIMARY KEY, seen BIGINT NOT NULL);
";

/// Which server's history the revisions count in: `postgres/history.rs`.
const HISTORY: &str = "ALTER TABLE weir_meta ADD COLUMN history TEXT NOT NULL DEFAULT '';";

/// Rows that traffic creates, such as tokens: `rows/mod.rs`.
const ROWS: &str = "
    CREATE TABLE IF NOT EXISTS weir_rows (
        kind TEXT NOT NULL, id TEXT NOT NULL, first_key TEXT, second_key TEXT, body TEXT NOT NULL, expires BIGINT,
        PRIMARY KEY (kind, id)
    );
    CREATE UNIQUE INDEX IF NOT EXISTS weir_rows_first ON weir_rows (kind, first_key);
    CREATE UNIQUE INDEX IF NOT EXISTS weir_rows_second ON weir_rows (kind, second_key);
    CREATE INDEX IF NOT EXISTS weir_rows_expires ON weir_rows (expires) WHERE expires IS NOT NULL;
";

/// From here on, `version` is that of the oldest programs that can use the tables, and `migrated_to` the tables' own.
/// Programs of before use tables whose `version` is equal to theirs.
const MIGRATED_TO: &str = "ALTER TABLE weir_meta ADD COLUMN migrated_to BIGINT NOT NULL DEFAULT 7;";

pub(super) const STEPS: &[Step] = &[
    Step { sqlite: ENTITIES, postgres: ENTITIES, is_additive: false },
    // A file has one node, which counts in its memory. Weir 0.1.0 knows the steps up to here.
    Step { sqlite: "", postgres: COUNTERS, is_additive: false },
    Step { sqlite: EPOCH[0], postgres: EPOCH[1], is_additive: true },
    Step { sqlite: FLEET, postgres: FLEET, is_additive: true },
    // A file has no standby.
    Step { sqlite: "", postgres: HISTORY, is_additive: true },
    Step { sqlite: ROWS, postgres: ROWS, is_additive: true },
    Step { sqlite: MIGRATED_TO, postgres: MIGRATED_TO, is_additive: true },
];

/// Notes that all steps were taken, up to [`version`], and that programs since [`usable_from`] can use the tables. Those
/// that were used by an older program stay usable by it.
pub(super) const REACHED: &str =
    "UPDATE weir_meta SET migrated_to = $1, version = CASE WHEN version < $2 THEN $2 ELSE version END";

/// The version of the tables that is used here.
pub(super) fn version() -> i64 {
    STEPS.len().try_into().unwrap_or(i64::MAX)
}

/// The version of the oldest programs that can use tables of this version.
pub(super) fn usable_from() -> i64 {
    let last = STEPS.iter().rposition(|step| !step.is_additive).map_or(0, |last| last + 1);
    last.try_into().unwrap_or(i64::MAX)
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

/// What the tables say of themselves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Versions {
    /// That of the oldest programs that can use them.
    pub(super) usable_from: i64,
    /// Their own.
    pub(super) migrated_to: i64,
}

impl From<(i64, i64)> for Versions {
    fn from((usable_from, migrated_to): (i64, i64)) -> Versions {
        Versions { usable_from, migrated_to }
    }
}

/// The state of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing.
    Missing,
    /// Those of an older version.
    Behind(usize),
    /// Those of this version.
    Current,
    /// Those of a newer version, which this program can use too.
    Ahead(usize),
}

impl Found {
    /// By what the tables say of themselves; none where there are no tables.
    pub(super) fn of(versions: Option<Versions>, place: &str) -> Result<Found, StoreError> {
        let Some(Versions { usable_from, migrated_to }) = versions else { return Ok(Found::Missing) };
        match usize::try_from(migrated_to) {
            Ok(_) if usable_from > version() => Err(too_new(usable_from.max(migrated_to), place)),
            Ok(version) if version < STEPS.len() => Ok(Found::Behind(version)),
            Ok(version) if version == STEPS.len() => Ok(Found::Current),
            Ok(version) => Ok(Found::Ahead(version)),
            Err(_) => Err(too_new(migrated_to, place)),
        }
    }

    /// The steps that a task takes from here. A program that does not know all tables cannot remove them.
    pub(super) fn steps(self, task: Task, place: &str) -> Result<&'static [Step], StoreError> {
        let first = match (self, task) {
            (Found::Missing, Task::Bootstrap | Task::Everything) => 0,
            (Found::Behind(version), Task::Up | Task::Finish | Task::Everything) => version,
            (Found::Ahead(version), Task::Reset) => return Err(too_new(version, place)),
            _ => STEPS.len(),
        };
        Ok(STEPS.get(first..).unwrap_or_default())
    }

    /// Whether a task has something to do.
    pub(super) fn is_changed_by(self, task: Task, place: &str) -> Result<bool, StoreError> {
        let steps = self.steps(task, place)?;
        Ok(!steps.is_empty() || task == Task::Reset && self != Found::Missing)
    }

    /// The version of the tables, if there are some.
    pub(crate) fn version(self) -> Option<usize> {
        match self {
            Found::Missing => None,
            Found::Behind(version) | Found::Ahead(version) => Some(version),
            Found::Current => Some(STEPS.len()),
        }
    }

    /// Whether the tables can be used as they are.
    pub(super) fn usable(self, place: &str) -> Result<(), StoreError> {
        match self {
            Found::Current | Found::Ahead(_) => Ok(()),
            Found::Missing => Err(not_bootstrapped(place)),
            Found::Behind(version) => Err(StoreError::NotMigrated(format!(
                "{place}: its tables have version {version} and must have {}: {}",
                STEPS.len(),
                to_run("up")
            ))),
        }
    }

    /// Logs that the tables are newer than this program, if they are.
    pub(super) fn log(self, place: &str) {
        if let Found::Ahead(version) = self {
            tracing::info!("{place}: its tables have {}", ahead(version));
        }
    }
}

/// The version of tables that are newer, but usable.
fn ahead(version: usize) -> String {
    format!("version {version}, newer than this weir's {}, and usable by it", STEPS.len())
}

/// A newer program has changed the tables so that this one cannot use them.
fn too_new(version: impl fmt::Display, place: &str) -> StoreError {
    StoreError::TooNew(format!(
        "{place}: its tables have version {version}, which is newer than this weir knows ({}): use the weir that \
         migrated it, or a later one",
        STEPS.len()
    ))
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
            (Task::Status | Task::List, Found::Ahead(version)) => format!("{place}: {}", ahead(*version)),
            (_, Found::Ahead(version)) => format!("{place}: {}: nothing to do", ahead(*version)),
            (_, Found::Missing) => format!("{place}: bootstrapped, version {newest}"),
            (_, Found::Behind(version)) => format!("{place}: migrated from version {version} to {newest}"),
        }
    }

    /// Whether the tables can be used after a task.
    pub(crate) fn leaves_usable(&self, task: Task) -> bool {
        match self.found {
            Found::Current | Found::Ahead(_) => task != Task::Reset,
            Found::Missing => matches!(task, Task::Bootstrap | Task::Everything),
            Found::Behind(_) => matches!(task, Task::Up | Task::Finish | Task::Everything),
        }
    }
}

/// The version that tables are migrated to.
pub(crate) fn newest() -> usize {
    STEPS.len()
}

/// Performs a task. `lock_timeout` is how long it waits for other sessions of PostgreSQL that use the tables.
pub(crate) async fn perform(
    task: Task,
    settings: &Settings,
    lock_timeout: Duration,
) -> Result<Migrated, StoreError> {
    let (place, found) = match database(settings) {
        Database::Off => {
            let message = "database is `off`, so there are no tables: set it to `postgres` or `sqlite`";
            return Err(StoreError::NotMigrated(message.to_owned()));
        }
        Database::Sqlite => sqlite::migrate(&sqlite_path(settings)?, task).await?,
        Database::Postgres => postgres::Server::of(settings)?.migrate(task, lock_timeout).await?,
    };
    match (task, found) {
        (Task::Up | Task::Finish, Found::Missing) => Err(not_bootstrapped(&place)),
        _ => Ok(Migrated { place, found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(usable_from: i64, migrated_to: i64) -> Result<Found, StoreError> {
        Found::of(Some(Versions { usable_from, migrated_to }), "here")
    }

    #[test]
    fn each_task_takes_its_own_steps() {
        let steps = |found: Found, task| found.steps(task, "here").map(<[Step]>::len);
        let all = Ok(STEPS.len());
        assert_eq!(steps(Found::Missing, Task::Bootstrap), all);
        assert_eq!(steps(Found::Missing, Task::Everything), all);
        assert_eq!(steps(Found::Behind(0), Task::Up), all);
        assert_eq!(steps(Found::Behind(0), Task::Everything), all);
        assert_eq!(steps(Found::Behind(STEPS.len() - 1), Task::Up), Ok(1));
        let ahead = Found::Ahead(STEPS.len() + 1);
        for (found, task) in [
            (Found::Missing, Task::Up),
            (Found::Missing, Task::Status),
            (Found::Behind(0), Task::Bootstrap),
            (Found::Behind(0), Task::Status),
            (Found::Current, Task::Everything),
            (Found::Current, Task::Reset),
            (ahead, Task::Everything),
            (ahead, Task::Bootstrap),
        ] {
            assert_eq!(steps(found, task), Ok(0), "{found:?} {task:?}");
        }
        assert!(matches!(steps(ahead, Task::Reset), Err(StoreError::TooNew(_))));
    }

    #[test]
    fn tables_say_which_programs_can_use_them() {
        let (own, newer) = (version(), version() + 1);
        assert_eq!(Found::of(None, "here"), Ok(Found::Missing));
        assert_eq!(of(own - 1, own - 1), Ok(Found::Behind(STEPS.len() - 1)));
        assert_eq!([of(1, own), of(own, own)], [Ok(Found::Current), Ok(Found::Current)]);
        let ahead = Ok(Found::Ahead(STEPS.len() + 1));
        assert_eq!([of(1, newer), of(own, newer)], [ahead.clone(), ahead]);
        for refused in [of(newer, newer), of(newer, newer + 1), of(newer, own), of(1, -1)] {
            let refused = refused.unwrap_err();
            assert!(
                matches!(&refused, StoreError::TooNew(message) if message.contains("newer")),
                "{refused}"
            );
        }
    }

    /// Weir 0.1.0 uses tables of version 2 and no others.
    #[test]
    fn the_first_release_can_use_the_tables() {
        assert_eq!(usable_from(), 2);
    }

    #[test]
    fn steps_that_are_said_to_only_add_do() {
        for step in STEPS.iter().filter(|step| step.is_additive) {
            for statement in statements(step.sqlite).chain(statements(step.postgres)) {
                let adds = ["CREATE TABLE ", "CREATE INDEX ", "CREATE UNIQUE INDEX "];
                let is_column = statement.starts_with("ALTER TABLE ")
                    && statement.contains(" ADD COLUMN ")
                    && statement.contains(" DEFAULT ");
                let fills = statement.starts_with("UPDATE weir_meta SET epoch = ");
                let is_new = adds.iter().any(|start| statement.starts_with(start));
                assert!(is_new || is_column || fills, "{statement}");
            }
        }
    }

    /// After a dump from before the step was restored, what the dump lacks is there already.
    #[test]
    fn steps_that_only_add_can_be_taken_again() {
        for statement in
            STEPS.iter().filter(|step| step.is_additive).flat_map(|step| statements(step.postgres))
        {
            let is_of_every_dump =
                ["ALTER TABLE weir_meta ", "ALTER TABLE weir_entities ", "UPDATE weir_meta "];
            let is_restored = is_of_every_dump.iter().any(|start| statement.starts_with(start));
            assert!(is_restored || statement.contains(" IF NOT EXISTS "), "{statement}");
        }
    }

    fn statements(sql: &'static str) -> impl Iterator<Item = &'static str> {
        sql.split(';').map(str::trim).filter(|statement| !statement.is_empty())
    }
}
