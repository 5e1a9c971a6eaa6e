//! Migrates the tables that several nodes share, and use meanwhile.
use super::super::StoreError;
use super::super::migrations::{self, Found, REACHED, REMOVE, Task};
use super::history;
use super::server::{Server, quoted};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The advisory lock that nodes take to migrate one database.
const MIGRATION_LOCK: i64 = 0x7765_6972;

/// How long a statement waits for a table that another session uses. All statements of nodes on that table wait behind it.
const STATEMENT_LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the statements of nodes go first after that.
const PAUSE: Duration = Duration::from_secs(1);

/// Why an attempt to migrate failed.
enum AttemptError {
    Driver(sqlx::Error),
    Store(StoreError),
}

impl From<sqlx::Error> for AttemptError {
    fn from(error: sqlx::Error) -> AttemptError {
        AttemptError::Driver(error)
    }
}

impl From<StoreError> for AttemptError {
    fn from(error: StoreError) -> AttemptError {
        AttemptError::Store(error)
    }
}

impl AttemptError {
    /// Whether other sessions have locked what it needs.
    fn is_of_locks(&self) -> bool {
        let AttemptError::Driver(error) = self else { return false };
        // The lock was not available in time, or the sessions waited for each other.
        let code = error.as_database_error().and_then(|error| error.code());
        code.is_some_and(|code| matches!(&*code, "55P03" | "40P01"))
    }
}

impl Server {
    /// Performs a task; returns the state before. Waits, up to a limit, for others that do so, and for sessions that have
    /// locked the tables, such as one of `pg_dump`.
    pub(in crate::store) async fn migrate(
        &self,
        task: Task,
        lock_timeout: Duration,
    ) -> Result<(String, Found), StoreError> {
        let (begun, mut connection) = (Instant::now(), self.connect().await?);
        loop {
            let left = lock_timeout.saturating_sub(begun.elapsed());
            match self.attempt(&mut connection, task, left.min(STATEMENT_LOCK_TIMEOUT)).await {
                Ok(found) => return Ok((self.place.clone(), found)),
                Err(error) if error.is_of_locks() && begun.elapsed() + PAUSE < lock_timeout => {
                    sleep(PAUSE).await;
                }
                Err(error) if error.is_of_locks() => return Err(self.locked(lock_timeout)),
                Err(AttemptError::Driver(error)) => return Err(self.failure(error)),
                Err(AttemptError::Store(error)) => return Err(error),
            }
        }
    }

    /// Tries it in one transaction, of which each statement waits for locks up to a limit.
    async fn attempt(
        &self,
        connection: &mut PgConnection,
        task: Task,
        lock_timeout: Duration,
    ) -> Result<Found, AttemptError> {
        let mut transaction = connection.begin().await?;
        match self.perform(&mut transaction, task, lock_timeout).await {
            Ok(found) => {
                transaction.commit().await?;
                Ok(found)
            }
            Err(error) => {
                // Otherwise there is no further attempt on this connection, and perhaps no answer on it.
                if error.is_of_locks() {
                    transaction.rollback().await?;
                }
                Err(error)
            }
        }
    }

    async fn perform(
        &self,
        connection: &mut PgConnection,
        task: Task,
        lock_timeout: Duration,
    ) -> Result<Found, AttemptError> {
        // There are two locks to wait for.
        let found =
            self.in_time(self.timeout + lock_timeout * 2, self.lock(connection, lock_timeout)).await?;
        let steps = found.steps(task, &self.place)?;
        if found == Found::Missing && task == Task::Bootstrap {
            self.create_schema(connection).await?;
        }
        if task == Task::Reset && found != Found::Missing {
            sqlx::raw_sql(REMOVE).execute(&mut *connection).await?;
        }
        for step in steps {
            sqlx::raw_sql(step.postgres).execute(&mut *connection).await?;
        }
        if !steps.is_empty() {
            let reached = sqlx::query(REACHED).bind(migrations::version()).bind(migrations::usable_from());
            reached.execute(&mut *connection).await?;
        }
        if matches!(found, Found::Behind(_)) && !steps.is_empty() {
            history::skip(connection).await?;
        }
        Ok(found)
    }

    /// Keeps others from migrating until the transaction ends; returns the state of the tables.
    async fn lock(
        &self,
        connection: &mut PgConnection,
        lock_timeout: Duration,
    ) -> Result<Found, AttemptError> {
        // 0 would be no limit.
        let milliseconds = lock_timeout.as_millis().max(1).to_string();
        let limit = sqlx::query("SELECT set_config('lock_timeout', $1, true)").bind(milliseconds);
        limit.execute(&mut *connection).await?;
        let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(MIGRATION_LOCK);
        lock.execute(&mut *connection).await?;
        let versions = Server::versions(connection).await?;
        Ok(self.found_by(versions, connection).await?)
    }

    fn locked(&self, lock_timeout: Duration) -> StoreError {
        let (place, seconds) = (&self.place, lock_timeout.as_secs_f64());
        StoreError::Unavailable(format!(
            "{place}: its tables could not be locked within {seconds} s, because other sessions use them, such as pg_dump, \
             an open transaction, or another process that migrates: wait for these, or end them, and run this again. To \
             find them: SELECT pid, application_name, state, query FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE \
             relation::regclass::text ~ 'weir_|ratelimiting_' OR locktype = 'advisory';"
        ))
    }

    async fn create_schema(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let Some(schema) = &self.schema else { return Ok(()) };
        // `IF NOT EXISTS` would ask for the right to create one even where there is one.
        let there = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)");
        let there: bool = there.bind(schema).fetch_one(&mut *connection).await?;
        if !there {
            let create = format!("CREATE SCHEMA {}", quoted(schema));
            sqlx::query(AssertSqlSafe(create)).execute(connection).await?;
        }
        Ok(())
    }
}
