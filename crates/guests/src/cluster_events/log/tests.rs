use super::{Log, OVERLAP, REMEMBERED};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weir_plugin::{MemoryRows, PendingRows, Row, RowKey, RowStore, Rows, Uuid};

/// Long ago by the clocks of the nodes.
const START: Duration = Duration::from_secs(1_000_000);

/// A database whose clock and commits the test decides on.
#[derive(Default)]
struct Database {
    rows: MemoryRows,
    time: Mutex<Duration>,
    /// Whether rows wait until they are committed.
    holds: Mutex<bool>,
    held: Mutex<VecDeque<Row>>,
    /// How long the next writes take.
    takes: Mutex<VecDeque<Duration>>,
    read: Mutex<usize>,
}

/// As the nodes have it.
struct Shared(Arc<Database>);

impl Database {
    fn pass(&self, time: Duration) {
        *self.time.lock().unwrap() += time;
    }

    async fn commit(&self) {
        let held = std::mem::take(&mut *self.held.lock().unwrap());
        for row in held {
            assert!(self.rows.insert("cluster_events", row).await.unwrap());
        }
    }
}

impl RowStore for Shared {
    fn insert(&self, kind: &'static str, row: Row) -> PendingRows<bool> {
        let database = self.0.clone();
        Box::pin(async move {
            let takes = database.takes.lock().unwrap().pop_front().unwrap_or_default();
            tokio::time::sleep(takes).await;
            database.pass(takes);
            // Rows of long ago would have expired.
            let row = Row { expires: None, ..row };
            if *database.holds.lock().unwrap() {
                database.held.lock().unwrap().push_back(row);
                return Ok(true);
            }
            database.rows.insert(kind, row).await
        })
    }

    fn update(&self, _: &'static str, _: Row) -> PendingRows<bool> {
        unreachable!("events do not change")
    }

    fn find(&self, _: &'static str, _: RowKey) -> PendingRows<Option<Row>> {
        unreachable!("events are read in pages")
    }

    fn page(&self, kind: &'static str, after: Option<Uuid>, size: usize) -> PendingRows<Vec<Row>> {
        let (database, page) = (self.0.clone(), self.0.rows.page(kind, after, size));
        Box::pin(async move {
            let rows = page.await?;
            *database.read.lock().unwrap() += rows.len();
            Ok(rows)
        })
    }

    fn delete(&self, _: &'static str, _: Uuid) -> PendingRows<bool> {
        unreachable!("events end by themselves")
    }

    fn time(&self) -> PendingRows<Duration> {
        Box::pin(std::future::ready(Ok(*self.0.time.lock().unwrap())))
    }
}

fn node(database: &Arc<Database>, name: &str) -> Log {
    let rows = Arc::new(Rows::default());
    rows.provide(Arc::new(Shared(database.clone())));
    Log::new(rows, name.into())
}

async fn heard(log: &mut Log) -> Vec<String> {
    let events = log.due().await.unwrap().into_iter();
    let mut data: Vec<_> = events.map(|event| String::from_utf8(event.data).unwrap()).collect();
    data.sort();
    data
}

async fn say(log: &Log, data: &str) {
    log.write("c", data.as_bytes(), Duration::ZERO).await.unwrap();
}

/// A database, one node that has looked, and two others.
async fn three_nodes() -> (Arc<Database>, Log, [Log; 2]) {
    let database = Arc::new(Database { time: Mutex::new(START), ..Database::default() });
    let mut listener = node(&database, "listener");
    let others = ["one", "two"].map(|name| node(&database, name));
    say(&others[0], "old").await;
    assert_eq!(heard(&mut listener).await, [""; 0]);
    (database, listener, others)
}

#[tokio::test(start_paused = true)]
async fn what_is_committed_after_a_later_event_is_heard_once() {
    let (database, mut listener, [one, two]) = three_nodes().await;
    database.pass(Duration::from_millis(10));
    *database.holds.lock().unwrap() = true;
    say(&one, "early").await;
    *database.holds.lock().unwrap() = false;
    database.pass(OVERLAP / 2);
    say(&two, "late").await;
    assert_eq!(heard(&mut listener).await, ["late"]);
    database.pass(OVERLAP / 2 - Duration::from_millis(1));
    database.commit().await;
    assert_eq!(heard(&mut listener).await, ["early"]);
    for _ in 0..3 {
        assert_eq!(heard(&mut listener).await, [""; 0]);
        database.pass(OVERLAP / 2);
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_took_too_long_is_written_again_and_heard_once() {
    for has_looked in [false, true] {
        let (database, mut listener, [one, _]) = three_nodes().await;
        *database.takes.lock().unwrap() = [OVERLAP].into();
        let written = say(&one, "slow");
        if has_looked {
            // At a later time than that of the first row, which is not committed yet.
            tokio::pin!(written);
            let looked = async {
                tokio::time::sleep(OVERLAP / 2).await;
                database.pass(OVERLAP * 2);
                heard(&mut listener).await
            };
            let (_, heard) = tokio::join!(written, looked);
            assert_eq!(heard, [""; 0]);
        } else {
            written.await;
        }
        let rows = database.rows.page("cluster_events", None, 9).await.unwrap();
        assert_eq!(rows.len(), 3, "the old one, and two of one event");
        assert_eq!(heard(&mut listener).await, ["slow"], "{has_looked}");
        assert_eq!(heard(&mut listener).await, [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_database_that_is_always_too_slow_is_reported() {
    let (database, _, [one, _]) = three_nodes().await;
    *database.takes.lock().unwrap() = vec![OVERLAP; 9].into();
    let error = one.write("c", b"d", Duration::ZERO).await.unwrap_err();
    assert!(error.to_string().contains("three writes"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_was_found_is_not_read_for_long() {
    let (database, mut listener, [one, two]) = three_nodes().await;
    for n in 0..10 {
        say(if n % 2 == 0 { &one } else { &two }, &n.to_string()).await;
    }
    *database.read.lock().unwrap() = 0;
    let mut found = Vec::new();
    for _ in 0..12 {
        found.extend(heard(&mut listener).await);
        database.pass(Duration::from_secs(5));
    }
    assert_eq!(found.len(), 10);
    assert_eq!(
        *database.read.lock().unwrap(),
        2 * 11,
        "also in the look after, which overlaps, with the old one"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_missed_or_heard_twice_if_the_clock_is_set_back() {
    let (database, mut listener, [one, _]) = three_nodes().await;
    database.pass(Duration::from_secs(30));
    say(&one, "before").await;
    database.pass(Duration::from_secs(20));
    assert_eq!(heard(&mut listener).await, ["before"]);
    assert_eq!(heard(&mut listener).await, [""; 0]);
    *database.time.lock().unwrap() -= REMEMBERED - OVERLAP * 2;
    say(&one, "after").await;
    assert_eq!(heard(&mut listener).await, ["after"]);
    database.pass(Duration::from_secs(30));
    assert_eq!(heard(&mut listener).await, [""; 0]);
}
