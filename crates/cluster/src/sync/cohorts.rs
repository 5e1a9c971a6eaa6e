//! All cohorts of a control plane: one for each set of labels that selects something else.
use super::cohort::Cohort;
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
    epoch: u64,
    sequence: u64,
    document: Arc<Document>,
    /// Empty where nothing is selected.
    dependents: Dependents,
    cohorts: BTreeMap<Labels, Member>,
}

#[derive(Debug)]
struct Member {
    cohort: Cohort,
    /// None where it gets everything.
    view: Option<View>,
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
        let dependents = if selector.is_off() { Dependents::default() } else { Dependents::new(&document) };
        Cohorts { plugins, selector, epoch, sequence, document, dependents, cohorts: BTreeMap::new() }
    }

    /// The newest sequence.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Everything, whatever the labels.
    pub fn document(&self) -> &Arc<Document> {
        &self.document
    }

    /// The cohort of a data plane with these labels. Takes long for the first one, if there are many entities.
    pub fn of(&mut self, labels: &Labels) -> &mut Cohort {
        let labels = self.selector.relevant(labels);
        let Cohorts { plugins, selector, epoch, sequence, document, cohorts, .. } = self;
        let member = cohorts.entry(labels).or_insert_with_key(|labels| {
            let (view, document) = visible(selector, labels, document);
            Member { cohort: Cohort::new(plugins.clone(), *epoch, *sequence, document), view }
        });
        &mut member.cohort
    }

    /// What each cohort has.
    pub fn identities(&self) -> impl Iterator<Item = (&Labels, Identity)> {
        self.cohorts.iter().map(|(labels, member)| (labels, member.cohort.identity()))
    }

    /// Forgets the cohorts whose labels no data plane has.
    pub fn retain(&mut self, mut is_used: impl FnMut(&Labels) -> bool) {
        self.cohorts.retain(|labels, _| is_used(labels));
    }

    /// The configuration after these changes.
    pub fn advance(&mut self, sequence: u64, document: Arc<Document>, changes: &[Change]) {
        if !self.selector.is_off() {
            self.dependents.apply(&self.document, changes);
        }
        (self.sequence, self.document) = (sequence, document);
        for member in self.cohorts.values_mut() {
            match &mut member.view {
                Some(view) => {
                    let changes = view.changes(&self.document, &self.dependents, changes);
                    member.cohort.apply(sequence, &changes);
                }
                None => member.cohort.advance(sequence, self.document.clone(), changes),
            }
        }
    }

    /// The configuration, where the changes that led to it are unknown.
    pub fn replace(&mut self, sequence: u64, document: Arc<Document>) {
        if !self.selector.is_off() {
            self.dependents = Dependents::new(&document);
        }
        (self.sequence, self.document) = (sequence, document);
        for (labels, member) in &mut self.cohorts {
            let (view, document) = visible(&self.selector, labels, &self.document);
            member.view = view;
            member.cohort.replace(sequence, document);
        }
    }
}

/// What data planes with these labels get.
fn visible(selector: &Selector, labels: &Labels, document: &Arc<Document>) -> (Option<View>, Arc<Document>) {
    if selector.is_off() {
        return (None, document.clone());
    }
    let (view, document) = View::of(selector.clone(), labels.clone(), document);
    (Some(view), Arc::new(document))
}
