//! Data planes in PostgreSQL, which several control planes share.
use super::super::change_listener;
use super::super::postgres::Server;
use super::{
    Beat, BeatStatements, FleetStore, LEAVE, Pending, SELECT, Selected, Stamps, StoreError, alive, stamped,
};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Notify};
use tokio::task::AbortHandle;
use weir_cluster::control_plane::Stamped;
use weir_model::Uuid;

/// The present second by the server's clock, which all control planes share.
const NOW: &str = "EXTRACT(EPOCH FROM now())::bigint";

/// What is lost in a crash of the server is written again.
const HASTY: &str = "SET synchronous_commit = off";

/// A data plane belongs to the control plane that it came to last: the one before cannot change its row any more, even if
/// both write at once.
const WRITE: &str = "\
    INSERT INTO weir_data_planes (id, control_plane, stamp, online, last_seen, facts) \
    SELECT * FROM UNNEST($1::text[], $2::text[], $3::bigint[], $4::boolean[], $5::bigint[], $6::text[]) \
    ON CONFLICT (id) DO UPDATE SET control_plane = excluded.control_plane, stamp = excluded.stamp, \
        online = excluded.online, last_seen = excluded.last_seen, facts = excluded.facts \
    WHERE weir_data_planes.control_plane = excluded.control_plane OR excluded.id = ANY($7::text[])";

/// The condition of rows that are newer than what is known.
const NEWER: &str = "\
    WHERE stamp > COALESCE((SELECT known.stamp FROM UNNEST($1::text[], $2::bigint[]) AS known (id, stamp) \
        WHERE known.id = control_plane), -1)";

/// Data planes in a database.
pub(super) struct PostgresFleet {
    server: Arc<Server>,
    /// None while it is in use, and after an error.
    connection: Mutex<Option<PgConnection>>,
    statements: BeatStatements,
    /// The channels of what was written, and of what waits.
    channels: [String; 2],
    heard: [Arc<Notify>; 2],
    listening: AbortHandle,
}

impl PostgresFleet {
    pub(super) async fn open(server: Server) -> Result<PostgresFleet, StoreError> {
        let mut connection = connect(&server).await?;
        let schema = sqlx::query_scalar("SELECT current_schema()::text").fetch_one(&mut connection).await;
        let schema: Option<String> = schema.map_err(|error| server.failure(error))?;
        let channels =
            ["weir_rows", "weir_wait"].map(|prefix| change_listener::channel(prefix, schema.as_deref()));
        let (server, heard) = (Arc::new(server), [Arc::default(), Arc::default()]);
        let listened = channels.iter().cloned().zip(heard.iter().cloned()).collect();
        let listening = tokio::spawn(change_listener::listen(server.clone(), listened)).abort_handle();
        let (connection, statements) = (Mutex::new(Some(connection)), BeatStatements::new(NOW));
        Ok(PostgresFleet { server, connection, statements, channels, heard, listening })
    }

    /// Works on the connection, which is closed if that fails.
    fn on_connection<'a, T: Send + 'a>(
        &'a self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error> + 'a,
    ) -> impl Future<Output = Result<T, StoreError>> {
        self.server.in_time(self.server.timeout, async {
            let mut held = self.connection.lock().await;
            let mut connection = match held.take() {
                Some(connection) => connection,
                None => connect(&self.server).await?,
            };
            let done = work(&mut connection).await.map_err(|error| self.server.failure(error))?;
            *held = Some(connection);
            Ok(done)
        })
    }
}

async fn connect(server: &Server) -> Result<PgConnection, StoreError> {
    let mut connection = server.connect().await?;
    let hasty = sqlx::query(HASTY).execute(&mut connection).await;
    hasty.map_err(|error| server.failure(error))?;
    Ok(connection)
}

impl FleetStore for PostgresFleet {
    fn beat(&self, id: Uuid, purge_delay: Duration) -> Pending<'_, Beat> {
        Box::pin(self.on_connection(async move |connection| {
            let (statements, id) = (&self.statements, id.to_string());
            let mut transaction = connection.begin().await?;
            let own = sqlx::query_scalar(AssertSqlSafe(statements.lapsed.as_str())).bind(&id);
            let own: i64 = own.fetch_one(&mut *transaction).await?;
            let beat = sqlx::query(AssertSqlSafe(statements.beat.as_str())).bind(&id);
            beat.execute(&mut *transaction).await?;
            let sweep = sqlx::raw_sql(AssertSqlSafe(statements.sweep(purge_delay)));
            sweep.execute(&mut *transaction).await?;
            let running = sqlx::query_as(AssertSqlSafe(statements.alive.as_str()));
            let running = running.fetch_all(&mut *transaction).await?;
            transaction.commit().await?;
            Ok(Beat { alive: alive(running), lapsed: own == 0 })
        }))
    }

    fn leave(&self, id: Uuid) -> Pending<'_, ()> {
        Box::pin(self.on_connection(async move |connection| {
            sqlx::query(LEAVE).bind(id.to_string()).execute(connection).await.map(drop)
        }))
    }

    fn write<'a>(&'a self, rows: &'a [Stamped]) -> Pending<'a, ()> {
        let ids = |id: fn(&Stamped) -> Uuid| rows.iter().map(|it| id(it).to_string()).collect::<Vec<_>>();
        let numbers =
            |number: fn(&Stamped) -> u64| rows.iter().map(|it| number(it).cast_signed()).collect::<Vec<_>>();
        let new: Vec<_> = rows.iter().filter(|it| it.row.is_new).map(|it| it.row.id.to_string()).collect();
        let write = sqlx::query(WRITE)
            .bind(ids(|it| it.row.id))
            .bind(ids(|it| it.row.control_plane))
            .bind(numbers(|it| it.stamp))
            .bind(rows.iter().map(|it| it.row.online).collect::<Vec<_>>())
            .bind(numbers(|it| it.row.last_seen))
            .bind(rows.iter().map(|it| it.row.facts.clone()).collect::<Vec<_>>())
            .bind(new);
        Box::pin(self.on_connection(async move |connection| {
            write.execute(&mut *connection).await?;
            notify(connection, &self.channels[0]).await
        }))
    }

    fn read<'a>(&'a self, known: &'a Stamps) -> Pending<'a, Vec<Stamped>> {
        Box::pin(self.on_connection(async move |connection| {
            let read = format!("{SELECT} {NEWER}");
            let ids: Vec<_> = known.keys().map(Uuid::to_string).collect();
            let stamps: Vec<_> = known.values().map(|stamp| stamp.cast_signed()).collect();
            let read = sqlx::query_as(AssertSqlSafe(read)).bind(ids).bind(stamps);
            let rows: Vec<Selected> = read.fetch_all(connection).await?;
            Ok(rows.into_iter().filter_map(stamped).collect())
        }))
    }

    fn changed(&self) -> Pending<'_, ()> {
        Box::pin(async {
            self.heard[0].notified().await;
            Ok(())
        })
    }

    fn hurry(&self) -> Pending<'_, ()> {
        Box::pin(self.on_connection(async move |connection| notify(connection, &self.channels[1]).await))
    }

    fn hurried(&self) -> Pending<'_, ()> {
        Box::pin(async {
            self.heard[1].notified().await;
            Ok(())
        })
    }
}

async fn notify(connection: &mut PgConnection, channel: &str) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT pg_notify($1, '')").bind(channel).execute(connection).await.map(drop)
}

impl Drop for PostgresFleet {
    fn drop(&mut self) {
        self.listening.abort();
    }
}
