//! The thread that watches the workers, and notifies the service manager that they make progress.
use crate::control::Control;
use crate::service_manager::ServiceManager;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;
use tokio::runtime::Handle;
use weir_proxy::{Finding, RunningHook};

/// How often the workers are looked at: they show that they make progress once a second. The service manager may want to hear of
/// them more often.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Watches, once the node is this process's own, until what is returned is dropped.
pub(super) fn start(
    control: Arc<Control>,
    manager: Arc<ServiceManager>,
    runtime: Handle,
) -> io::Result<Sender<()>> {
    let (watching, ended) = mpsc::channel();
    let mut watchdog = control.proxy().watchdog();
    let interval = manager.watchdog().map_or(CHECK_INTERVAL, |limit| CHECK_INTERVAL.min(limit / 2));
    let watch = move || {
        control.files().wait(&runtime);
        let mut unchecked = Duration::ZERO;
        while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
            unchecked += interval;
            if unchecked >= CHECK_INTERVAL {
                unchecked = Duration::ZERO;
                watchdog.check().into_iter().for_each(|finding| report(&control, finding));
            }
            if watchdog.is_content() && manager.watchdog().is_some() {
                manager.alive();
            }
        }
    };
    thread::Builder::new().name("weir-watchdog".to_owned()).spawn(watch)?;
    Ok(watching)
}

fn report(control: &Control, finding: Finding) {
    match finding {
        Finding::Stuck { worker, running } => {
            let (plugin, route) = running.map(|running| names(control, running)).unwrap_or_default();
            tracing::error!(
                worker,
                plugin,
                route,
                "a worker makes no progress and gets no new connections; its requests wait. If a plugin is named, it blocks \
                 or does not end: disable it, and restart the node"
            );
        }
        Finding::Recovered { worker } => tracing::warn!(worker, "the worker makes progress again"),
    }
}

/// What the configuration calls a plugin and a route.
fn names(control: &Control, RunningHook { plugin, route }: RunningHook) -> (String, String) {
    let configuration = control.registry().configuration();
    let document = &configuration.document;
    let named = document.plugins.iter().find(|entity| entity.id == plugin);
    let plugin = named.map_or_else(|| plugin.to_string(), |entity| entity.name.clone());
    let route = route.map(|id| {
        let named = document.routes.iter().find(|entity| entity.id == id);
        named.and_then(|entity| entity.name.clone()).unwrap_or_else(|| id.to_string())
    });
    (plugin, route.unwrap_or_default())
}
