//! What is left out or rewritten for the data planes of a form, kept up to date with each revision.
use super::super::cohorts::Counted;
use crate::sync::identity::Identity;
use crate::sync::inventory::Key;
use crate::wire::payload::Withheld;
use crate::wire::v2::DeltaForm;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_model::Document;

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
    pub(super) fn updated(mut self, news: &News, form: &DeltaForm<'_>) -> Altered {
        let lines = |entity| form.withheld(&entity).iter().map(Withheld::to_string).collect::<Vec<_>>();
        match &news.changed {
            None => {
                let lines =
                    news.document.entities().map(|entity| ((entity.kind(), entity.id()), lines(entity)));
                self.by_entity = lines.filter(|(_, lines)| !lines.is_empty()).collect();
            }
            Some(keys) => {
                for key in keys {
                    match news.document.find(key.0, key.1).map(lines).filter(|lines| !lines.is_empty()) {
                        Some(lines) => drop(self.by_entity.insert(*key, lines)),
                        None => drop(self.by_entity.remove(key)),
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
