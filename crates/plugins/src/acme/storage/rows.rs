//! The node's memory (`shm`) or its database (`kong`).

use super::super::error::AcmeError;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use weir_plugin::{Handover, MemoryRows, Row, RowKey, RowStore, Rows, Uuid, unix_time};

/// The kind of the rows.
const KIND: &str = "acme_storage";

/// How many rows are listed at once.
const PAGE: usize = 1000;

/// Texts in rows.
pub(in super::super) enum RowStorage {
    Memory(Arc<Memory>),
    Database(Arc<Rows>),
}

/// What `shm` keeps, over configurations.
#[derive(Default)]
pub(in super::super) struct Memory(MemoryRows);

/// Hands what is in memory to the process that replaces this one.
pub(in super::super) const MEMORY_HANDOVER: Handover = Handover {
    name: "acme",
    export: |retained, to| retained.get::<Memory>().0.export(to),
    import: |retained, bytes| retained.get::<Memory>().0.import(bytes),
};

impl RowStorage {
    fn store(&self) -> &dyn RowStore {
        match self {
            Self::Memory(memory) => &memory.0,
            Self::Database(rows) => rows.store(),
        }
    }

    pub(super) async fn get(&self, key: &str) -> Result<Option<String>, AcmeError> {
        let row = self.store().find(KIND, RowKey::First(key.to_owned())).await?;
        Ok(row.and_then(|row| row.body["value"].as_str().map(str::to_owned)))
    }

    pub(super) async fn set(&self, key: &str, value: &str, ttl: Option<Duration>) -> Result<(), AcmeError> {
        let (store, row) = (self.store(), row(key, value, ttl));
        if !store.update(KIND, row.clone()).await? && !store.insert(KIND, row.clone()).await? {
            // Another node has inserted it in between.
            store.update(KIND, row).await?;
        }
        Ok(())
    }

    pub(super) async fn add(&self, key: &str, value: &str, ttl: Option<Duration>) -> Result<bool, AcmeError> {
        Ok(self.store().insert(KIND, row(key, value, ttl)).await?)
    }

    pub(super) async fn delete(&self, key: &str) -> Result<(), AcmeError> {
        self.store().delete(KIND, id(key)).await?;
        Ok(())
    }

    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<String>, AcmeError> {
        let (mut keys, mut after) = (Vec::new(), None);
        loop {
            let page = self.store().page(KIND, after, PAGE).await?;
            let is_last = page.len() < PAGE;
            after = page.last().map(|row| row.id);
            keys.extend(page.into_iter().filter_map(|row| row.first).filter(|key| key.starts_with(prefix)));
            if is_last {
                return Ok(keys);
            }
        }
    }
}

/// Of one key, the same on all nodes.
fn id(key: &str) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, key.as_bytes())
}

fn row(key: &str, value: &str, ttl: Option<Duration>) -> Row {
    let expires = ttl.map(|ttl| unix_time().saturating_add(ttl.as_secs().max(1)));
    Row { id: id(key), first: Some(key.to_owned()), second: None, body: json!({ "value": value }), expires }
}
