//! Sessions in rows, of a database that may not answer.

use super::super::content::{Entry, Session};
use super::super::keeper::{Changes, Incoming};
use super::super::*;
use super::config;
use crate::PLUGINS;
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use weir_plugin::testing::{Gateway, entity, id};
use weir_plugin::{MemoryRows, PendingRows, Row, RowError, RowKey, RowStore, Rows, Uuid, unix_time};

/// Rows of a database that does not answer any more.
#[derive(Default)]
struct Failing {
    memory: MemoryRows,
    fails: AtomicBool,
}

impl Failing {
    fn or<T: Send + 'static>(&self, work: impl FnOnce(&MemoryRows) -> PendingRows<T>) -> PendingRows<T> {
        match self.fails.load(Relaxed) {
            true => Box::pin(async { Err(RowError("it is gone".to_owned())) }),
            false => work(&self.memory),
        }
    }
}

impl RowStore for Failing {
    fn insert(&self, kind: &'static str, row: Row) -> PendingRows<bool> {
        self.or(|rows| rows.insert(kind, row))
    }

    fn update(&self, kind: &'static str, row: Row) -> PendingRows<bool> {
        self.or(|rows| rows.update(kind, row))
    }

    fn find(&self, kind: &'static str, key: RowKey) -> PendingRows<Option<Row>> {
        self.or(|rows| rows.find(kind, key))
    }

    fn page(&self, kind: &'static str, after: Option<Uuid>, size: usize) -> PendingRows<Vec<Row>> {
        self.or(|rows| rows.page(kind, after, size))
    }

    fn delete(&self, kind: &'static str, id: Uuid) -> PendingRows<bool> {
        self.or(|rows| rows.delete(kind, id))
    }
}

/// A gateway with sessions in rows, and a session of Alice's that was saved so many seconds ago, as a cookie.
fn stored(age: u64) -> (Gateway, Arc<Instance>, Arc<Failing>, String) {
    let gateway = Gateway::new(PLUGINS);
    let rows = Arc::new(Failing::default());
    gateway.retained.get::<Rows>().provide(rows.clone());
    let plugin = entity(json!({ "name": "session", "id": id(1) }));
    let config = Config::from_value(&config(&json!({ "storage": "kong", "idling_timeout": 0 }))).unwrap();
    let instance = gateway.build_with(&plugin, |build| SessionPlugin::new(config, build).unwrap()).0;
    let incoming = Incoming { now: unix_time() - age, lines: Vec::new() };
    let (mut changes, mut session) = (Changes::default(), Session::new(incoming.now, Vec::new()));
    let entry = Entry {
        audience: "default".to_owned(),
        subject: "alice".to_owned(),
        consumer: id(1),
        credential: id(0xa).to_string(),
        groups: None,
    };
    instance.session.save(&mut session, vec![entry], &incoming, &mut changes).unwrap();
    block_on(instance.store.as_ref().unwrap().apply(changes.rows)).unwrap();
    let cookie = changes.cookies[0].split(';').next().unwrap().to_owned();
    (gateway, instance, rows, cookie)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Sends a request: its exchange, and the status of the response, if the plugin makes one.
fn outcome(gateway: &Gateway, instance: &Arc<Instance>, request: &str) -> (Exchange, Option<u16>) {
    let mut exchange = gateway.exchange(request);
    let mut flow = instance.access(&mut exchange);
    while let Flow::Wait(pending) = flow {
        flow = block_on(pending)(&mut exchange);
    }
    let status = if let Flow::Respond(response) = flow { Some(response.status) } else { None };
    instance.response(&mut exchange);
    (exchange, status)
}

#[test]
fn a_session_that_has_a_new_id_is_known_by_the_old_one_for_a_while() {
    let (gateway, instance, rows, cookie) = stored(3000);
    for _ in 0..2 {
        let (exchange, _) = outcome(&gateway, &instance, &format!("GET /\nCookie: {cookie}"));
        assert!(exchange.consumer().is_some());
        let set = exchange.response.headers.get("Set-Cookie").unwrap();
        assert!(set.starts_with(b"session=1") && !set.starts_with(cookie.as_bytes()));
    }
    let now = unix_time();
    let stored = block_on(rows.page("sessions", None, 10)).unwrap();
    let left = |row: &Row| row.expires.unwrap() - now;
    assert_eq!((stored.len(), stored.iter().filter(|row| left(row) <= 10).count()), (3, 1));
    assert!(stored.iter().all(|row| left(row) <= 10 || left(row) > 3500));
    assert!(stored.iter().all(|row| row.body.as_object().unwrap().keys().eq(["data"])));
}

#[test]
fn a_database_that_does_not_answer_ends_no_session() {
    let (gateway, instance, rows, cookie) = stored(3000);
    rows.fails.store(true, Relaxed);
    // The session is known, but cannot get a new id.
    let (exchange, status) = outcome(&gateway, &instance, &format!("GET /\nCookie: {cookie}"));
    assert!(exchange.consumer().is_some() && status.is_none());
    assert_eq!(exchange.response.headers.get("Set-Cookie"), None);
    let (exchange, status) =
        outcome(&gateway, &instance, &format!("DELETE /?session_logout\nCookie: {cookie}"));
    assert_eq!((exchange.response.headers.get("Set-Cookie"), status), (None, Some(500)));
    // A node that does not know it cannot find it.
    let other = Gateway::new(PLUGINS);
    other.retained.get::<Rows>().provide(rows.clone());
    let plugin = entity(json!({ "name": "session", "id": id(1) }));
    let config = Config::from_value(&config(&json!({ "storage": "kong", "idling_timeout": 0 }))).unwrap();
    let unknowing = other.build_with(&plugin, |build| SessionPlugin::new(config, build).unwrap()).0;
    let ask = || outcome(&other, &unknowing, &format!("GET /\nCookie: {cookie}")).0.consumer().is_some();
    assert!(!ask());
    rows.fails.store(false, Relaxed);
    assert!(ask());
}

#[test]
fn a_logout_deletes_the_rows() {
    let (gateway, instance, rows, cookie) = stored(0);
    let (_, status) = outcome(&gateway, &instance, &format!("DELETE /?session_logout\nCookie: {cookie}"));
    assert_eq!((status, block_on(rows.page("sessions", None, 10)).unwrap()), (Some(200), vec![]));
    let (exchange, _) = outcome(&gateway, &instance, &format!("GET /\nCookie: {cookie}"));
    assert!(exchange.consumer().is_none());
}
