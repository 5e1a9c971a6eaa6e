//! The history that revisions count in, as far as the server shows it.
//!
//! A standby that is promoted may lack the last commits of the server that is gone, and what it commits then would have
//! their revisions: nodes that know the lost commits would not notice. The same is true of a database that was restored
//! from a backup. Therefore the first node that connects to such a server, or is to write there on a connection that it kept,
//! skips revisions, so that no node has a newer one than those skipped, and all nodes read everything again.
use super::super::change_listener;
use super::super::migrations::version;
use sqlx::postgres::PgConnection;

/// The revision after a skip: the present millisecond. It is more than any that a node may know, also where the same backup
/// is restored again, unless the clock is wrong; then it is at least more than a standby lacks, or a backup is old. Kong's data
/// planes write revisions with 14 digits, of which a microsecond has more.
macro_rules! next {
    () => {
        "GREATEST(revision + 1000000, (EXTRACT(EPOCH FROM statement_timestamp()) * 1000)::bigint)"
    };
}

/// Where the tables are: the identifier of the server's data, its timeline, which each promotion and each recovery to a
/// point in time changes, and the table itself, which `pg_restore` creates again. Nothing is skipped where none was noted.
const BEGIN: &str = concat!(
    "WITH here AS ( \
        SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()), \
            left(pg_walfile_name(pg_current_wal_lsn()), 8), 'weir_meta'::regclass::oid) AS history \
    ), \
    noted AS ( \
        UPDATE weir_meta SET history = here.history \
        FROM here WHERE weir_meta.history = '' AND version <= $1 AND migrated_to >= $1 \
    ) \
    UPDATE weir_meta SET history = here.history, revision = ",
    next!(),
    ", oldest = ",
    next!(),
    " FROM here WHERE weir_meta.history NOT IN ('', here.history) AND version <= $1 AND migrated_to >= $1 \
    RETURNING revision"
);

/// Where a server does not show its history, one that was noted for another table is that of a restored dump. None is noted
/// then, so that the server can be written to.
const FORGET: &str = concat!(
    "UPDATE weir_meta SET history = '', revision = ",
    next!(),
    ", oldest = ",
    next!(),
    " WHERE history <> '' AND history NOT LIKE '%/' || tableoid::text AND version <= $1 AND migrated_to >= $1 \
    RETURNING revision"
);

/// Has all nodes read everything again.
const SKIP: &str = concat!("UPDATE weir_meta SET revision = ", next!(), ", oldest = ", next!());

/// What a server says of its history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    /// It is the one that was noted, as far as the server shows it.
    Same,
    /// It is another one, which begins with this revision.
    At(i64),
    /// Nothing: it is a standby, whose history changes once it is promoted.
    Standby,
}

/// Goes on from another revision, because the tables do not say which history they are of: a dump of an older version may
/// have been restored.
pub(super) async fn skip(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query(SKIP).execute(&mut *connection).await?;
    notify(connection).await
}

/// Begins another history if the server is not the one that wrote last, or its data is not what it was.
pub(super) async fn begin(connection: &mut PgConnection) -> Result<Begun, sqlx::Error> {
    let mut begun = sqlx::query_scalar(BEGIN).bind(version()).fetch_optional(&mut *connection).await;
    if let Err(error) = &begun
        && is_not_shown(error)
    {
        tracing::debug!(%error, "the server does not show its history");
        begun = sqlx::query_scalar(FORGET).bind(version()).fetch_optional(&mut *connection).await;
    }
    match begun {
        Ok(None) => Ok(Begun::Same),
        Ok(Some(revision)) => {
            notify(connection).await?;
            Ok(Begun::At(revision))
        }
        // Whatever reads or writes them next says so.
        Err(error) if is_of_older_tables(&error) => Ok(Begun::Same),
        Err(error) if is_of_standby(&error) => Ok(Begun::Standby),
        Err(error) if is_not_shown(&error) => Ok(Begun::Same),
        Err(error) => Err(error),
    }
}

/// Has nodes look for what is new.
async fn notify(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let schema = sqlx::query_scalar("SELECT current_schema()::text").fetch_one(&mut *connection).await?;
    let schema: Option<String> = schema;
    let channel = change_listener::channel("weir", schema.as_deref());
    sqlx::query("SELECT pg_notify($1, '')").bind(channel).execute(connection).await.map(drop)
}

/// Whether a statement failed because the tables lack a column, as those of a restored backup may.
pub(super) fn is_of_older_tables(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "42703")
}

/// Whether the server lacks these functions or keeps them from the user, as services do that only resemble PostgreSQL, or cannot
/// write.
fn is_not_shown(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| matches!(&*code, "55000" | "42501" | "42883" | "0A000")) || is_of_standby(error)
}

/// Whether the server cannot write.
fn is_of_standby(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "25006")
}
