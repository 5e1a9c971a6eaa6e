//! Rows that traffic creates, such as tokens, in one table beside those of entities. All nodes of a database share them.
mod drivers;

pub(super) use drivers::{PostgresRows, SqliteRows};

use super::{Pending, StoreError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use weir_model::Uuid;
use weir_plugin::{Background, PendingRows, Row, RowError, RowKey, RowStore, unix_time};

/// How often expired rows are removed.
const SWEEP: Duration = Duration::from_secs(300);

/// How many rows a statement removes, because it locks them.
const SWEPT_AT_ONCE: u64 = 10_000;

const INSERT: &str = "INSERT INTO weir_rows (kind, id, first_key, second_key, body, expires) \
    VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";

/// Expired rows that are not removed yet must not be in the way of a new one.
const MAKE_ROOM: &str = "DELETE FROM weir_rows WHERE kind = $1 AND expires <= $5 \
    AND (id = $2 OR first_key = $3 OR second_key = $4)";

const UPDATE: &str = "UPDATE weir_rows SET first_key = $3, second_key = $4, body = $5, expires = $6 \
    WHERE kind = $1 AND id = $2 AND NOT EXISTS (SELECT 1 FROM weir_rows other WHERE other.kind = $1 AND other.id <> $2 \
    AND (other.first_key = $3 OR other.second_key = $4))";

const BY_ID: &str = "SELECT id, first_key, second_key, body, expires FROM weir_rows \
    WHERE kind = $1 AND id = $2 AND (expires IS NULL OR expires > $3)";

const BY_FIRST: &str = "SELECT id, first_key, second_key, body, expires FROM weir_rows \
    WHERE kind = $1 AND first_key = $2 AND (expires IS NULL OR expires > $3)";

const BY_SECOND: &str = "SELECT id, first_key, second_key, body, expires FROM weir_rows \
    WHERE kind = $1 AND second_key = $2 AND (expires IS NULL OR expires > $3)";

const PAGE: &str = "SELECT id, first_key, second_key, body, expires FROM weir_rows \
    WHERE kind = $1 AND id > $2 AND (expires IS NULL OR expires > $3) ORDER BY id LIMIT $4";

const DELETE: &str = "DELETE FROM weir_rows WHERE kind = $1 AND id = $2";

const REMOVE_EXPIRED: &str = "DELETE FROM weir_rows WHERE (kind, id) IN \
    (SELECT kind, id FROM weir_rows WHERE expires <= $1 LIMIT $2)";

/// What a statement has in the place of `$1`, `$2` and so on.
#[derive(Clone)]
pub(super) enum Value {
    Text(Option<String>),
    Number(Option<i64>),
}

/// A row as statements return it.
pub(super) type Selected = (String, Option<String>, Option<String>, String, Option<i64>);

/// Runs statements, which are the same for both kinds of database.
pub(super) trait Driver: Send + Sync + 'static {
    /// How many rows it has changed.
    fn execute(&self, statement: &'static str, values: Vec<Value>) -> Pending<'_, u64>;
    fn select(&self, statement: &'static str, values: Vec<Value>) -> Pending<'_, Vec<Selected>>;
    /// The time since 1970, by the clock that all nodes of the database share.
    fn time(&self) -> Pending<'_, Duration>;
}

/// Rows in a database.
pub(super) struct DatabaseRows {
    driver: Arc<dyn Driver>,
    /// A connection belongs to the runtime that made it, so that workers do not use it themselves.
    background: Arc<Background>,
    /// None before the first removal, so that nodes that live shorter than the interval remove rows too.
    swept: Mutex<Option<Instant>>,
}

impl DatabaseRows {
    pub(super) fn new(driver: Arc<dyn Driver>, background: Arc<Background>) -> DatabaseRows {
        DatabaseRows { driver, background, swept: Mutex::default() }
    }

    fn run<T: Send + 'static, F>(&self, work: impl FnOnce(Arc<dyn Driver>) -> F) -> PendingRows<T>
    where
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let work = work(self.driver.clone());
        self.background.spawn(async move {
            // The caller may have gone.
            let _ = sender.send(work.await);
        });
        Box::pin(async move {
            match receiver.await {
                Ok(done) => done.map_err(|error| RowError(error.to_string())),
                Err(_) => Err(RowError("the thread of plugins does not run".to_owned())),
            }
        })
    }

    /// Removes expired rows in batches, now and then.
    fn sweep(&self) {
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        if swept.is_some_and(|swept| swept.elapsed() < SWEEP) {
            return;
        }
        *swept = Some(Instant::now());
        let driver = self.driver.clone();
        self.background.spawn(async move {
            if let Err(error) = remove_expired(&*driver).await {
                tracing::warn!("expired tokens and sessions could not be removed from the database: {error}");
            }
        });
    }
}

async fn remove_expired(driver: &dyn Driver) -> Result<(), StoreError> {
    let limit = number(Some(SWEPT_AT_ONCE));
    while driver.execute(REMOVE_EXPIRED, vec![now(), limit.clone()]).await? == SWEPT_AT_ONCE {}
    Ok(())
}

impl RowStore for DatabaseRows {
    fn insert(&self, kind: &'static str, row: Row) -> PendingRows<bool> {
        self.sweep();
        self.run(|driver| async move {
            let values = values(kind, &row);
            if driver.execute(INSERT, values.clone()).await? > 0 {
                return Ok(true);
            }
            let expired = values[..4].iter().cloned().chain([now()]).collect();
            driver.execute(MAKE_ROOM, expired).await?;
            Ok(driver.execute(INSERT, values).await? > 0)
        })
    }

    fn update(&self, kind: &'static str, row: Row) -> PendingRows<bool> {
        self.run(|driver| async move { Ok(driver.execute(UPDATE, values(kind, &row)).await? > 0) })
    }

    fn find(&self, kind: &'static str, key: RowKey) -> PendingRows<Option<Row>> {
        let (statement, key) = match key {
            RowKey::Id(id) => (BY_ID, id.to_string()),
            RowKey::First(key) => (BY_FIRST, key),
            RowKey::Second(key) => (BY_SECOND, key),
        };
        self.run(move |driver| async move {
            let selected = driver.select(statement, vec![text(kind), text(key), now()]).await?;
            Ok(selected.into_iter().find_map(row))
        })
    }

    fn page(&self, kind: &'static str, after: Option<Uuid>, size: usize) -> PendingRows<Vec<Row>> {
        let after = after.map(|id| id.to_string()).unwrap_or_default();
        self.run(move |driver| async move {
            let size = number(Some(size as u64));
            let selected = driver.select(PAGE, vec![text(kind), text(after), now(), size]).await?;
            Ok(selected.into_iter().filter_map(row).collect())
        })
    }

    fn delete(&self, kind: &'static str, id: Uuid) -> PendingRows<bool> {
        self.run(move |driver| async move {
            Ok(driver.execute(DELETE, vec![text(kind), text(id.to_string())]).await? > 0)
        })
    }

    fn time(&self) -> PendingRows<Duration> {
        self.run(|driver| async move { driver.time().await })
    }
}

/// A row as a statement writes it.
fn values(kind: &str, row: &Row) -> Vec<Value> {
    let key = |key: &Option<String>| Value::Text(key.as_deref().map(storable));
    let (first, second, body) = (key(&row.first), key(&row.second), text(row.body.to_string()));
    vec![text(kind), text(row.id.to_string()), first, second, body, number(row.expires)]
}

fn row((id, first, second, body, expires): Selected) -> Option<Row> {
    let (id, body) = (id.parse().ok()?, serde_json::from_str(&body).ok()?);
    Some(Row { id, first, second, body, expires: expires.map(|expires| expires.max(0).cast_unsigned()) })
}

fn text(text: impl AsRef<str>) -> Value {
    Value::Text(Some(storable(text.as_ref())))
}

/// PostgreSQL has no text with a NUL. No key that anybody is given has one.
fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn number(number: Option<u64>) -> Value {
    Value::Number(number.map(|number| i64::try_from(number).unwrap_or(i64::MAX)))
}

fn now() -> Value {
    number(Some(unix_time()))
}
