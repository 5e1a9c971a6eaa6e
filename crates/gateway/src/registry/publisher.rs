//! Puts in force what is committed.
use super::DataPlane;
use super::known::{InForce, Known, hash};
use crate::aside::behind;
use crate::configuration::not_in_force;
use std::sync::Arc;
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
    plane: Arc<dyn DataPlane>,
    plugins: Arc<[PluginSchema]>,
    /// The warning of fields without effect, said once for as long as it stays the same.
    warning: Option<String>,
}

/// What became of a configuration.
struct Outcome {
    published: Result<(), Vec<CompileError>>,
    document: Document,
    warning: Option<String>,
}

impl Publisher {
    pub(super) fn new(known: Arc<Known>, plane: Arc<dyn DataPlane>, plugins: &[PluginSchema]) -> Publisher {
        let warning = not_in_force(&known.in_force().document.not_in_force(plugins));
        warning.iter().for_each(|warning| tracing::warn!("{warning}"));
        Publisher { known, plane, plugins: plugins.into(), warning }
    }

    pub(super) async fn run(mut self) {
        let mut commits = self.known.commits();
        while commits.changed().await.is_ok() {
            self.publish(&mut commits).await;
            tokio::time::sleep(REST).await;
        }
    }

    async fn publish(&mut self, commits: &mut watch::Receiver<crate::store::Revision>) {
        let (revision, document) = self.known.newest(commits);
        let (plane, plugins) = (self.plane.clone(), self.plugins.clone());
        let work = move || {
            let published = plane.publish(&document);
            let warning = not_in_force(&document.not_in_force(&plugins));
            Outcome { published, document, warning }
        };
        match behind("weir-compile", work).await {
            Ok(Outcome { published: Ok(()), document, warning }) => {
                self.known.put_in_force(InForce { revision, hash: hash(revision), document });
                self.warn(warning);
            }
            Ok(Outcome { published: Err(errors), .. }) => {
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

    fn warn(&mut self, warning: Option<String>) {
        if self.warning != warning {
            warning.iter().for_each(|warning| tracing::warn!("{warning}"));
            self.warning = warning;
        }
    }
}
