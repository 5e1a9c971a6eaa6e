//! Data planes in SQLite, beside the entities of the one control plane that has the file.
use super::super::sqlite::{connect, failure, place};
use super::{
    Beat, BeatStatements, FleetStore, LEAVE, Pending, SELECT, Selected, Stamps, StoreError, alive, stamped,
};
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection};
use std::path::Path;
use std::time::Duration;
use tokio::sync::Mutex;
use weir_cluster::control_plane::Stamped;
use weir_model::Uuid;

/// The present second.
const NOW: &str = "CAST(strftime('%s', 'now') AS INTEGER)";

/// What is lost when the machine fails is written again. No other control plane can have the file: those that have had it
/// are gone.
const BEGIN: &str = "PRAGMA synchronous = NORMAL; DELETE FROM weir_control_planes;";

/// A data plane belongs to the control plane that it came to last.
const WRITE: &str = "\
    INSERT INTO weir_data_planes (id, control_plane, stamp, online, last_seen, facts) \
    VALUES ($1, $2, $3, $4, $5, $6) \
    ON CONFLICT (id) DO UPDATE SET control_plane = excluded.control_plane, stamp = excluded.stamp, \
        online = excluded.online, last_seen = excluded.last_seen, facts = excluded.facts \
    WHERE weir_data_planes.control_plane = excluded.control_plane OR $7";

/// Data planes in a file.
pub(super) struct SqliteFleet {
    connection: Mutex<SqliteConnection>,
    statements: BeatStatements,
    place: String,
}

impl SqliteFleet {
    pub(super) async fn open(path: &Path) -> Result<SqliteFleet, StoreError> {
        let place = place(path);
        let mut connection = connect(path, &place).await?;
        let begun = sqlx::raw_sql(BEGIN).execute(&mut connection).await;
        begun.map_err(|error| failure(&place, error))?;
        Ok(SqliteFleet { connection: Mutex::new(connection), statements: BeatStatements::new(NOW), place })
    }

    async fn beat_in(&self, id: Uuid, purge_delay: Duration) -> Result<Beat, sqlx::Error> {
        let (statements, mut connection) = (&self.statements, self.connection.lock().await);
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        let beat = sqlx::query(AssertSqlSafe(statements.beat.as_str())).bind(id.to_string());
        beat.execute(&mut *transaction).await?;
        let sweep = sqlx::raw_sql(AssertSqlSafe(statements.sweep(purge_delay)));
        sweep.execute(&mut *transaction).await?;
        let running = sqlx::query_as(AssertSqlSafe(statements.alive.as_str()));
        let running = running.fetch_all(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(Beat { alive: alive(running), lapsed: false })
    }

    async fn write_in(&self, rows: &[Stamped]) -> Result<(), sqlx::Error> {
        let mut connection = self.connection.lock().await;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        for Stamped { row, stamp } in rows {
            let write = sqlx::query(WRITE).bind(row.id.to_string()).bind(row.control_plane.to_string());
            let write = write.bind(stamp.cast_signed()).bind(row.online).bind(row.last_seen.cast_signed());
            write.bind(row.facts.as_str()).bind(row.is_new).execute(&mut *transaction).await?;
        }
        transaction.commit().await
    }
}

impl FleetStore for SqliteFleet {
    fn beat(&self, id: Uuid, purge_delay: Duration) -> Pending<'_, Beat> {
        Box::pin(async move {
            let beat = self.beat_in(id, purge_delay).await;
            beat.map_err(|error| failure(&self.place, error))
        })
    }

    fn leave(&self, id: Uuid) -> Pending<'_, ()> {
        Box::pin(async move {
            let mut connection = self.connection.lock().await;
            let left = sqlx::query(LEAVE).bind(id.to_string()).execute(&mut *connection).await;
            left.map(drop).map_err(|error| failure(&self.place, error))
        })
    }

    fn write<'a>(&'a self, rows: &'a [Stamped]) -> Pending<'a, ()> {
        Box::pin(async { self.write_in(rows).await.map_err(|error| failure(&self.place, error)) })
    }

    fn read<'a>(&'a self, known: &'a Stamps) -> Pending<'a, Vec<Stamped>> {
        Box::pin(async {
            let mut connection = self.connection.lock().await;
            let read = sqlx::query_as(SELECT).fetch_all(&mut *connection).await;
            let rows: Vec<Selected> = read.map_err(|error| failure(&self.place, error))?;
            let is_newer =
                |it: &Stamped| known.get(&it.row.control_plane).is_none_or(|known| it.stamp > *known);
            Ok(rows.into_iter().filter_map(stamped).filter(is_newer).collect())
        })
    }

    fn changed(&self) -> Pending<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn hurry(&self) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn hurried(&self) -> Pending<'_, ()> {
        Box::pin(std::future::pending())
    }
}
