//! A reload while traffic flows: prepared on a thread of its own, which yields to the workers.
use crate::control::{Control, Prepared, Published};
use std::sync::Arc;
use std::thread;
use tokio::sync::{Mutex, oneshot};

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
        let (done, outcome) = oneshot::channel();
        let control = self.control.clone();
        let aside = move || {
            // Of no more than this thread; where it is refused, the reload merely competes with traffic.
            let _ = rustix::process::nice(19);
            let _ = done.send(control.prepare());
        };
        match thread::Builder::new().name("weir-reload".to_owned()).spawn(aside) {
            Ok(_) => outcome
                .await
                .unwrap_or_else(|_| Err(vec!["the reload ended early; this is a defect".to_owned()])),
            Err(error) => Err(vec![format!("no thread for the reload: {error}")]),
        }
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
