//! Reloads while traffic flows, one after the other.
use crate::control::{Control, Published};
use std::sync::Arc;
use tokio::sync::Mutex;

/// Reloads one node, one reload after the other.
pub(crate) struct Reloader {
    control: Arc<Control>,
    turn: Mutex<()>,
}

impl Reloader {
    /// For the node behind this handle.
    pub(crate) fn new(control: Arc<Control>) -> Arc<Reloader> {
        Arc::new(Reloader { control, turn: Mutex::default() })
    }

    /// The node.
    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// Reads the declarative file again, puts it in force, and logs how it went. When it is bad, the configuration
    /// before it stays in force.
    pub(crate) async fn reload(&self) -> Result<Published, Vec<String>> {
        let _turn = self.turn.lock().await;
        let outcome = self.control.reload().await;
        report(&outcome);
        outcome
    }
}

fn report(outcome: &Result<Published, Vec<String>>) {
    match outcome {
        Ok(published) => {
            published.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
            tracing::info!(configuration_hash = published.hash, "reloaded");
        }
        Err(errors) => {
            errors.iter().for_each(|error| tracing::error!("{error}"));
            tracing::error!(
                errors = errors.len(),
                "reload refused: the configuration before it stays in force"
            );
        }
    }
}
