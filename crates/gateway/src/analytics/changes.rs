//! Notices when another configuration becomes active, and says what changed.
use crate::registry::Registry;
use crate::store::Revision;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_analytics::changes::Change;
use weir_model::Change as EntityChange;
use weir_model::schema::quoted;

/// More changes than this are named by their number alone.
const MAX_NAMED: usize = 4;

/// Compares the active configuration with the one before.
pub(super) struct ChangeWatcher {
    registry: Arc<Registry>,
    seen: Revision,
}

impl ChangeWatcher {
    pub(super) fn new(registry: Arc<Registry>) -> Self {
        let seen = registry.active();
        ChangeWatcher { registry, seen }
    }

    /// The change since the last look, if there is one.
    pub(super) fn look(&mut self, now: u64) -> Option<Change> {
        let active = self.registry.active();
        if active == self.seen {
            return None;
        }
        let before = std::mem::replace(&mut self.seen, active);
        let who = if self.registry.is_stored() { "database" } else { "declared" };
        let what = self.since(before, active).map_or_else(|| WHOLE.to_owned(), |changes| describe(&changes));
        Some(Change { at: now, revision: active.0, who: who.to_owned(), what })
    }

    /// What was committed after one revision until another; none where the whole configuration was replaced.
    fn since(&self, before: Revision, active: Revision) -> Option<Vec<EntityChange>> {
        let mut changes = self.registry.changes_since(before)?;
        let later = self.registry.changes_since(active)?.len();
        changes.truncate(changes.len().saturating_sub(later));
        (!changes.is_empty()).then_some(changes)
    }
}

const WHOLE: &str = "replace the configuration";

/// Such as `put routes/orders`, or `put 12 targets`.
fn describe(changes: &[EntityChange]) -> String {
    if changes.len() <= MAX_NAMED {
        return changes.iter().map(named).collect::<Vec<_>>().join(", ");
    }
    let mut counts = BTreeMap::new();
    for change in changes {
        *counts.entry((verb(change), change.kind.as_str())).or_insert(0) += 1;
    }
    let texts = counts.iter().map(|((verb, kind), count)| format!("{verb} {count} {kind}"));
    texts.collect::<Vec<_>>().join(", ")
}

fn verb(change: &EntityChange) -> &'static str {
    if change.entity.is_some() { "put" } else { "delete" }
}

fn named(change: &EntityChange) -> String {
    let name = change.entity.as_ref().and_then(|entity| entity.name());
    let name = name.map_or_else(|| change.id.to_string(), |name| quoted(name).into_owned());
    format!("{} {}/{name}", verb(change), change.kind.as_str())
}
