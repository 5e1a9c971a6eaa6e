//! The counts of rate limits that nodes share, in Kong's tables in PostgreSQL.
use super::StoreError;
use super::postgres::Server;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use weir_model::Uuid;
use weir_plugins::limits::{
    Add, Bound, CounterKey, CounterStore, Pending, Period, Take, Taken, Unavailable, Window,
};

/// How often expired rows are removed.
const SWEEP: Duration = Duration::from_secs(300);

/// How many rows a statement removes, because it locks them and fills the server's log.
const SWEPT_AT_ONCE: u64 = 10_000;

/// Commits do not wait for the server's disk, because every request would; a crash may lose the last counts.
const HASTY: &str = "SET synchronous_commit = off";

/// Selects rows by their keys, which every statement gets in this form.
const GIVEN: &str = "UNNEST($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::bigint[]) \
    AS given (identifier, period, starts, service, route, amount, kept)";

/// The counts in the database of this node's configuration.
pub(super) struct Counters {
    server: Server,
    /// None while it is in use, and after an error.
    connection: Mutex<Option<PgConnection>>,
    /// None before the first removal, so that nodes that live shorter than the interval remove rows too.
    swept: std::sync::Mutex<Option<Instant>>,
}

/// One row: the count of an identifier in a window.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    counter: Arc<CounterKey>,
    period: Period,
    starts: u64,
}

/// A row, how much it is to change by, and for how many seconds it is kept.
type Change = (Key, i64, u64);
type Counts = HashMap<Key, u64>;

impl Key {
    fn of(counter: &Arc<CounterKey>, window: Window) -> Key {
        Key { counter: counter.clone(), period: window.period, starts: window.starts }
    }

    fn table(&self) -> &'static str {
        match self.counter.of_responses {
            None => "ratelimiting_metrics",
            Some(_) => "response_ratelimiting_metrics",
        }
    }

    /// As Kong writes it.
    fn period(&self) -> String {
        match &self.counter.of_responses {
            None => self.period.name().to_owned(),
            Some(name) => format!("{name}_{}", self.period.name()),
        }
    }
}

impl Counters {
    pub(super) fn new(server: Server) -> Counters {
        Counters { server, connection: Mutex::default(), swept: std::sync::Mutex::default() }
    }

    /// Works on the connection, which is closed if that fails.
    async fn on_connection<T>(
        &self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, Unavailable> {
        let done = self.server.in_time(self.server.timeout, async {
            let failed = |error| self.server.failure(error);
            let mut held = self.connection.lock().await;
            let mut connection = match held.take() {
                Some(connection) => connection,
                None => connect(&self.server).await?,
            };
            let done = work(&mut connection).await.map_err(failed)?;
            if self.is_time_to_sweep() {
                // The counts are committed, however long this takes.
                tokio::spawn(swept(self.server.clone()));
            }
            *held = Some(connection);
            Ok(done)
        });
        done.await.map_err(|error: StoreError| Unavailable(error.to_string()))
    }

    fn is_time_to_sweep(&self) -> bool {
        let mut swept = self.swept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let is_time = swept.is_none_or(|swept| swept.elapsed() > SWEEP);
        if is_time {
            *swept = Some(Instant::now());
        }
        is_time
    }
}

impl CounterStore for Counters {
    fn place(&self) -> &str {
        &self.server.place
    }

    fn take<'a>(&'a self, takes: &'a [Take]) -> Pending<'a, Vec<Option<Taken>>> {
        Box::pin(self.on_connection(async move |connection| {
            let mut counts = read(connection, &keys(takes)).await?;
            let mut taken: Vec<u64> = takes.iter().map(|take| room(take, &counts).min(take.wanted)).collect();
            if taken.iter().any(|taken| *taken > 0) {
                let mut transaction = connection.begin().await?;
                counts.extend(change(&mut transaction, &changes(takes, &taken)).await?);
                let over: Vec<_> =
                    takes.iter().zip(&taken).map(|(take, taken)| over(take, *taken, &counts)).collect();
                if over.iter().any(|over| *over > 0) {
                    // The rows are locked, so no other node has read them meanwhile.
                    let back = changes(takes, &over).into_iter().map(|(key, over, kept)| (key, -over, kept));
                    counts.extend(change(&mut transaction, &back.collect::<Vec<_>>()).await?);
                    taken.iter_mut().zip(over).for_each(|(taken, over)| *taken -= over);
                }
                transaction.commit().await?;
            }
            Ok(takes.iter().zip(taken).map(|(take, taken)| Some(taken_of(take, taken, &counts))).collect())
        }))
    }

    fn add<'a>(&'a self, adds: &'a [Add]) -> Pending<'a, Vec<Option<u64>>> {
        Box::pin(self.on_connection(async move |connection| {
            let change_of = |add: &Add| {
                let amount = i64::try_from(add.amount).unwrap_or(i64::MAX);
                (Key::of(&add.key, add.window), amount, add.window.kept)
            };
            let changes: Vec<_> = adds.iter().map(change_of).collect();
            // All or none, because after an error the caller sends all of it again.
            let mut transaction = connection.begin().await?;
            let counts = change(&mut transaction, &changes).await?;
            transaction.commit().await?;
            Ok(changes.iter().map(|(key, ..)| counts.get(key).copied()).collect())
        }))
    }

    fn reach(&self) -> Pending<'_, ()> {
        // The same work as for a request, because a server may respond and yet be unable to count.
        Box::pin(self.on_connection(async |connection| {
            let counter = CounterKey {
                route: Uuid::nil(),
                service: Uuid::nil(),
                identifier: "".into(),
                of_responses: None,
            };
            let key = Key { counter: Arc::new(counter), period: Period::Second, starts: 0 };
            let mut transaction = connection.begin().await?;
            change(&mut transaction, &[(key, 0, 0)]).await?;
            transaction.rollback().await
        }))
    }
}

/// The rows that decide, with those of the previous windows.
fn keys(takes: &[Take]) -> Vec<Change> {
    let of_bound = |take: &Take, bound: &Bound| {
        let key = Key::of(&take.key, bound.window);
        let before = bound.before.map(|(starts, _)| Key { starts, ..key.clone() });
        std::iter::once(key).chain(before).map(|key| (key, 0, 0)).collect::<Vec<_>>()
    };
    takes.iter().flat_map(|take| take.bounds.iter().flat_map(move |bound| of_bound(take, bound))).collect()
}

/// What the window of a bound has, and what the one before adds to it.
fn count(take: &Take, bound: &Bound, counts: &Counts) -> (u64, u64) {
    let key = Key::of(&take.key, bound.window);
    let at = |key: &Key| counts.get(key).copied().unwrap_or_default();
    let carried = bound.before.map_or(0, |(starts, slide)| slide.carried(at(&Key { starts, ..key.clone() })));
    (at(&key), carried)
}

/// How much every bound leaves.
fn room(take: &Take, counts: &Counts) -> u64 {
    let room = |bound: &Bound| {
        let (count, carried) = count(take, bound, counts);
        bound.admits.saturating_sub(count.saturating_add(carried))
    };
    take.bounds.iter().map(room).min().unwrap_or(0)
}

/// How much of what was taken is more than a bound admits, since others have taken as well.
fn over(take: &Take, taken: u64, counts: &Counts) -> u64 {
    let over = |bound: &Bound| {
        let (count, carried) = count(take, bound, counts);
        count.saturating_add(carried).saturating_sub(bound.admits)
    };
    take.bounds.iter().map(over).max().unwrap_or(0).min(taken)
}

fn taken_of(take: &Take, taken: u64, counts: &Counts) -> Taken {
    Taken { taken, counts: take.bounds.iter().map(|bound| count(take, bound, counts)).collect() }
}

fn changes(takes: &[Take], amounts: &[u64]) -> Vec<Change> {
    let takes = takes.iter().zip(amounts).filter(|(_, amount)| **amount > 0);
    let changes = takes.flat_map(|(take, amount)| {
        let amount = i64::try_from(*amount).unwrap_or(i64::MAX);
        take.bounds.iter().map(move |bound| (Key::of(&take.key, bound.window), amount, bound.window.kept))
    });
    changes.collect()
}

/// The counts of rows that are there.
async fn read(connection: &mut PgConnection, keys: &[Change]) -> Result<Counts, sqlx::Error> {
    let statement = |table| {
        format!(
            "SELECT identifier, period, starts, service, route, value::bigint FROM {GIVEN} JOIN {table} \
             USING (identifier, period) \
             WHERE period_date = to_timestamp(starts) AND service_id = service::uuid AND route_id = route::uuid"
        )
    };
    run(connection, keys, statement).await
}

/// Updates rows, and inserts missing ones; returns the counts after it. All nodes lock rows in the same order.
async fn change(connection: &mut PgConnection, changes: &[Change]) -> Result<Counts, sqlx::Error> {
    let statement = |table| {
        format!(
            "INSERT INTO {table} AS known (identifier, period, period_date, service_id, route_id, value, ttl) \
             SELECT identifier, period, to_timestamp(starts), service::uuid, route::uuid, LEAST(amount, 2147483647), \
             CURRENT_TIMESTAMP + kept * INTERVAL '1 second' FROM {GIVEN} ORDER BY 1, 2, 3, 4, 5 \
             ON CONFLICT (identifier, period, period_date, service_id, route_id) DO UPDATE \
             SET value = LEAST(COALESCE(known.value, 0)::bigint + excluded.value, 2147483647) \
             RETURNING identifier, period, extract(epoch FROM period_date)::bigint, service_id::text, \
             route_id::text, value::bigint"
        )
    };
    run(connection, changes, statement).await
}

/// Runs a statement on the tables that rows are in.
async fn run(
    connection: &mut PgConnection,
    changes: &[Change],
    statement: impl Fn(&'static str) -> String,
) -> Result<Counts, sqlx::Error> {
    let mut counts = Counts::new();
    for table in ["ratelimiting_metrics", "response_ratelimiting_metrics"] {
        let changes: Vec<_> = changes.iter().filter(|(key, ..)| key.table() == table).collect();
        if changes.is_empty() {
            continue;
        }
        let keys = || changes.iter().map(|(key, ..)| key);
        let query = sqlx::query_as(AssertSqlSafe(statement(table)))
            .bind(keys().map(|key| key.counter.identifier.to_string()).collect::<Vec<_>>())
            .bind(keys().map(Key::period).collect::<Vec<_>>())
            .bind(keys().map(|key| key.starts.cast_signed()).collect::<Vec<_>>())
            .bind(keys().map(|key| key.counter.service.to_string()).collect::<Vec<_>>())
            .bind(keys().map(|key| key.counter.route.to_string()).collect::<Vec<_>>())
            .bind(changes.iter().map(|(_, amount, _)| *amount).collect::<Vec<_>>())
            .bind(changes.iter().map(|(.., kept)| kept.cast_signed()).collect::<Vec<_>>());
        let rows: Vec<(String, String, i64, String, String, Option<i64>)> =
            query.fetch_all(&mut *connection).await?;
        let by_row: HashMap<_, _> = keys().map(|key| (row(key), key)).collect();
        for (identifier, period, starts, service, route, value) in rows {
            if let Some(key) = by_row.get(&(identifier, period, starts, service, route)) {
                counts.insert((*key).clone(), value.unwrap_or_default().max(0).cast_unsigned());
            }
        }
    }
    Ok(counts)
}

/// A key as rows have it.
fn row(key: &Key) -> (String, String, i64, String, String) {
    let CounterKey { identifier, service, route, .. } = &*key.counter;
    (identifier.to_string(), key.period(), key.starts.cast_signed(), service.to_string(), route.to_string())
}

async fn connect(server: &Server) -> Result<PgConnection, StoreError> {
    let failed = |error| server.failure(error);
    let mut connection = server.connect().await?;
    let encoding = sqlx::query_scalar("SHOW server_encoding").fetch_one(&mut connection).await;
    let encoding: String = encoding.map_err(failed)?;
    if !matches!(&*encoding, "UTF8" | "SQL_ASCII") {
        let hint = format!("its encoding is {encoding}, which has not every text: make a database with UTF8");
        return Err(failed(sqlx::Error::Configuration(hint.into())));
    }
    sqlx::query(HASTY).execute(&mut connection).await.map_err(failed)?;
    Ok(connection)
}

/// Removes expired rows in batches.
async fn swept(server: Server) {
    let sweep = async {
        let mut connection = connect(&server).await?;
        sweep(&mut connection).await.map_err(|error| server.failure(error))?;
        connection.close().await.map_err(|error| server.failure(error))
    };
    if let Err(error) = sweep.await {
        tracing::warn!("rate limits: expired counts could not be removed from the database: {error}");
    }
}

async fn sweep(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    for table in ["ratelimiting_metrics", "response_ratelimiting_metrics"] {
        let statement = format!(
            "DELETE FROM {table} WHERE ctid IN \
             (SELECT ctid FROM {table} WHERE ttl < CURRENT_TIMESTAMP LIMIT {SWEPT_AT_ONCE})"
        );
        loop {
            let removed = sqlx::query(AssertSqlSafe(&*statement)).execute(&mut *connection).await?;
            if removed.rows_affected() < SWEPT_AT_ONCE {
                break;
            }
        }
    }
    Ok(())
}
