//! Makes committed entities active.
use super::state::{ActiveConfiguration, News, RegistryState, hash};
use super::{DataPlane, MAX_REPORTED_ERRORS};
use crate::configuration::{MAX_LISTED_FIELDS, and_more};
use crate::threads::Background;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use weir_model::{Document, PluginSchema};
use weir_proxy::CompileError;

/// The pause after a publication, so that changes of many commits are compiled together.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(20);

/// Compiles the newest entities, again and again; commits during a compilation are part of the next.
pub(super) struct Publisher {
    registry: Arc<RegistryState>,
    background: Background,
    state: Arc<Mutex<State>>,
}

/// The configuration to compile. Built, copied and freed on the background thread only, because with many entities each
/// of these delays a worker noticeably.
struct State {
    plane: Arc<dyn DataPlane>,
    plugins: Arc<[PluginSchema]>,
    /// All committed entities, as of the last publication.
    document: Document,
    /// The fields without effect that were logged last, and how many more there were.
    ignored_fields: (Vec<String>, usize),
    /// The previously active configuration.
    before: Option<Arc<ActiveConfiguration>>,
}

impl State {
    /// Applies the news and publishes the configuration.
    fn publish(&mut self, news: News) -> Result<Document, Vec<CompileError>> {
        self.before = None;
        match news {
            News::Changes(changes) => changes.iter().for_each(|change| self.document.apply(change)),
            News::Whole(document) => self.document = *document,
        }
        self.plane.publish(&self.document)?;
        self.log_ignored_fields();
        Ok(self.document.clone())
    }

    /// Logs the fields without effect that were not logged before.
    fn log_ignored_fields(&mut self) {
        let (lines, more) = self.document.ignored_fields(&self.plugins, MAX_LISTED_FIELDS);
        let (known, known_more) = &self.ignored_fields;
        let new = lines.iter().filter(|line| !known.contains(line)).cloned();
        let advice = "`weir config db_export FILE` and `weir check FILE` list all";
        let new = new.chain(and_more(more, advice).filter(|_| more > *known_more));
        new.for_each(|line| tracing::warn!("{line}"));
        self.ignored_fields = (lines, more);
    }
}

impl Publisher {
    pub(super) fn start(
        registry: Arc<RegistryState>,
        plane: Arc<dyn DataPlane>,
        plugins: &[PluginSchema],
    ) -> io::Result<Publisher> {
        let document = registry.active().document.clone();
        let ignored_fields = Default::default();
        let mut state = State { plane, plugins: plugins.into(), document, ignored_fields, before: None };
        state.log_ignored_fields();
        Ok(Publisher {
            registry,
            background: Background::start("weir-compile")?,
            state: Arc::new(Mutex::new(state)),
        })
    }

    pub(super) async fn run(mut self) {
        let mut commits = self.registry.commits();
        while commits.changed().await.is_ok() {
            self.publish(&mut commits).await;
            tokio::time::sleep(PUBLISH_INTERVAL).await;
        }
    }

    async fn publish(&mut self, commits: &mut watch::Receiver<crate::store::Revision>) {
        let (revision, news) = self.registry.news(commits);
        let state = self.state.clone();
        let work = move || state.lock().unwrap_or_else(PoisonError::into_inner).publish(news);
        match self.background.run(work).await {
            Ok(Ok(document)) => {
                let before =
                    self.registry.activate(ActiveConfiguration { revision, hash: hash(revision), document });
                self.state.lock().unwrap_or_else(PoisonError::into_inner).before = Some(before);
            }
            Ok(Err(errors)) => {
                errors.iter().for_each(|error| tracing::error!("{error}"));
                let first =
                    errors.iter().take(MAX_REPORTED_ERRORS).map(ToString::to_string).collect::<Vec<_>>();
                tracing::error!(
                    revision = revision.0,
                    "the change was saved but could not be applied; the previous configuration stays active; this is \
                     a defect"
                );
                self.registry.record_failure(revision, first.join("; "));
            }
            Err(error) => {
                tracing::error!(
                    %error,
                    revision = revision.0,
                    "the change was saved but could not be applied; the previous configuration stays active"
                );
                self.registry.record_failure(revision, error.to_string());
            }
        }
    }
}
