//! Migrates the tables that several nodes share.
use super::super::StoreError;
use super::super::migrations::{self, Found, REACHED, REMOVE, Task};
use super::server::{Server, quoted};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};

/// The advisory lock that nodes take to migrate one database.
const MIGRATION_LOCK: i64 = 0x7765_6972;

impl Server {
    /// Performs a task; returns the state before. Other nodes that do so at the same time wait.
    pub(in crate::store) async fn migrate(&self, task: Task) -> Result<(String, Found), StoreError> {
        let failed = |error| self.failure(error);
        let mut connection = self.connect().await?;
        let mut transaction = connection.begin().await.map_err(failed)?;
        let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(MIGRATION_LOCK);
        lock.execute(&mut *transaction).await.map_err(failed)?;
        let found = self.found(&mut transaction).await?;
        let steps = found.steps(task, &self.place)?;
        if found == Found::Missing && task == Task::Bootstrap {
            self.create_schema(&mut transaction).await.map_err(failed)?;
        }
        if task == Task::Reset && found != Found::Missing {
            sqlx::raw_sql(REMOVE).execute(&mut *transaction).await.map_err(failed)?;
        }
        for step in steps {
            sqlx::raw_sql(step.postgres).execute(&mut *transaction).await.map_err(failed)?;
        }
        if !steps.is_empty() {
            let reached = sqlx::query(REACHED).bind(migrations::version()).bind(migrations::usable_from());
            reached.execute(&mut *transaction).await.map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)?;
        Ok((self.place.clone(), found))
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
