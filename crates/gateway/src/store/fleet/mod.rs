//! The data planes of the control planes that share a store: a row for each in `weir_data_planes`, and in
//! `weir_control_planes` when each control plane said last that it runs.
mod postgres;
mod sqlite;

use super::postgres::Server;
use super::{Database, Pending, StoreError, database, sqlite_path};
use crate::settings::Settings;
use postgres::PostgresFleet;
use sqlite::SqliteFleet;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use weir_cluster::control_plane::{Row, Stamped};
use weir_model::Uuid;

/// After how many seconds without a beat a control plane counts as gone.
const GONE_AFTER: i64 = 30;

/// How many data planes that are gone are kept.
const MAX_OFFLINE: i64 = 10_000;

/// For how many seconds a control plane that is gone is kept.
const KEPT: i64 = 3600;

/// The newest number of each control plane's rows that is known.
pub(crate) type Stamps = BTreeMap<Uuid, u64>;

/// The columns of a row.
type Selected = (String, String, i64, bool, i64, String);

const SELECT: &str = "SELECT id, control_plane, stamp, online, last_seen, facts FROM weir_data_planes";

/// What a beat finds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Beat {
    /// How many seconds ago each control plane that runs said so.
    pub(crate) alive: BTreeMap<Uuid, u64>,
    /// Whether the others took this one for gone.
    pub(crate) lapsed: bool,
}

/// Where control planes share what they know of their data planes.
pub(crate) trait FleetStore: Send + Sync + 'static {
    /// Notes that a control plane runs. Data planes of others that do not are stored as offline from then on, and removed
    /// after the delay.
    fn beat(&self, id: Uuid, purge_delay: Duration) -> Pending<'_, Beat>;
    /// Notes that a control plane runs no more.
    fn leave(&self, id: Uuid) -> Pending<'_, ()>;
    /// Writes rows, and has the others read them.
    fn write<'a>(&'a self, rows: &'a [Stamped]) -> Pending<'a, ()>;
    /// Rows that are newer than what is known.
    fn read<'a>(&'a self, known: &'a Stamps) -> Pending<'a, Vec<Stamped>>;
    /// Returns when others may have written; never, if there are no others.
    fn changed(&self) -> Pending<'_, ()>;
    /// Asks the others not to wait with what they are to write.
    fn hurry(&self) -> Pending<'_, ()>;
    /// Returns when another one asks for that.
    fn hurried(&self) -> Pending<'_, ()>;
}

/// Opens it in the database that the settings name, whose tables are there; none for `database = off`.
pub(crate) async fn open(settings: &Settings) -> Result<Option<Arc<dyn FleetStore>>, StoreError> {
    Ok(match database(settings) {
        Database::Off => None,
        Database::Sqlite => Some(Arc::new(SqliteFleet::open(&sqlite_path(settings)?).await?)),
        Database::Postgres => Some(Arc::new(PostgresFleet::open(Server::of(settings)?).await?)),
    })
}

/// Has the others take a control plane for gone.
const LEAVE: &str = "DELETE FROM weir_control_planes WHERE id = $1";

/// The statements of a beat, with the database's word for the present second. `$1` is the control plane.
struct BeatStatements {
    now: &'static str,
    lapsed: String,
    beat: String,
    alive: String,
}

impl BeatStatements {
    fn new(now: &'static str) -> BeatStatements {
        BeatStatements {
            now,
            lapsed: format!("SELECT COUNT(*) FROM ({} AND id = $1) AS alive", select_alive(now)),
            beat: format!(
                "INSERT INTO weir_control_planes (id, seen) VALUES ($1, {now}) \
                 ON CONFLICT (id) DO UPDATE SET seen = excluded.seen"
            ),
            alive: format!(
                "SELECT id, {now} - seen FROM weir_control_planes WHERE seen >= {now} - {GONE_AFTER}"
            ),
        }
    }

    /// Stores data planes of control planes that are gone as offline, and removes what has been gone for long.
    fn sweep(&self, purge_delay: Duration) -> String {
        let (now, alive, delay) = (self.now, select_alive(self.now), purge_delay.as_secs());
        let seen = "SELECT c.seen FROM weir_control_planes c WHERE c.id = weir_data_planes.control_plane";
        format!(
            "UPDATE weir_data_planes SET online = false, last_seen = COALESCE(({seen}), last_seen) \
                 WHERE online AND control_plane NOT IN ({alive}); \
             DELETE FROM weir_control_planes WHERE seen < {now} - {KEPT}; \
             DELETE FROM weir_data_planes WHERE NOT online AND last_seen < {now} - {delay}; \
             DELETE FROM weir_data_planes WHERE id IN (SELECT id FROM weir_data_planes WHERE NOT online \
                 ORDER BY last_seen DESC LIMIT 1000000 OFFSET {MAX_OFFLINE});"
        )
    }
}

fn select_alive(now: &str) -> String {
    format!("SELECT id FROM weir_control_planes WHERE seen >= {now} - {GONE_AFTER}")
}

fn alive(selected: Vec<(String, i64)>) -> BTreeMap<Uuid, u64> {
    let alive =
        selected.into_iter().filter_map(|(id, ago)| Some((id.parse().ok()?, ago.max(0).cast_unsigned())));
    alive.collect()
}

/// A row that cannot be read is left out: what it is of says it again.
fn stamped((id, control_plane, stamp, online, last_seen, facts): Selected) -> Option<Stamped> {
    let row = Row {
        id: id.parse().ok()?,
        control_plane: control_plane.parse().ok()?,
        online,
        last_seen: last_seen.cast_unsigned(),
        facts,
        is_new: false,
    };
    Some(Stamped { row, stamp: stamp.cast_unsigned() })
}
