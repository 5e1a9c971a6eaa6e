//! What is left out or rewritten for the data planes of a form, kept up to date with each revision.
use super::super::cohorts::Counted;
use super::super::payloads::Form;
use super::increments::delta_form;
use crate::sync::identity::Identity;
use crate::sync::inventory::Key;
use crate::wire::payload::Withheld;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use weir_model::entity::EntityKind;
use weir_model::{Document, PluginSchema};

/// The messages about entities, as of a revision.
#[derive(Debug, Default)]
pub(super) struct Altered {
    identity: Option<Identity>,
    by_entity: BTreeMap<Key, Vec<String>>,
    list: Arc<[String]>,
}

/// What there is to read for a newer revision.
pub(super) struct News {
    identity: Identity,
    document: Arc<Document>,
    /// The entities that changed; none if all have to be read.
    changed: Option<Vec<Key>>,
}

impl Altered {
    /// What is new; none if nothing is.
    pub(super) fn news(&self, cohort: &Counted<'_>) -> Option<News> {
        cohort.with(|cohort| {
            let identity = cohort.identity();
            if self.identity == Some(identity) {
                return None;
            }
            let changed = self.identity.and_then(|identity| cohort.changed_after(identity));
            Some(News { identity, document: cohort.document().clone(), changed })
        })
    }

    /// As of a newer revision. Takes long where all entities have to be read.
    pub(super) fn updated(mut self, news: &News, form: Form, plugins: &[PluginSchema]) -> Altered {
        let form = delta_form(form, plugins, &news.document);
        let lines = |entity| form.withheld(&entity).iter().map(Withheld::to_string).collect::<Vec<_>>();
        match &news.changed {
            None => {
                let lines =
                    news.document.entities().map(|entity| ((entity.kind(), entity.id()), lines(entity)));
                self.by_entity = lines.filter(|(_, lines)| !lines.is_empty()).collect();
            }
            Some(keys) => {
                for key in with_plugins_of_routes(keys.clone(), &news.document) {
                    match news.document.find(key.0, key.1).map(lines).filter(|lines| !lines.is_empty()) {
                        Some(lines) => drop(self.by_entity.insert(key, lines)),
                        None => drop(self.by_entity.remove(&key)),
                    }
                }
            }
        }
        self.identity = Some(news.identity);
        self.list = self.by_entity.values().flatten().cloned().collect();
        self
    }

    /// The messages.
    pub(super) fn list(&self) -> Arc<[String]> {
        self.list.clone()
    }
}

/// Entities that have changed, and the plugins of the routes among them: these are sent if their route is.
pub(super) fn with_plugins_of_routes(mut keys: Vec<Key>, document: &Document) -> Vec<Key> {
    let changed: HashSet<Key> = keys.iter().copied().collect();
    let is_changed = |route| changed.contains(&(EntityKind::Routes, route));
    if changed.iter().any(|(kind, _)| *kind == EntityKind::Routes) {
        let plugins = document.plugins.iter().filter(|plugin| plugin.route.is_some_and(is_changed));
        let plugins = plugins.map(|plugin| (EntityKind::Plugins, plugin.id));
        keys.extend(plugins.filter(|key| !changed.contains(key)));
    }
    keys
}
