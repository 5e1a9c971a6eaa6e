//! What data planes are sent: what changed since the revision that they have, or everything, which is written once for all that
//! take it in the same form.
use super::super::cohorts::Counted;
use super::super::payloads::Form;
use super::altered::{Altered, with_plugins_of_routes};
use super::peers::Peers;
use crate::sync::Labels;
use crate::sync::identity::{Digest, Identity};
use crate::sync::inventory::Key;
use crate::wire::compat::Rules;
use crate::wire::v1::MessageError;
use crate::wire::v2::{Delta, DeltaForm, SyncResult, SyncVersion};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use weir_model::{Change, Document, PluginSchema};

/// A data plane that lacks more revisions gets everything.
const MAX_BEHIND: u64 = 512;

/// For how many forms, each with the labels that select, it is kept what is altered.
const MAX_FORMS: usize = 64;

/// The configuration as increments, and the data planes that follow them.
pub(in crate::control_plane) struct Increments {
    plugins: Arc<[PluginSchema]>,
    pub(super) peers: Peers,
    /// Everything, as it was written last.
    whole: Mutex<Option<(Edition, Whole)>>,
    altered: tokio::sync::Mutex<HashMap<(Form, Labels), Altered>>,
}

/// A result of a call, as JSON. Several data planes wait for the same.
type Whole = Arc<OnceCell<Arc<str>>>;

/// What identifies everything as it is written: the version, its content, the form of the entities, and the labels that select.
type Edition = (SyncVersion, Digest, Form, Labels);

/// What a data plane has.
pub(super) struct Held {
    /// What that is, if it is known.
    pub(super) identity: Option<Identity>,
    /// How it names it.
    pub(super) version: SyncVersion,
    pub(super) form: Form,
}

/// What a data plane gets.
pub(super) struct Answer {
    /// What it has then.
    pub(super) identity: Identity,
    /// The result of its call, as JSON.
    pub(super) result: Arc<str>,
}

impl Increments {
    pub(in crate::control_plane) fn new(plugins: Arc<[PluginSchema]>) -> Increments {
        Increments { plugins, peers: Peers::default(), whole: Mutex::default(), altered: Default::default() }
    }

    /// What is left out or rewritten for the data planes of a form.
    pub(super) async fn altered(&self, cohort: &Counted<'_>, form: Form) -> Arc<[String]> {
        let mut by_form = self.altered.lock().await;
        let key = (form, cohort.labels().clone());
        if by_form.len() >= MAX_FORMS && !by_form.contains_key(&key) {
            by_form.clear();
        }
        let altered = by_form.entry(key).or_default();
        if let Some(news) = altered.news(cohort) {
            let (before, plugins) = (std::mem::take(altered), self.plugins.clone());
            let updated = spawn_blocking(move || before.updated(&news, form, &plugins)).await;
            *altered = updated.unwrap_or_default();
        }
        altered.list()
    }

    /// What a data plane lacks.
    pub(super) async fn answer(&self, cohort: &Counted<'_>, held: Held) -> Result<Answer, MessageError> {
        let (identity, document, changed) = cohort.with(|cohort| {
            let identity = cohort.identity();
            let changed = held.start(identity.sequence).and_then(|from| cohort.changed_after(from));
            (identity, cohort.document().clone(), changed)
        });
        let version = held.version.with(identity.sequence);
        let result = match changed {
            Some(_) if held.identity == Some(identity) => result(Vec::new(), &version),
            Some(keys) => self.changes(held.form, document, keys, version).await?,
            None => {
                self.everything((version, identity.digest, held.form, cohort.labels().clone()), document)
                    .await?
            }
        };
        Ok(Answer { identity, result })
    }

    async fn changes(
        &self,
        form: Form,
        document: Arc<Document>,
        keys: Vec<Key>,
        version: SyncVersion,
    ) -> Result<Arc<str>, MessageError> {
        let plugins = self.plugins.clone();
        let changes = spawn_blocking(move || {
            let form = delta_form(form, &plugins, &document);
            let keys = with_plugins_of_routes(keys, &document);
            let mut deltas: Vec<_> =
                keys.iter().filter_map(|key| form.delta(&change(&document, *key), version.clone())).collect();
            // What takes the name of a deleted entity comes after it.
            deltas.sort_by_key(|delta| delta.entity.is_some());
            if deltas.is_empty() {
                // Without a change the data plane would not take the version.
                deltas.push(Delta::of_workspace(version.clone()));
            }
            result(deltas, &version)
        });
        changes.await.map_err(|error| MessageError::Form(error.to_string()))
    }

    async fn everything(&self, edition: Edition, document: Arc<Document>) -> Result<Arc<str>, MessageError> {
        let cell = {
            let mut whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
            let written = whole.take().filter(|(of, _)| *of == edition);
            whole.insert(written.unwrap_or_else(|| (edition.clone(), Whole::default()))).1.clone()
        };
        let written = cell.get_or_try_init(|| async {
            let plugins = self.plugins.clone();
            let write = move || {
                let (version, _, form, _) = edition;
                serde_json::to_string(&delta_form(form, &plugins, &document).everything(version))
            };
            match spawn_blocking(write).await {
                Ok(Ok(text)) => Ok(text.into()),
                Ok(Err(error)) => Err(MessageError::Form(error.to_string())),
                Err(error) => Err(MessageError::Form(error.to_string())),
            }
        });
        written.await.cloned()
    }
}

impl Held {
    /// From what on changes are sent, if this is no more than a few revisions behind. Data planes of 3.10 get nothing or
    /// everything.
    fn start(&self, revision: u64) -> Option<Identity> {
        let takes_changes = matches!(self.version, SyncVersion::Number(_));
        let max_behind = if takes_changes { MAX_BEHIND } else { 0 };
        let is_near = |from: &Identity| from.sequence <= revision && revision - from.sequence <= max_behind;
        self.identity.filter(is_near)
    }
}

pub(super) fn delta_form<'f>(
    form: Form,
    plugins: &'f [PluginSchema],
    document: &'f Document,
) -> DeltaForm<'f> {
    let Form { version, takes_expressions } = form;
    DeltaForm { plugins, rules: Rules::of(version), takes_expressions, document }
}

fn change(document: &Document, (kind, id): Key) -> Change {
    document.find(kind, id).map_or_else(|| Change::delete(kind, id), Change::put)
}

fn result(deltas: Vec<Delta>, version: &SyncVersion) -> Arc<str> {
    SyncResult { wipe: false, deltas }.to_value(version).to_string().into()
}
