//! Instances of plugins, kept from one snapshot to the next.

use std::collections::HashMap;
use std::sync::Arc;
use weir_model::Uuid;
use weir_model::entity;
use weir_plugin::{Built, Hooks};

type ById = HashMap<Uuid, (Arc<entity::Plugin>, Arc<dyn Hooks>)>;

/// Those that depend on nothing but their own configuration: as long as that is the same, so are they.
#[derive(Default)]
pub(super) struct Instances {
    last: ById,
    now: ById,
}

impl Instances {
    /// The instance of last time if the plugin has not changed since, or a new one, kept if it stands alone.
    pub(super) fn get(
        &mut self,
        plugin: &Arc<entity::Plugin>,
        build: impl FnOnce() -> Built,
        stands_alone: impl FnOnce() -> bool,
    ) -> Built {
        let same = self.last.remove(&plugin.id).filter(|(entity, _)| Arc::ptr_eq(entity, plugin));
        let (hooks, keep) = match same {
            Some((_, hooks)) => (hooks, true),
            None => (build()?, stands_alone()),
        };
        if keep {
            self.now.insert(plugin.id, (plugin.clone(), hooks.clone()));
        }
        Ok(hooks)
    }

    /// Forgets what was not asked for this time.
    pub(super) fn finish(&mut self) {
        self.last = std::mem::take(&mut self.now);
    }
}
