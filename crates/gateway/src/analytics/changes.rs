//! Notices when another configuration becomes active, and says what changed.
use crate::registry::{ActiveConfiguration, Registry};
use crate::store::Revision;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use weir_analytics::changes::Change;
use weir_model::entity::Entity;
use weir_model::schema::quoted;
use weir_model::{Change as EntityChange, Document};

/// More changes than this are named by their number alone.
const MAX_NAMED: usize = 4;

/// Compares the active configuration with the one before.
pub(super) struct ChangeWatcher {
    registry: Arc<Registry>,
    seen: Revision,
    /// The configuration as it was seen, if it is replaced as a whole. A store knows what was committed.
    replaceable: Option<Arc<ActiveConfiguration>>,
}

/// One entity that was put or deleted.
struct Edit {
    verb: &'static str,
    kind: &'static str,
    name: String,
}

impl ChangeWatcher {
    pub(super) fn new(registry: Arc<Registry>) -> Self {
        let active = registry.configuration();
        let seen = active.revision;
        ChangeWatcher { replaceable: (!registry.is_stored()).then_some(active), seen, registry }
    }

    /// The change since the last look, if there is one.
    pub(super) fn look(&mut self, now: u64) -> Option<Change> {
        let active = self.registry.configuration();
        if active.revision == self.seen {
            return None;
        }
        let before = std::mem::replace(&mut self.seen, active.revision);
        let replaced = self.replaceable.as_mut().map(|seen| std::mem::replace(seen, active.clone()));
        let (who, edits) = match replaced {
            Some(replaced) => ("declared", differences(&replaced.document, &active.document)),
            None => ("database", self.committed(before, active.revision)),
        };
        Some(Change { at: now, revision: active.revision.0, who: who.to_owned(), what: describe(&edits) })
    }

    /// What was committed after one revision until another; nothing if that is too long ago to be known.
    fn committed(&self, before: Revision, active: Revision) -> Vec<Edit> {
        let after = |revision| self.registry.changes_since(revision).unwrap_or_default();
        let (mut changes, later) = (after(before), after(active).len());
        changes.truncate(changes.len().saturating_sub(later));
        changes.iter().map(Edit::of).collect()
    }
}

/// What one configuration has and another lacks or has otherwise.
fn differences(before: &Document, after: &Document) -> Vec<Edit> {
    let key = |entity: &Entity| (entity.kind(), entity.id());
    let mut gone: HashMap<_, _> = before.entities().map(|entity| (key(&entity), entity)).collect();
    let is_new = |entity: &Entity| gone.remove(&key(entity)).as_ref() != Some(entity);
    let put: Vec<_> = after.entities().filter(is_new).map(|entity| Edit::new("put", &entity)).collect();
    let mut deleted: Vec<_> = gone.values().map(|entity| Edit::new("delete", entity)).collect();
    deleted.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    put.into_iter().chain(deleted).collect()
}

/// Such as `put routes/orders`, or `put 12 targets`.
fn describe(edits: &[Edit]) -> String {
    let texts: Vec<_> = if edits.len() <= MAX_NAMED {
        edits.iter().map(|edit| format!("{} {}/{}", edit.verb, edit.kind, edit.name)).collect()
    } else {
        let mut counts = BTreeMap::new();
        edits.iter().for_each(|edit| *counts.entry((edit.verb, edit.kind)).or_insert(0) += 1);
        counts.iter().map(|((verb, kind), count)| format!("{verb} {count} {kind}")).collect()
    };
    if texts.is_empty() { "apply the configuration again".to_owned() } else { texts.join(", ") }
}

impl Edit {
    fn new(verb: &'static str, entity: &Entity) -> Edit {
        let name = entity.name().map_or_else(|| entity.id().to_string(), |name| quoted(name).into_owned());
        Edit { verb, kind: entity.kind().as_str(), name }
    }

    fn of(change: &EntityChange) -> Edit {
        match &change.entity {
            Some(entity) => Edit::new("put", entity),
            None => Edit { verb: "delete", kind: change.kind.as_str(), name: change.id.to_string() },
        }
    }
}
