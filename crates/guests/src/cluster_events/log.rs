//! The rows that events are.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_plugin::{Json, PendingRows, Row, RowError, Rows, Uuid};

/// The kind of the rows.
const KIND: &str = "cluster_events";
/// How long a node that cannot read the rows misses none.
const KEPT: Duration = Duration::from_secs(3600);
/// How far the clocks of nodes may differ, with the time that it takes to write a row: so old rows are looked at again.
const DIFFERENCE: Duration = Duration::from_secs(60);
/// How many rows are read at once.
const PAGE: usize = 1000;
/// The bits of an id beyond its time.
const RANDOM_BITS: u32 = 80;

/// The events in a database, as one node reads and writes them.
#[derive(Clone)]
pub(super) struct Log {
    rows: Arc<Rows>,
    node: Arc<str>,
    /// When it was last read, none before the first time: what is older than that is not news.
    read_at: Option<Duration>,
    /// The rows that were found, and their events while they are delayed.
    found: HashMap<Uuid, Option<Event>>,
}

/// An event of another node.
#[derive(Clone)]
pub(super) struct Event {
    pub(super) channel: String,
    pub(super) data: Vec<u8>,
    /// Since 1970.
    due: Duration,
}

impl Log {
    pub(super) fn new(rows: Arc<Rows>, node: Arc<str>) -> Self {
        Self { rows, node, read_at: None, found: HashMap::new() }
    }

    /// Whether other nodes see the rows.
    pub(super) fn is_shared(&self) -> bool {
        self.rows.are_stored()
    }

    /// Writes an event.
    pub(super) fn write(&self, channel: &str, data: &[u8], delay: Duration) -> PendingRows<bool> {
        let now = now();
        let random = Uuid::new_v4().as_u128() & ((1 << RANDOM_BITS) - 1);
        let due = (now + delay).as_millis() as u64;
        let body = serde_json::json!({ "node": &*self.node, "channel": channel, "data": STANDARD.encode(data), "due": due });
        let expires = Some((now + delay + KEPT).as_secs());
        let id = Uuid::from_u128(first_id(now).as_u128() | random);
        self.rows.store().insert(KIND, Row { id, first: None, second: None, body, expires })
    }

    /// The events of other nodes that are due and were not returned before.
    pub(super) async fn due(&mut self) -> Result<Vec<Event>, RowError> {
        let now = now();
        let from = self.read_at.unwrap_or(now).saturating_sub(DIFFERENCE);
        let mut after = first_id(from);
        self.found.retain(|id, event| *id >= after || event.is_some());
        loop {
            let rows = self.rows.store().page(KIND, Some(after), PAGE).await?;
            let Some(last) = rows.last().map(|row| row.id) else { break };
            for row in rows {
                let event = self.event(&row);
                self.found.entry(row.id).or_insert(event);
            }
            after = last;
        }
        self.read_at = Some(now);
        let due = self.found.values_mut().filter_map(|event| event.take_if(|event| event.due <= now));
        Ok(due.collect())
    }

    /// The event of another node, unless it was there before this one looked for the first time.
    fn event(&self, row: &Row) -> Option<Event> {
        self.read_at?;
        let text = |name: &str| row.body.get(name).and_then(Json::as_str);
        if text("node") == Some(&*self.node) {
            return None;
        }
        let due = Duration::from_millis(row.body.get("due")?.as_u64()?);
        Some(Event { channel: text("channel")?.to_owned(), data: STANDARD.decode(text("data")?).ok()?, due })
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The least id of a row that is written then: ids are in the order of time.
fn first_id(time: Duration) -> Uuid {
    Uuid::from_u128(time.as_millis() << RANDOM_BITS)
}
