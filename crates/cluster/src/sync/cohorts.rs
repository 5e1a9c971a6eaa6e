//! All cohorts of a control plane: one for each set of labels that selects something else.
use super::cohort::{Cohort, Digests, Replacement, digests};
use super::identity::Identity;
use super::select::{Dependents, Labels, Selector, View};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_model::{Change, Document, PluginSchema};

/// The configuration of a control plane, as each of its data planes gets it.
#[derive(Debug)]
pub struct Cohorts {
    plugins: Arc<[PluginSchema]>,
    selector: Selector,
    /// Everything; what all data planes get where nothing is selected.
    everything: Cohort,
    /// Empty where nothing is selected.
    dependents: Dependents,
    selected: BTreeMap<Labels, Selected>,
}

/// What the data planes with some labels get.
#[derive(Debug)]
struct Selected {
    cohort: Cohort,
    view: View,
}

impl Cohorts {
    /// Without data planes. `epoch` is new, unless the sequence continues one that data planes may know.
    pub fn new(
        plugins: Arc<[PluginSchema]>,
        selector: Selector,
        epoch: u64,
        sequence: u64,
        document: Arc<Document>,
    ) -> Cohorts {
        let everything = Cohort::new(plugins.clone(), epoch, sequence, document);
        let dependents = dependents(&selector, everything.document());
        Cohorts { plugins, selector, everything, dependents, selected: BTreeMap::new() }
    }

    /// The newest sequence.
    pub fn sequence(&self) -> u64 {
        self.everything.identity().sequence
    }

    /// Everything, whatever the labels.
    pub fn document(&self) -> &Arc<Document> {
        self.everything.document()
    }

    /// The cohort of a data plane with these labels. Takes long for the first one, if labels select and there are many
    /// entities.
    pub fn of(&mut self, labels: &Labels) -> &mut Cohort {
        let Cohorts { plugins, selector, everything, selected, .. } = self;
        if selector.is_off() {
            return everything;
        }
        let Identity { epoch, sequence, .. } = everything.identity();
        let selected = selected.entry(selector.relevant(labels)).or_insert_with_key(|labels| {
            let (view, document) = View::of(selector.clone(), labels.clone(), everything.document());
            Selected { cohort: Cohort::new(plugins.clone(), epoch, sequence, Arc::new(document)), view }
        });
        &mut selected.cohort
    }

    /// What each cohort has.
    pub fn identities(&self) -> impl Iterator<Item = (&Labels, Identity)> {
        self.selected.iter().map(|(labels, selected)| (labels, selected.cohort.identity()))
    }

    /// Forgets the cohorts whose labels no data plane has.
    pub fn retain(&mut self, mut is_used: impl FnMut(&Labels) -> bool) {
        self.selected.retain(|labels, _| is_used(labels));
    }

    /// The configuration after these changes, of which `of_changes` are the [`digests`].
    pub fn apply(&mut self, sequence: u64, changes: &[Change], of_changes: Digests) {
        if !self.selector.is_off() {
            self.dependents.apply(self.everything.document(), changes);
        }
        self.everything.apply(sequence, changes, of_changes);
        for Selected { cohort, view } in self.selected.values_mut() {
            let changes = view.changes(self.everything.document(), &self.dependents, changes);
            cohort.apply(sequence, &changes, digests(&changes));
        }
    }

    /// The configuration, where the changes that led to it are unknown. Returns what it was, because freeing that takes
    /// long.
    pub fn replace(&mut self, sequence: u64, by: Replacement) -> Replacement {
        let before = self.everything.replace(sequence, by);
        self.dependents = dependents(&self.selector, self.everything.document());
        for (labels, selected) in &mut self.selected {
            let (view, document) =
                View::of(self.selector.clone(), labels.clone(), self.everything.document());
            selected.view = view;
            selected.cohort.replace(sequence, Replacement::new(Arc::new(document)));
        }
        before
    }
}

fn dependents(selector: &Selector, document: &Document) -> Dependents {
    if selector.is_off() { Dependents::default() } else { Dependents::new(document) }
}
