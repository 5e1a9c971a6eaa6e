//! What data planes of Kong get: the whole configuration, prepared once for all that take it in the same form.
use super::cohorts::Cohorts;
use crate::sync::{Labels, Selector};
use crate::wire::compat::{KongVersion, Rules};
use crate::wire::hash::Hashes;
use crate::wire::payload::{ConfigTable, Withheld};
use crate::wire::v1::{MessageError, Reconfigure};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{OnceCell, watch};
use weir_model::{Document, PluginSchema};

/// For how many forms, and for how many labels, a version is kept.
const MAX_KEPT: usize = 64;

/// Prepares the configuration for as long as there are data planes that take it.
pub(super) struct Payloads {
    plugins: Arc<[PluginSchema]>,
    newest: watch::Sender<Option<Arc<Payload>>>,
    /// How many data planes take it.
    takers: watch::Sender<usize>,
}

/// A version of the configuration.
pub(super) struct Payload {
    pub(super) revision: u64,
    pub(super) hashes: Hashes,
    document: Arc<Document>,
    plugins: Arc<[PluginSchema]>,
    exported: f64,
    frames: Mutex<HashMap<Form, Arc<OnceCell<Frame>>>>,
    /// What data planes with some labels get of it.
    selected: Mutex<BTreeMap<Labels, Arc<OnceCell<Arc<Payload>>>>>,
}

/// In what form data planes take a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Form {
    pub(super) version: KongVersion,
    pub(super) takes_expressions: bool,
}

/// A message, and what is left out of it or rewritten.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub(super) bytes: Bytes,
    pub(super) altered: Arc<[String]>,
}

/// A data plane that takes payloads, until it is dropped.
pub(super) struct Taker<'p>(&'p watch::Sender<usize>);

impl Drop for Taker<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|takers| *takers -= 1);
    }
}

impl Payloads {
    pub(super) fn new(plugins: Arc<[PluginSchema]>) -> Payloads {
        Payloads { plugins, newest: watch::Sender::new(None), takers: watch::Sender::new(0) }
    }

    /// Counts a data plane.
    pub(super) fn taker(&self) -> Taker<'_> {
        self.takers.send_modify(|takers| *takers += 1);
        Taker(&self.takers)
    }

    /// The newest version, and a notice of each further one.
    pub(super) fn newest(&self) -> watch::Receiver<Option<Arc<Payload>>> {
        self.newest.subscribe()
    }

    /// Follows the configuration: the first change is prepared at once, those within the pause that follows together.
    pub(super) async fn follow(&self, cohorts: &Cohorts, pause: Duration) {
        let (mut sequences, mut takers) = (cohorts.newest(), self.takers.subscribe());
        loop {
            if *takers.borrow_and_update() == 0 {
                // One that comes back must not be sent what is old by then.
                self.newest.send_replace(None);
            }
            // The sender is a field of this.
            let _ = takers.wait_for(|takers| *takers > 0).await;
            let sequence = *sequences.borrow_and_update();
            let before = self.newest.borrow().clone();
            if before.as_ref().is_none_or(|before| before.revision != sequence) {
                self.export(cohorts, before.clone()).await;
                if before.is_some() {
                    tokio::time::sleep(pause).await;
                }
            } else {
                tokio::select! {
                    changed = sequences.changed() => if changed.is_err() {
                        return;
                    },
                    _ = takers.wait_for(|takers| *takers == 0) => {}
                }
            }
        }
    }

    async fn export(&self, cohorts: &Cohorts, before: Option<Arc<Payload>>) {
        let (revision, document) = {
            let all = cohorts.lock();
            (all.sequence(), all.document().clone())
        };
        let plugins = self.plugins.clone();
        let export = move || Payload::new(revision, document, plugins, before.as_deref());
        match tokio::task::spawn_blocking(export).await {
            Ok(payload) => drop(self.newest.send_replace(Some(Arc::new(payload)))),
            Err(error) => {
                tracing::error!(%error, "the configuration was not prepared for data planes of Kong")
            }
        }
    }
}

impl Payload {
    /// Takes long where there are many entities.
    fn new(
        revision: u64,
        document: Arc<Document>,
        plugins: Arc<[PluginSchema]>,
        before: Option<&Payload>,
    ) -> Payload {
        let table = ConfigTable::new(&document, &plugins);
        let earlier = before.map(|before| (before.table(), &before.hashes));
        let hashes = table.hashes(earlier.as_ref().map(|(table, hashes)| (table, *hashes)));
        let exported = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        Payload {
            revision,
            hashes,
            document,
            plugins,
            exported,
            frames: Mutex::default(),
            selected: Mutex::default(),
        }
    }

    /// What data planes with these labels get of it.
    pub(super) async fn selected(
        self: &Arc<Self>,
        selector: &Selector,
        labels: &Labels,
    ) -> Result<Arc<Payload>, MessageError> {
        if selector.is_off() {
            return Ok(self.clone());
        }
        let labels = selector.relevant(labels);
        let cell = {
            let mut selected = self.selected.lock().unwrap_or_else(PoisonError::into_inner);
            if selected.len() >= MAX_KEPT && !selected.contains_key(&labels) {
                selected.clear();
            }
            selected.entry(labels.clone()).or_default().clone()
        };
        let selected = cell.get_or_try_init(|| async {
            let (payload, selector) = (self.clone(), selector.clone());
            let select = move || {
                let document = Arc::new(selector.select(&labels, &payload.document));
                Arc::new(Payload::new(payload.revision, document, payload.plugins.clone(), None))
            };
            let selected = tokio::task::spawn_blocking(select).await;
            selected.map_err(|error| MessageError::Form(error.to_string()))
        });
        selected.await.cloned()
    }

    /// Its entities.
    pub(super) fn table(&self) -> ConfigTable<'_> {
        ConfigTable::new(&self.document, &self.plugins)
    }

    /// The message for data planes that take this form.
    pub(super) async fn frame(self: &Arc<Self>, form: Form) -> Result<Frame, MessageError> {
        let cell = {
            let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
            if frames.len() >= MAX_KEPT && !frames.contains_key(&form) {
                frames.clear();
            }
            frames.entry(form).or_default().clone()
        };
        let frame = cell.get_or_try_init(|| async {
            let payload = self.clone();
            let encoded = tokio::task::spawn_blocking(move || payload.encode(form)).await;
            encoded.unwrap_or_else(|error| Err(MessageError::Form(error.to_string())))
        });
        frame.await.cloned()
    }

    fn encode(&self, form: Form) -> Result<Frame, MessageError> {
        let rules = Rules::of(form.version);
        let table = match form.takes_expressions {
            true => self.table(),
            false => self.table().without_expressions(),
        };
        let message = Reconfigure { timestamp: self.exported, table: &table, hashes: &self.hashes };
        let altered = table.withheld(&rules).iter().map(Withheld::to_string).collect();
        Ok(Frame { bytes: message.encode(&rules)?, altered })
    }
}
