//! Puts in force what is committed.
use super::DataPlane;
use super::state::{InForce, Known, News, hash};
use crate::configuration::{MOST_LISTED, further};
use crate::low_priority::Background;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use weir_model::{Document, PluginSchema};
use weir_proxy::CompileError;

/// How long what is committed may gather after a publication, so that many changes are compiled together.
const REST: Duration = Duration::from_millis(20);

/// So many reasons are told of why something cannot be put in force.
const TOLD: usize = 3;

/// Compiles what is newest, again and again: what is committed meanwhile is in the next.
pub(super) struct Publisher {
    known: Arc<Known>,
    background: Background,
    state: Arc<Mutex<State>>,
}

/// What is compiled, and for whom. Built, copied and freed in the background alone: with many entities each of that takes
/// long enough for a worker to notice.
struct State {
    plane: Arc<dyn DataPlane>,
    plugins: Arc<[PluginSchema]>,
    /// Everything that is committed, as of the last look.
    document: Document,
    /// The fields without effect that were logged last, and how many more there were.
    ignored_fields: (Vec<String>, usize),
    /// No longer in force.
    before: Option<Arc<InForce>>,
}

impl State {
    /// Takes the news over and puts the configuration in force.
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
        let (lines, more) = self.document.ignored_fields(&self.plugins, MOST_LISTED);
        let (known, known_more) = &self.ignored_fields;
        let new = lines.iter().filter(|line| !known.contains(line)).cloned();
        let advice = "`weir config db_export FILE` and `weir check FILE` list all";
        let new = new.chain(further(more, advice).filter(|_| more > *known_more));
        new.for_each(|line| tracing::warn!("{line}"));
        self.ignored_fields = (lines, more);
    }
}

impl Publisher {
    pub(super) fn start(
        known: Arc<Known>,
        plane: Arc<dyn DataPlane>,
        plugins: &[PluginSchema],
    ) -> io::Result<Publisher> {
        let document = known.in_force().document.clone();
        let ignored_fields = Default::default();
        let mut state = State { plane, plugins: plugins.into(), document, ignored_fields, before: None };
        state.log_ignored_fields();
        Ok(Publisher {
            known,
            background: Background::start("weir-compile")?,
            state: Arc::new(Mutex::new(state)),
        })
    }

    pub(super) async fn run(mut self) {
        let mut commits = self.known.commits();
        while commits.changed().await.is_ok() {
            self.publish(&mut commits).await;
            tokio::time::sleep(REST).await;
        }
    }

    async fn publish(&mut self, commits: &mut watch::Receiver<crate::store::Revision>) {
        let (revision, news) = self.known.news(commits);
        let state = self.state.clone();
        let work = move || state.lock().unwrap_or_else(PoisonError::into_inner).publish(news);
        match self.background.run(work).await {
            Ok(Ok(document)) => {
                let before = self.known.put_in_force(InForce { revision, hash: hash(revision), document });
                self.state.lock().unwrap_or_else(PoisonError::into_inner).before = Some(before);
            }
            Ok(Err(errors)) => {
                errors.iter().for_each(|error| tracing::error!("{error}"));
                let first = errors.iter().take(TOLD).map(ToString::to_string).collect::<Vec<_>>();
                tracing::error!(
                    revision = revision.0,
                    "what is committed cannot be put in force; this is a defect"
                );
                self.known.give_up(revision, first.join("; "));
            }
            Err(error) => {
                tracing::error!(%error, revision = revision.0, "what is committed was not put in force");
                self.known.give_up(revision, error.to_string());
            }
        }
    }
}
