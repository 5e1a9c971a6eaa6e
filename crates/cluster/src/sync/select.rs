//! Which entities a data plane gets, by its labels and their tags.
//!
//! A tag such as `region:eu` restricts a service, a route or a consumer to data planes with this label, if `region` is among
//! the keys that select. Several tags with one key are alternatives. What belongs to an entity that a data plane does not
//! get (routes of a service, plugins, credentials), it does not get either. Everything else, it gets.
use super::inventory::Key;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use weir_model::entity::{Entity, EntityKind};
use weir_model::{Change, Document};

/// The labels of a data plane.
pub type Labels = BTreeMap<String, String>;

/// The keys of labels that select. Without any, each data plane gets everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector(BTreeSet<String>);

impl Selector {
    /// Labels with these keys select.
    pub fn new(keys: impl IntoIterator<Item = String>) -> Selector {
        Selector(keys.into_iter().collect())
    }

    /// Whether every data plane gets everything.
    pub fn is_off(&self) -> bool {
        self.0.is_empty()
    }

    /// What data planes with these labels get of a document.
    pub fn select(&self, labels: &Labels, document: &Document) -> Document {
        View::of(self.clone(), labels.clone(), document).1
    }

    /// The labels that matter.
    pub fn relevant(&self, labels: &Labels) -> Labels {
        let relevant = labels.iter().filter(|(key, _)| self.0.contains(*key));
        relevant.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Whether the tags of an entity let a data plane with these labels have it.
    pub fn admits(&self, entity: &Entity, labels: &Labels) -> bool {
        use EntityKind::{Consumers, Routes, Services};
        if !matches!(entity.kind(), Services | Routes | Consumers) {
            return true;
        }
        let tags = || entity.tags().iter().filter_map(|tag| tag.split_once(':'));
        let is_met = |key: &str| {
            tags().any(|(own, value)| own == key && labels.get(key).is_some_and(|it| it == value))
        };
        tags().filter(|(key, _)| self.0.contains(*key)).all(|(key, _)| is_met(key))
    }
}

/// What of a document data planes with some labels do not get.
#[derive(Debug)]
pub(super) struct View {
    selector: Selector,
    labels: Labels,
    hidden: HashSet<Key>,
}

impl View {
    /// What data planes with these labels get of a document, and what they do not.
    pub(super) fn of(selector: Selector, labels: Labels, document: &Document) -> (View, Document) {
        let mut view = View { selector, labels, hidden: HashSet::new() };
        let mut visible = Document::default();
        // Entities come after those that they name.
        for entity in document.entities() {
            if view.hides(&entity) {
                view.hidden.insert((entity.kind(), entity.id()));
            } else {
                visible.push(entity);
            }
        }
        (view, visible)
    }

    /// Whether it hides an entity, if what it hides of the others is known.
    fn hides(&self, entity: &Entity) -> bool {
        let is_hidden = |to: &weir_model::entity::Reference| self.hidden.contains(&(to.kind, to.id));
        !self.selector.admits(entity, &self.labels) || entity.references().iter().any(is_hidden)
    }

    /// What changes of a document mean for those that have this view. `document`: after the changes, as `dependents` is.
    pub(super) fn changes(
        &mut self,
        document: &Document,
        dependents: &Dependents,
        changes: &[Change],
    ) -> Vec<Change> {
        let mut queue: Vec<Key> = changes.iter().map(|change| (change.kind, change.id)).collect();
        let mut changed = BTreeSet::new();
        while let Some(key) = queue.pop() {
            let entity = document.find(key.0, key.1);
            let is_hidden = entity.is_some_and(|entity| self.hides(&entity));
            let was_hidden = if is_hidden { !self.hidden.insert(key) } else { self.hidden.remove(&key) };
            changed.insert(key);
            if is_hidden != was_hidden {
                queue.extend(dependents.of(key));
            }
        }
        let visible =
            |(kind, id): Key| document.find(kind, id).filter(|_| !self.hidden.contains(&(kind, id)));
        changed.into_iter().map(|key| Change { kind: key.0, id: key.1, entity: visible(key) }).collect()
    }
}

/// Which entities name which.
#[derive(Debug, Default)]
pub(super) struct Dependents(HashMap<Key, BTreeSet<Key>>);

impl Dependents {
    pub(super) fn new(document: &Document) -> Dependents {
        let mut dependents = Dependents::default();
        document.entities().for_each(|entity| dependents.add(&entity));
        dependents
    }

    /// Takes over changes of a document. `before`: what it was.
    pub(super) fn apply(&mut self, before: &Document, changes: &[Change]) {
        let last: BTreeMap<Key, &Change> =
            changes.iter().map(|change| ((change.kind, change.id), change)).collect();
        for ((kind, id), change) in last {
            before.find(kind, id).iter().for_each(|entity| self.remove(entity));
            change.entity.iter().for_each(|entity| self.add(entity));
        }
    }

    fn of(&self, key: Key) -> impl Iterator<Item = Key> {
        self.0.get(&key).into_iter().flatten().copied()
    }

    fn add(&mut self, entity: &Entity) {
        for to in entity.references() {
            self.0.entry((to.kind, to.id)).or_default().insert((entity.kind(), entity.id()));
        }
    }

    fn remove(&mut self, entity: &Entity) {
        for to in entity.references() {
            if let Some(dependents) = self.0.get_mut(&(to.kind, to.id)) {
                dependents.remove(&(entity.kind(), entity.id()));
                if dependents.is_empty() {
                    self.0.remove(&(to.kind, to.id));
                }
            }
        }
    }
}
