//! Reloads, one after the other.
use crate::control::{Control, Published};
use crate::service_manager::ServiceManager;
use std::sync::Arc;
use tokio::sync::{Mutex, MutexGuard};

/// Runs the reloads of a node one after the other.
pub(crate) struct Reloader {
    control: Arc<Control>,
    manager: Arc<ServiceManager>,
    turn: Mutex<()>,
}

impl Reloader {
    /// For the node behind this handle.
    pub(crate) fn new(control: Arc<Control>, manager: Arc<ServiceManager>) -> Arc<Reloader> {
        Arc::new(Reloader { control, manager, turn: Mutex::default() })
    }

    /// The node.
    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// Waits for a reload in progress, and keeps others out until the guard is dropped.
    pub(crate) async fn hold(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Reads the declarative file again, applies it, and logs the outcome. If it has errors, the previous configuration
    /// stays active.
    pub(crate) async fn reload(&self) -> Result<Published, Vec<String>> {
        let _turn = self.turn.lock().await;
        self.manager.reloading();
        let outcome = self.control.reload().await;
        self.manager.ready();
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
            tracing::error!(errors = errors.len(), "reload refused: the previous configuration stays active");
        }
    }
}
