//! The rows that events are.
//!
//! The id of a row begins with its time, by the clock of the database, so that those of nodes need not agree. Rows are not
//! seen in the order of their times: between the time and the commit, others may commit. A write that took longer than
//! [`OVERLAP`] is therefore repeated, and each look begins by as much before the one before it: what was committed in between
//! is not missed, and what was found is remembered.

#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use weir_plugin::{Json, Row, RowError, Rows, Uuid};

/// The kind of the rows.
const KIND: &str = "cluster_events";
/// How long a node that cannot read the rows misses none.
const KEPT: Duration = Duration::from_secs(3600);
/// The longest time from a row's time to its commit.
const OVERLAP: Duration = Duration::from_secs(2);
/// How often a row is written that takes longer than that.
const ATTEMPTS: usize = 3;
/// How long a row that was found is remembered: the clock of the database may be set back by so much less [`OVERLAP`].
const REMEMBERED: Duration = Duration::from_secs(60);
/// How many rows are read at once.
const PAGE: usize = 1000;
/// The bits of an id beyond its time: those of an event are the same in each of its rows.
const RANDOM_BITS: u32 = 80;

/// The events in a database, as one node reads and writes them.
#[derive(Clone)]
pub(super) struct Log {
    rows: Arc<Rows>,
    node: Arc<str>,
    /// When it was last read, none before the first time: what is older than that is not news.
    read_at: Option<Duration>,
    /// The events that were found, by their random bits.
    found: HashMap<u128, Found>,
}

/// An event that was found.
#[derive(Clone)]
struct Found {
    /// Its last row.
    row: Uuid,
    /// The event, while it is delayed.
    event: Option<Event>,
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
    pub(super) fn write(
        &self,
        channel: &str,
        data: &[u8],
        delay: Duration,
    ) -> impl Future<Output = Result<(), RowError>> + Send + use<> {
        let (rows, random) = (self.rows.clone(), random_bits(Uuid::new_v4()));
        let mut body =
            serde_json::json!({ "node": &*self.node, "channel": channel, "data": STANDARD.encode(data) });
        async move {
            for _ in 0..ATTEMPTS {
                let start = Instant::now();
                let now = rows.store().time().await?;
                body["due"] = ((now + delay).as_millis() as u64).into();
                let expires = Some((now + delay + KEPT).as_secs());
                let id = Uuid::from_u128(first_id(now).as_u128() | random);
                let row = Row { id, first: None, second: None, body: body.clone(), expires };
                rows.store().insert(KIND, row).await?;
                if start.elapsed() < OVERLAP {
                    return Ok(());
                }
            }
            Err(RowError("each of three writes took longer than 2 s".to_owned()))
        }
    }

    /// The events of other nodes that are due and were not returned before.
    pub(super) async fn due(&mut self) -> Result<Vec<Event>, RowError> {
        let now = self.rows.store().time().await?;
        let from = self.read_at.map_or(now, |read_at| read_at.min(now));
        let forgotten = first_id(from.saturating_sub(REMEMBERED));
        self.found.retain(|_, found| found.row >= forgotten || found.event.is_some());
        let mut after = first_id(from.saturating_sub(OVERLAP));
        loop {
            let rows = self.rows.store().page(KIND, Some(after), PAGE).await?;
            let Some(last) = rows.last().map(|row| row.id) else { break };
            for row in rows {
                let event = self.event(&row);
                let found = self.found.entry(random_bits(row.id)).or_insert(Found { row: row.id, event });
                found.row = found.row.max(row.id);
            }
            after = last;
        }
        self.read_at = Some(now);
        let due = self.found.values_mut().filter_map(|found| found.event.take_if(|event| event.due <= now));
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

/// The least id of a row of this time: ids are in the order of time.
fn first_id(time: Duration) -> Uuid {
    Uuid::from_u128(time.as_millis() << RANDOM_BITS)
}

fn random_bits(id: Uuid) -> u128 {
    id.as_u128() & ((1 << RANDOM_BITS) - 1)
}
