//! Reloads, one after the other.
use super::command_socket::{Reply, Request, ask};
use crate::control::{Control, Published};
use crate::service_manager::ServiceManager;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::spawn_blocking;

/// Runs the reloads of a node one after the other.
pub(crate) struct Reloader {
    control: Arc<Control>,
    manager: Arc<ServiceManager>,
    /// The node's folder, where the next process can be asked.
    folder: PathBuf,
    /// Whether the next process is the node's.
    is_replaced: Mutex<bool>,
}

/// The time in which nothing is reloaded.
pub(crate) struct NoReload<'r>(MutexGuard<'r, bool>);

impl NoReload<'_> {
    /// Leaves the reloads that wait to the next process.
    pub(crate) fn leave(mut self) {
        *self.0 = true;
    }
}

impl Reloader {
    /// For the node behind this handle, in this folder.
    pub(crate) fn new(control: Arc<Control>, manager: Arc<ServiceManager>, folder: &Path) -> Arc<Reloader> {
        Arc::new(Reloader { control, manager, folder: folder.to_owned(), is_replaced: Mutex::default() })
    }

    /// The node.
    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// Waits for a reload in progress, and keeps others out until the guard is dropped.
    pub(crate) async fn hold(&self) -> NoReload<'_> {
        NoReload(self.is_replaced.lock().await)
    }

    /// Reads the declarative file again, applies it, and logs the outcome. If it has errors, the previous configuration
    /// stays active.
    pub(crate) async fn reload(&self) -> Result<Published, Vec<String>> {
        let is_replaced = self.is_replaced.lock().await;
        if *is_replaced {
            // Until its listener is closed, this process may be the one that answers.
            drop(is_replaced);
            return published(self.ask_next_process(Request::Reload).await);
        }
        self.manager.reloading();
        let outcome = self.control.reload().await;
        self.manager.ready();
        report(&outcome);
        outcome
    }

    /// Whether another process has replaced this one.
    pub(super) fn is_replaced(&self) -> bool {
        self.is_replaced.try_lock().is_ok_and(|is_replaced| *is_replaced)
    }

    /// Asks the process that has replaced this one, which does not end before it has passed the reply on.
    pub(super) async fn ask_next_process(&self, request: Request) -> Option<Reply> {
        let _answered_first = self.control.requests_in_flight().hold();
        let folder = self.folder.clone();
        spawn_blocking(move || ask(&folder, request)).await.ok()?.ok()
    }
}

/// A reload by the process that has replaced this one, which may have read the file before the change that the reload is for.
fn published(reply: Option<Reply>) -> Result<Published, Vec<String>> {
    match reply {
        Some(Reply { errors, warnings, configuration_hash: Some(hash), .. }) if errors.is_empty() => {
            Ok(Published { hash, warnings, unusable: Vec::new() })
        }
        Some(Reply { errors, .. }) => Err(errors),
        None => {
            Err(vec!["the process was replaced, and the new one does not answer: reload again".to_owned()])
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
            tracing::error!(errors = errors.len(), "reload refused: the previous configuration stays active");
        }
    }
}
