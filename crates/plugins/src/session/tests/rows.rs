//! Sessions in rows, of a database that may not answer.

use super::super::content::{Entry, Session};
use super::super::keeper::{Changes, Incoming};
use super::super::*;
use super::config;
use crate::PLUGINS;
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use weir_plugin::testing::{Gateway, entity, id};
use weir_plugin::{
    Credential, MemoryRows, PendingRows, Row, RowError, RowKey, RowStore, Rows, Uuid, unix_time,
};

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
    stored_by(age, &json!({}))
}

/// The same of an instance with these fields.
fn stored_by(age: u64, more: &Json) -> (Gateway, Arc<Instance>, Arc<Failing>, String) {
    let gateway = Gateway::new(PLUGINS);
    let rows = Arc::new(Failing::default());
    gateway.retained.get::<Rows>().provide(rows.clone());
    let plugin = entity(json!({ "name": "session", "id": id(1) }));
    let mut fields = json!({ "storage": "kong", "idling_timeout": 0 });
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let config = Config::from_value(&config(&fields)).unwrap();
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

/// The cookie that a response sets, if it sets one.
fn set_cookie(exchange: &Exchange) -> Option<String> {
    let set = exchange.response.headers.get("Set-Cookie")?;
    String::from_utf8_lossy(set).split(';').next().map(str::to_owned)
}

#[test]
fn a_session_that_has_a_new_id_is_known_by_the_old_one_for_a_while() {
    let (gateway, instance, rows, old) = stored(3000);
    let ask = |cookie: &str| outcome(&gateway, &instance, &format!("GET /\nCookie: {cookie}")).0;
    let new = set_cookie(&ask(&old)).unwrap();
    assert!(new.starts_with("session=1") && new != old);
    let again = ask(&old);
    assert!(again.consumer().is_some());
    assert_eq!(set_cookie(&again), None, "a session that was replaced replaces none");
    let now = unix_time();
    let stored = block_on(rows.page("sessions", None, 10)).unwrap();
    let ends_soon = |row: &&Row| row.expires.unwrap() - now <= 10;
    assert_eq!((stored.len(), stored.iter().filter(ends_soon).count()), (2, 1));
    assert!(stored.iter().all(|row| ends_soon(&row) || row.expires.unwrap() - now > 3500));
}

#[test]
fn a_logout_ends_a_session_under_its_old_id_and_its_new_one() {
    for by_the_old in [true, false] {
        let (gateway, instance, rows, old) = stored(3000);
        let ask = |cookie: &str| outcome(&gateway, &instance, &format!("GET /\nCookie: {cookie}")).0;
        let new = set_cookie(&ask(&old)).unwrap();
        let by = if by_the_old { &old } else { &new };
        outcome(&gateway, &instance, &format!("DELETE /?session_logout\nCookie: {by}"));
        assert_eq!(block_on(rows.page("sessions", None, 10)).unwrap(), vec![]);
        assert!(ask(&old).consumer().is_none() && ask(&new).consumer().is_none());
    }
}

#[test]
fn new_sessions_that_wait_for_the_database_are_bounded() {
    let (gateway, instance, _, _) = stored(0);
    let store = instance.store.as_ref().unwrap();
    let waiting: Vec<_> = std::iter::from_fn(|| store.reserve()).collect();
    assert_eq!(waiting.len(), 256);
    let log_in = || {
        let mut exchange = gateway.exchange("GET /");
        assert!(matches!(instance.access(&mut exchange), Flow::Continue));
        let consumer = exchange.find_consumer(id(1)).unwrap();
        exchange.authenticate(consumer, Credential { id: id(0xa), identifier: None });
        instance.response(&mut exchange);
        set_cookie(&exchange)
    };
    assert_eq!(log_in(), None);
    drop(waiting);
    assert!(log_in().is_some());
}

#[test]
fn without_stale_ttl_an_old_id_is_of_no_use() {
    let (gateway, instance, rows, old) = stored_by(3000, &json!({ "stale_ttl": 0 }));
    let ask = |cookie: &str| outcome(&gateway, &instance, &format!("GET /\nCookie: {cookie}")).0;
    let new = set_cookie(&ask(&old)).unwrap();
    assert!(ask(&old).consumer().is_none() && ask(&new).consumer().is_some());
    assert_eq!(block_on(rows.page("sessions", None, 10)).unwrap().len(), 1);
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
