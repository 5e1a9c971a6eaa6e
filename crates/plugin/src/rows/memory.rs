//! Rows in memory, for nodes without a database. What they take is bounded: where there is no room, the rows that end
//! soonest make it.

use super::{PendingRows, Row, RowKey, RowStore, unix_time};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::ready;
use std::io::{self, Write};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_model::Uuid;
use weir_model::schema::Json;

/// About how many bytes the rows of a kind may take.
const MAX_BYTES: usize = 64 << 20;

/// About how many bytes a row takes beside its texts, with its entries in the indexes.
const ROW_BYTES: usize = 400;

/// Rows in memory.
#[derive(Default)]
pub struct MemoryRows(Mutex<HashMap<String, Table>>);

/// The rows of a kind.
#[derive(Default)]
struct Table {
    rows: BTreeMap<Uuid, Row>,
    first: HashMap<String, Uuid>,
    second: HashMap<String, Uuid>,
    by_end: BTreeSet<(u64, Uuid)>,
    bytes: usize,
}

/// A row as processes hand it over.
type RowFields = (String, Uuid, Option<String>, Option<String>, Json, Option<u64>);

impl Table {
    fn find(&self, key: &RowKey) -> Option<&Row> {
        match key {
            RowKey::Id(id) => self.rows.get(id),
            RowKey::First(text) => self.rows.get(self.first.get(text)?),
            RowKey::Second(text) => self.rows.get(self.second.get(text)?),
        }
    }

    /// Whether a row of another id has one of these texts.
    fn conflicts(&self, row: &Row) -> bool {
        let taken = |index: &HashMap<String, Uuid>, text: &Option<String>| {
            text.as_ref().and_then(|text| index.get(text)).is_some_and(|id| *id != row.id)
        };
        taken(&self.first, &row.first) || taken(&self.second, &row.second)
    }

    fn put(&mut self, row: Row) {
        self.remove(row.id);
        self.bytes += bytes(&row);
        self.by_end.insert((end(&row), row.id));
        self.first.extend(row.first.clone().map(|text| (text, row.id)));
        self.second.extend(row.second.clone().map(|text| (text, row.id)));
        self.rows.insert(row.id, row);
    }

    fn remove(&mut self, id: Uuid) -> bool {
        let Some(row) = self.rows.remove(&id) else { return false };
        self.bytes -= bytes(&row);
        self.by_end.remove(&(end(&row), id));
        row.first.map(|text| self.first.remove(&text));
        row.second.map(|text| self.second.remove(&text));
        true
    }

    /// Removes what has expired, and what there is no room for.
    fn make_room(&mut self, now: u64) {
        while let Some((end, id)) = self.by_end.first().copied()
            && (end <= now || self.bytes > MAX_BYTES)
        {
            self.remove(id);
        }
    }
}

fn end(row: &Row) -> u64 {
    row.expires.unwrap_or(u64::MAX)
}

fn bytes(row: &Row) -> usize {
    let unique = [&row.first, &row.second].map(|text| text.as_ref().map_or(0, String::len));
    // A unique text is in the row and in an index.
    ROW_BYTES + row.body.to_string().len() + 2 * unique.iter().sum::<usize>()
}

impl MemoryRows {
    fn tables(&self) -> MutexGuard<'_, HashMap<String, Table>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does this with the rows of a kind that have not expired.
    fn with<T: Send + 'static>(&self, kind: &str, work: impl FnOnce(&mut Table) -> T) -> PendingRows<T> {
        let mut tables = self.tables();
        let table = tables.entry(kind.to_owned()).or_default();
        table.make_room(unix_time());
        Box::pin(ready(Ok(work(table))))
    }

    /// Writes all rows, for the process that replaces this one.
    pub fn export(&self, to: &mut dyn Write) -> io::Result<()> {
        let tables = self.tables();
        let rows = tables.iter().flat_map(|(kind, table)| table.rows.values().map(move |row| (kind, row)));
        let written = rows.map(|(kind, row)| (kind, row.id, &row.first, &row.second, &row.body, row.expires));
        serde_json::to_writer(to, &written.collect::<Vec<_>>()).map_err(io::Error::from)
    }

    /// Adds the rows that another process has written.
    pub fn import(&self, bytes: &[u8]) {
        let rows: Vec<RowFields> = serde_json::from_slice(bytes).unwrap_or_default();
        let mut tables = self.tables();
        for (kind, id, first, second, body, expires) in rows {
            tables.entry(kind).or_default().put(Row { id, first, second, body, expires });
        }
    }
}

impl RowStore for MemoryRows {
    fn insert(&self, kind: &'static str, row: Row) -> PendingRows<bool> {
        self.with(kind, |table| {
            let is_new = !table.rows.contains_key(&row.id) && !table.conflicts(&row);
            if is_new {
                table.put(row);
            }
            is_new
        })
    }

    fn update(&self, kind: &'static str, row: Row) -> PendingRows<bool> {
        self.with(kind, |table| {
            let fits = table.rows.contains_key(&row.id) && !table.conflicts(&row);
            if fits {
                table.put(row);
            }
            fits
        })
    }

    fn find(&self, kind: &'static str, key: RowKey) -> PendingRows<Option<Row>> {
        self.with(kind, |table| table.find(&key).cloned())
    }

    fn page(&self, kind: &'static str, after: Option<Uuid>, size: usize) -> PendingRows<Vec<Row>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.with(kind, |table| {
            table.rows.range((from, Bound::Unbounded)).map(|(_, row)| row.clone()).take(size).collect()
        })
    }

    fn delete(&self, kind: &'static str, id: Uuid) -> PendingRows<bool> {
        self.with(kind, |table| table.remove(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(number: u128, expires: Option<u64>) -> Row {
        let (first, second) = (Some(format!("first-{number}")), None);
        Row { id: Uuid::from_u128(number), first, second, body: json!({ "number": 7 }), expires }
    }

    #[test]
    fn what_has_no_room_is_what_ends_soonest() {
        let mut table = Table::default();
        let big = |number, expires| Row { body: "x".repeat(MAX_BYTES / 3).into(), ..row(number, expires) };
        let later = unix_time() + 1000;
        for (number, expires) in [(1, None), (2, Some(later)), (3, Some(later + 1))] {
            table.put(big(number, expires));
            table.make_room(unix_time());
        }
        assert_eq!(table.rows.keys().map(Uuid::as_u128).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(table.find(&RowKey::First("first-2".to_owned())), None);
        table.make_room(later + 1);
        assert_eq!(table.rows.keys().map(Uuid::as_u128).collect::<Vec<_>>(), [1]);
        assert!(table.remove(Uuid::from_u128(1)) && !table.remove(Uuid::from_u128(1)));
        assert_eq!((table.bytes, table.by_end.len(), table.first.len()), (0, 0, 0));
    }

    #[test]
    fn another_process_takes_them_over() {
        let (old, new) = (MemoryRows::default(), MemoryRows::default());
        let rows = [row(1, None), row(2, Some(unix_time() + 1000))];
        rows.iter().cloned().for_each(|row| old.tables().entry("kind".to_owned()).or_default().put(row));
        let mut written = Vec::new();
        old.export(&mut written).unwrap();
        new.import(&written);
        new.import(b"rubbish");
        assert_eq!(new.tables()["kind"].rows.values().cloned().collect::<Vec<_>>(), rows);
    }
}
