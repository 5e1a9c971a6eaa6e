//! What nodes of one database tell each other.

use super::waiting::{on_worker, value, value_in};
use super::{gateway, settings};
use crate::{LuaSettings, UntrustedLua};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use weir_plugin::testing::Gateway;
use weir_plugin::{MemoryRows, PendingRows, Row, RowKey, RowStore, Rows, Uuid};

/// The rows of a database.
struct Database(Arc<MemoryRows>);

impl RowStore for Database {
    fn insert(&self, kind: &'static str, row: Row) -> PendingRows<bool> {
        self.0.insert(kind, row)
    }

    fn update(&self, kind: &'static str, row: Row) -> PendingRows<bool> {
        self.0.update(kind, row)
    }

    fn find(&self, kind: &'static str, key: RowKey) -> PendingRows<Option<Row>> {
        self.0.find(kind, key)
    }

    fn page(&self, kind: &'static str, after: Option<Uuid>, size: usize) -> PendingRows<Vec<Row>> {
        self.0.page(kind, after, size)
    }

    fn delete(&self, kind: &'static str, id: Uuid) -> PendingRows<bool> {
        self.0.delete(kind, id)
    }
}

/// A node of the database.
fn node(rows: &Arc<MemoryRows>) -> Gateway {
    let gateway = gateway(LuaSettings { update_interval: Duration::ZERO, ..settings(UntrustedLua::On) });
    gateway.retained.get::<Rows>().provide(Arc::new(Database(rows.clone())));
    gateway
}

/// What code returns on one node, while another runs code again and again, and what that returns in the end.
fn heard_from(listen: &'static str, tell: &str, end: &str) -> (String, String) {
    let rows = Arc::new(MemoryRows::default());
    let of_listener = rows.clone();
    let listener =
        thread::spawn(move || on_worker(async move { value_in(&node(&of_listener), listen).await }));
    on_worker(async move {
        let node = node(&rows);
        while !listener.is_finished() {
            let said = value_in(&node, tell).await;
            assert!(!said.contains("error"), "{said}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        (listener.join().unwrap(), value_in(&node, end).await)
    })
}

#[test]
fn events_reach_other_nodes_alone() {
    let listen = "local said, both = {}, {}
        kong.cluster_events:subscribe('c', function(data) said[#said + 1] = data end)
        kong.cluster_events:subscribe('c', function(data) both[#both + 1] = data end)
        kong.cluster_events:subscribe('other', function() error('no') end)
        while not said[1] or not both[1] do ngx.sleep(0.01) end return said[1] .. both[1]";
    let tell = "kong.cluster_events:subscribe('c', function() _G.own = true end)
        return kong.cluster_events:broadcast('c', 'h\\0i')";
    let (heard, own) = heard_from(listen, tell, "return tostring(own)");
    assert_eq!((heard.split("\r\n").last().unwrap(), own.as_str()), ("h\0ih\0i", "nil"));
}

#[test]
fn an_event_may_be_delayed() {
    let listen = "local said
        kong.cluster_events:subscribe('now', function() said = said or 'now' end)
        kong.cluster_events:subscribe('later', function() said = 'later' end)
        while not said do ngx.sleep(0.01) end return said";
    let tell = "kong.cluster_events:broadcast('later', 'd', 3600) return kong.cluster_events:broadcast('now', 'd', -1)";
    assert_eq!(heard_from(listen, tell, "return 1").0, "now");
}

#[test]
fn an_invalidation_reaches_other_nodes() {
    let listen = "kong.cache:get('k', nil, function() return 'v' end) kong.cache:get('kept', nil, function() return 'v' end)
        while kong.cache:probe('k') do ngx.sleep(0.01) end return select(3, kong.cache:probe('kept'))";
    let (heard, _) = heard_from(
        listen,
        "kong.cache:invalidate_local('kept') return kong.cache:invalidate('k')",
        "return 1",
    );
    assert_eq!(heard, "v");
}

#[test]
fn arguments_are_checked() {
    for (code, expected) in [
        ("broadcast(1, 'd')", "channel must be a string"),
        ("broadcast('', 'd')", "channel is required"),
        ("broadcast('c', 1)", "data must be a string"),
        ("broadcast('c', 'd', 0/0)", "delay must be a number"),
        ("broadcast('c', 'd', math.huge)", "delay must be a number"),
        ("broadcast('c', 'd', '1')", "delay must be a number"),
        ("broadcast('c', ('d'):rep(65535))", "an event may have at most 65535 bytes"),
    ] {
        let code = format!("return select(2, kong.cluster_events:{code})");
        assert_eq!(value(settings(UntrustedLua::On), &code), expected, "{code}");
    }
    for (code, expected) in [
        ("subscribe(1, print)", "channel must be a string"),
        ("subscribe('c', 1)", "callback must be a function"),
    ] {
        let found = value(settings(UntrustedLua::On), &format!("return kong.cluster_events:{code}"));
        assert!(found.ends_with(expected), "{code}: {found}");
    }
}
