//! A reload while traffic flows: prepared on a thread of its own, which yields to the workers.
use crate::aside::aside;
use crate::control::{Control, Prepared, Published};
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
        let outcome = match self.prepare().await {
            Ok(prepared) => Ok(self.control.publish(prepared).await),
            Err(errors) => Err(errors),
        };
        report(&outcome);
        outcome
    }

    async fn prepare(&self) -> Result<Prepared, Vec<String>> {
        let control = self.control.clone();
        aside("weir-reload", move || control.prepare())
            .await
            .unwrap_or_else(|error| Err(vec![error.to_string()]))
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
