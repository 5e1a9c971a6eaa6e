//! Rows that traffic creates and that end by themselves, such as tokens. They are not part of the configuration, so that
//! creating one makes no new revision and no new snapshot.
//!
//! Rows are in the node's database, where all nodes of it see them. A node without a database keeps them in memory: they are
//! lost when it restarts, and other nodes do not see them.

mod memory;

pub use memory::MemoryRows;

use crate::handover::Handover;
use crate::retained::Retained;
use std::collections::BTreeSet;
use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};
use weir_model::Uuid;
use weir_model::schema::Json;

/// One row of a kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its id, by which pages are ordered.
    pub id: Uuid,
    /// A text that no other row of the kind has here, such as an access token.
    pub first: Option<String>,
    /// The same for a second one, such as a refresh token.
    pub second: Option<String>,
    /// Everything else.
    pub body: Json,
    /// When it ends, in seconds since 1970; none if it lasts until it is deleted.
    pub expires: Option<u64>,
}

/// What identifies one row of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowKey {
    /// Its id.
    Id(Uuid),
    /// [`Row::first`].
    First(String),
    /// [`Row::second`].
    Second(String),
}

/// Why rows cannot be used now. Contains no secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowError(pub String);

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RowError {}

/// The result of an operation. It may be awaited on any thread.
pub type PendingRows<T> = Pin<Box<dyn Future<Output = Result<T, RowError>> + Send>>;

/// Keeps rows. A row that has expired is not there.
pub trait RowStore: Send + Sync + 'static {
    /// Adds a row; false if another one has its id or one of its unique texts.
    fn insert(&self, kind: &'static str, row: Row) -> PendingRows<bool>;
    /// Replaces the row of this id; false if no row has it, or another one has one of its unique texts.
    fn update(&self, kind: &'static str, row: Row) -> PendingRows<bool>;
    /// One row.
    fn find(&self, kind: &'static str, key: RowKey) -> PendingRows<Option<Row>>;
    /// At most `size` rows by id, from the first one after `after`.
    fn page(&self, kind: &'static str, after: Option<Uuid>, size: usize) -> PendingRows<Vec<Row>>;
    /// Deletes a row; false if it was not there. Of several that delete one at once, also on other nodes, one gets true.
    fn delete(&self, kind: &'static str, id: Uuid) -> PendingRows<bool>;
    /// The time since 1970 by the one clock that all nodes share that see the rows. It may be set back.
    fn time(&self) -> PendingRows<Duration> {
        Box::pin(ready(Ok(SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default())))
    }
}

/// The rows of a node: a value of [`Retained`].
#[derive(Default)]
pub struct Rows {
    database: OnceLock<Arc<dyn RowStore>>,
    memory: MemoryRows,
    /// What plugins keep here, or lose all the same without a database.
    kept: Mutex<BTreeSet<&'static str>>,
}

impl Rows {
    /// Has plugins use this store. The first one stays.
    pub fn provide(&self, store: Arc<dyn RowStore>) {
        // A node provides one.
        let _ = self.database.set(store);
    }

    /// Where the rows are.
    pub fn store(&self) -> &dyn RowStore {
        match self.database.get() {
            Some(store) => &**store,
            None => &self.memory,
        }
    }

    /// Whether they are in a database, which other nodes may use too.
    pub fn are_stored(&self) -> bool {
        self.database.get().is_some()
    }

    /// Remembers what a plugin keeps, such as `tokens of oauth2`.
    pub(crate) fn mark_kept(&self, what: &'static str) {
        let is_new = self.kept.lock().unwrap_or_else(PoisonError::into_inner).insert(what);
        if is_new && !self.are_stored() {
            tracing::warn!("{}", lossy(what));
        }
    }

    /// What a person should know who configures plugins that keep something.
    pub fn warning(&self) -> Option<String> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<&str> = kept.iter().copied().collect();
        (!all.is_empty() && !self.are_stored()).then(|| lossy(&all.join(" and ")))
    }
}

fn lossy(what: &str) -> String {
    format!(
        "{what} are in this node's memory, because it has no database: they are lost when it restarts, and other nodes do \
         not know them; set database=postgres or database=sqlite to keep them"
    )
}

/// The present second since 1970.
pub fn unix_time() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}

/// Hands the rows in memory to the process that replaces this one. Plugins that use rows list it.
pub const ROWS_HANDOVER: Handover = Handover {
    name: "rows",
    export: |retained, to| retained.get::<Rows>().memory.export(to),
    import: |retained: &Retained, bytes| retained.get::<Rows>().memory.import(bytes),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warning_names_what_is_kept_and_nothing_else() {
        let rows = Rows::default();
        assert_eq!(rows.warning(), None);
        rows.mark_kept("tokens of oauth2");
        assert!(rows.warning().unwrap().starts_with("tokens of oauth2 are in this node's memory"));
        rows.mark_kept("tokens of oauth2");
        rows.mark_kept("sessions of session");
        let warning = rows.warning().unwrap();
        assert!(warning.starts_with("sessions of session and tokens of oauth2 are in"), "{warning}");
        rows.provide(Arc::new(MemoryRows::default()));
        assert_eq!(rows.warning(), None);
    }
}
