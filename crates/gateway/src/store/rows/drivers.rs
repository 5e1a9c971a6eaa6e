//! Statements on rows in SQLite and PostgreSQL, each on a connection of their own.
use super::super::postgres::Server;
use super::super::sqlite::{connect, failure, place};
use super::{Driver, Pending, Selected, StoreError, Value};
use sqlx::Connection;
use sqlx::postgres::PgConnection;
use sqlx::query::{Query, QueryAs};
use sqlx::sqlite::SqliteConnection;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use tokio::sync::Mutex;

/// How many times `pg_timeout` a statement may take: to find that a connection is lost, to make another, and to run.
const TIMEOUT_FACTOR: u32 = 3;

/// Rows in the file of the node's entities.
pub(in crate::store) struct SqliteRows {
    path: PathBuf,
    /// None while it is in use, and after an error.
    connection: Mutex<Option<SqliteConnection>>,
}

/// Rows in the database of the nodes' entities.
pub(in crate::store) struct PostgresRows {
    server: Server,
    /// None while it is in use, and after an error.
    connection: Mutex<Option<PgConnection>>,
}

impl SqliteRows {
    pub(in crate::store) fn new(path: PathBuf) -> SqliteRows {
        SqliteRows { path, connection: Mutex::default() }
    }

    async fn on_connection<T>(
        &self,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let (mut held, place) = (self.connection.lock().await, place(&self.path));
        let mut connection = match held.take() {
            Some(connection) => connection,
            None => connect(&self.path, &place).await?,
        };
        match work(&mut connection).await {
            Ok(done) => {
                *held = Some(connection);
                Ok(done)
            }
            Err(error) => {
                // The failure that matters is the statement's.
                drop(connection.close().await);
                Err(failure(&place, error))
            }
        }
    }
}

impl PostgresRows {
    pub(in crate::store) fn new(server: Server) -> PostgresRows {
        PostgresRows { server, connection: Mutex::default() }
    }

    async fn on_connection<T>(
        &self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let server = &self.server;
        let done = server.in_time(server.timeout * TIMEOUT_FACTOR, async {
            let mut held = self.connection.lock().await;
            let mut connection = self.connected(held.take()).await?;
            let done = work(&mut connection).await.map_err(|error| server.failure(error))?;
            *held = Some(connection);
            Ok(done)
        });
        done.await
    }

    /// The connection, or a new one if it was lost meanwhile.
    async fn connected(&self, held: Option<PgConnection>) -> Result<PgConnection, StoreError> {
        if let Some(mut connection) = held
            && self.server.is_usable(&mut connection).await
        {
            return Ok(connection);
        }
        self.server.connect().await
    }
}

/// A statement with its values, for one kind of database.
macro_rules! bound {
    ($statement:ident: $query:ty, $values:ident) => {
        $values.into_iter().fold($statement, |query: $query, value| match value {
            Value::Text(text) => query.bind(text),
            Value::Number(number) => query.bind(number),
        })
    };
}

impl Driver for SqliteRows {
    fn execute(&self, statement: &'static str, values: Vec<Value>) -> Pending<'_, u64> {
        Box::pin(self.on_connection(async move |connection| {
            let query = sqlx::query(statement);
            let query = bound!(query: Query<'_, sqlx::Sqlite, _>, values);
            query.execute(connection).await.map(|done| done.rows_affected())
        }))
    }

    fn select(&self, statement: &'static str, values: Vec<Value>) -> Pending<'_, Vec<Selected>> {
        Box::pin(self.on_connection(async move |connection| {
            let query = sqlx::query_as(statement);
            let query = bound!(query: QueryAs<'_, sqlx::Sqlite, Selected, _>, values);
            query.fetch_all(connection).await
        }))
    }

    fn time(&self) -> Pending<'_, Duration> {
        // A file is on the machine of the nodes that use it.
        Box::pin(async { Ok(SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()) })
    }
}

impl Driver for PostgresRows {
    fn execute(&self, statement: &'static str, values: Vec<Value>) -> Pending<'_, u64> {
        Box::pin(self.on_connection(async move |connection| {
            let query = sqlx::query(statement);
            let query = bound!(query: Query<'_, sqlx::Postgres, _>, values);
            query.execute(connection).await.map(|done| done.rows_affected())
        }))
    }

    fn select(&self, statement: &'static str, values: Vec<Value>) -> Pending<'_, Vec<Selected>> {
        Box::pin(self.on_connection(async move |connection| {
            let query = sqlx::query_as(statement);
            let query = bound!(query: QueryAs<'_, sqlx::Postgres, Selected, _>, values);
            query.fetch_all(connection).await
        }))
    }

    fn time(&self) -> Pending<'_, Duration> {
        Box::pin(self.on_connection(async |connection| {
            let query = sqlx::query_as("SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint");
            let (milliseconds,): (i64,) = query.fetch_one(connection).await?;
            Ok(Duration::from_millis(milliseconds.max(0).cast_unsigned()))
        }))
    }
}
