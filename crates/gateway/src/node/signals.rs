//! What signals and commands make of a node that serves.
use super::command_socket::{Stop, UpgradeOutcome, UpgradeRequest};
use super::reload::Reloader;
use crate::control::{Control, Drain};
use crate::service_manager::ServiceManager;
use crate::threads::on_a_thread;
use crate::upgrade::{Successor, UpgradeError, Upgrader};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// How long a new process may take to be ready, unless the command says otherwise.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(60);

/// The signals that a node handles.
pub(super) struct Signals {
    hangup: Signal,
    /// SIGUSR1, which log rotation sends, as for nginx.
    reopen: Signal,
    /// SIGUSR2, as for nginx.
    upgrade: Signal,
    stop: [Signal; 3],
}

/// Why a node no longer serves.
pub(super) enum Ended {
    /// It is to stop.
    Stop(Stop),
    /// Another process has taken over, as a command may have asked for; perhaps both are to stop.
    Replaced(Successor, Option<oneshot::Sender<UpgradeOutcome>>, Option<Stop>),
}

/// How the drain ended.
pub(super) enum Stopped {
    Drained,
    AtOnce,
}

/// An upgrade in progress.
struct Upgrading {
    outcome: JoinHandle<Result<Successor, UpgradeError>>,
    reply: Option<oneshot::Sender<UpgradeOutcome>>,
}

/// What commands ask of the node.
pub(super) struct Requests {
    pub(super) quit: mpsc::Receiver<Stop>,
    pub(super) upgrade: mpsc::Receiver<UpgradeRequest>,
}

impl Signals {
    pub(super) fn install() -> io::Result<Signals> {
        let stop =
            [signal(SignalKind::terminate())?, signal(SignalKind::quit())?, signal(SignalKind::interrupt())?];
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            reopen: signal(SignalKind::user_defined1())?,
            upgrade: signal(SignalKind::user_defined2())?,
            stop,
        })
    }

    /// What a node does as it starts; none if a signal stops it before that is done.
    pub(super) async fn unless_stopped<T>(&mut self, starting: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.stop() => None,
            started = starting => Some(started),
        }
    }

    /// The next signal to stop.
    async fn stop(&mut self) {
        stop_signal(&mut self.stop).await;
    }

    /// Handles signals and commands until the node no longer serves.
    pub(super) async fn until_ended(
        &mut self,
        reloader: &Arc<Reloader>,
        upgrader: &Arc<Upgrader>,
        mut requests: Requests,
        stop: Stop,
    ) -> Ended {
        let mut upgrading: Option<Upgrading> = None;
        loop {
            let asked = tokio::select! {
                // What is to stop comes before the end of an upgrade: it is for both processes, and would be lost with this one.
                biased;
                () = stop_signal(&mut self.stop) => stop,
                asked = requests.quit.recv() => asked.unwrap_or(stop),
                _ = self.hangup.recv() => {
                    let reloader = reloader.clone();
                    tokio::spawn(async move { reloader.reload().await });
                    continue;
                }
                _ = self.reopen.recv() => {
                    reloader.control().reopen_logs();
                    continue;
                }
                _ = self.upgrade.recv() => {
                    let request = UpgradeRequest { program: None, timeout: None, reply: None };
                    Upgrading::begin(&mut upgrading, reloader, upgrader, request);
                    continue;
                }
                Some(request) = requests.upgrade.recv() => {
                    Upgrading::begin(&mut upgrading, reloader, upgrader, request);
                    continue;
                }
                (outcome, reply) = Upgrading::ended(&mut upgrading) => match outcome {
                    Ok(successor) => return Ended::Replaced(successor, reply, None),
                    Err(error) => {
                        upgrading = None;
                        answer(reply, Err(error.to_string())).await;
                        continue;
                    }
                },
            };
            return match upgrading {
                Some(upgrading) => self.stop_upgrading(upgrading, upgrader, asked).await,
                None => Ended::Stop(asked),
            };
        }
    }

    /// Stops both processes: this one, and the one that is about to take over. A second signal does not wait for that one.
    async fn stop_upgrading(&mut self, upgrading: Upgrading, upgrader: &Upgrader, stop: Stop) -> Ended {
        tracing::warn!("the node is to stop: the upgrade is cancelled");
        upgrader.cancel();
        let mut upgrading = Some(upgrading);
        tokio::select! {
            biased;
            (outcome, reply) = Upgrading::ended(&mut upgrading) => match outcome {
                Ok(successor) => {
                    successor.stop();
                    Ended::Replaced(successor, reply, Some(stop))
                }
                Err(error) => {
                    answer(reply, Err(error.to_string())).await;
                    Ended::Stop(stop)
                }
            },
            () = self.stop() => {
                upgrader.stop_new_process();
                Ended::Stop(stop)
            }
        }
    }

    /// Lets clients go. A second signal ends that at once.
    pub(super) async fn drain(
        &mut self,
        control: &Control,
        Stop { delay, drain_timeout }: Stop,
        manager: &ServiceManager,
    ) -> Stopped {
        let draining = async {
            control.fail_readiness();
            if !delay.is_zero() {
                tracing::info!(
                    shutdown_delay_s = delay.as_secs_f64(),
                    "no longer ready: connections are accepted until shutdown_delay ends"
                );
                tokio::time::sleep(delay).await;
            }
            tracing::info!(timeout_s = drain_timeout.as_secs_f64(), "draining");
            control.drain(Drain { timeout: drain_timeout, is_replaced: false }).await
        };
        manager.stopping();
        tokio::select! {
            in_time = draining => ended(in_time),
            () = stop_signal(&mut self.stop) => at_once(),
            never = reopen_logs(&mut self.reopen, control) => match never {},
        }
    }

    /// The same of a process that was replaced. A service manager that stops the node signals this process as well, and means no more
    /// by it than that it should end, which it does anyway.
    pub(super) async fn drain_replaced(&mut self, control: &Control, timeout: Duration) -> Stopped {
        tracing::info!(timeout_s = timeout.as_secs_f64(), "replaced: draining");
        let Signals { reopen, stop, .. } = self;
        let stop = async {
            stop_signal(stop).await;
            stop_signal(stop).await;
        };
        tokio::select! {
            in_time = control.drain(Drain { timeout, is_replaced: true }) => ended(in_time),
            () = stop => at_once(),
            never = reopen_logs(reopen, control) => match never {},
        }
    }
}

/// Opens the logs again whenever log rotation asks for it: requests that are still served are logged there.
async fn reopen_logs(reopen: &mut Signal, control: &Control) -> Infallible {
    loop {
        reopen.recv().await;
        control.reopen_logs();
    }
}

/// The next of these signals.
async fn stop_signal([terminate, quit, interrupt]: &mut [Signal; 3]) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = quit.recv() => {}
        _ = interrupt.recv() => {}
    }
}

fn ended(in_time: bool) -> Stopped {
    if !in_time {
        tracing::warn!("drain_timeout ended before all requests did; the others are cut off");
    }
    tracing::info!(pid = std::process::id(), "stopped");
    Stopped::Drained
}

fn at_once() -> Stopped {
    tracing::warn!("a second signal stopped the node at once");
    Stopped::AtOnce
}

impl Upgrading {
    fn begin(
        upgrading: &mut Option<Upgrading>,
        reloader: &Arc<Reloader>,
        upgrader: &Arc<Upgrader>,
        UpgradeRequest { program, timeout, reply }: UpgradeRequest,
    ) {
        if upgrading.is_some() {
            let refused = Err("an upgrade is in progress: wait until it has ended".to_owned());
            tokio::spawn(answer(reply, refused));
            return;
        }
        let (reloader, upgrader) = (reloader.clone(), upgrader.clone());
        let timeout = timeout.unwrap_or(UPGRADE_TIMEOUT);
        let outcome = tokio::spawn(async move {
            // What is read now would be missing in the new process.
            let no_reload = tokio::time::timeout(timeout, reloader.hold()).await;
            let no_reload = no_reload.map_err(|_| UpgradeError::Reloading)?;
            // What the process before says of this one must not come after what this one says of the next.
            let left = tokio::time::timeout(timeout, reloader.control().files().opened());
            left.await.map_err(|_| UpgradeError::Early)?;
            let run = move || upgrader.run(program, timeout);
            let outcome = on_a_thread("weir-upgrading", run).await.unwrap_or_else(|error| Err(error.into()));
            if outcome.is_ok() {
                no_reload.leave();
            }
            outcome
        });
        *upgrading = Some(Upgrading { outcome, reply });
    }

    /// Waits for the end of the upgrade; for ever, if there is none.
    async fn ended(
        upgrading: &mut Option<Upgrading>,
    ) -> (Result<Successor, UpgradeError>, Option<oneshot::Sender<UpgradeOutcome>>) {
        let Some(Upgrading { outcome, reply }) = upgrading else { return std::future::pending().await };
        let outcome = outcome.await.unwrap_or_else(|error| Err(io::Error::other(error).into()));
        (outcome, reply.take())
    }
}

/// Answers the command that has asked for an upgrade, and waits until that is written, because the process may end next.
pub(super) async fn answer(reply: Option<oneshot::Sender<UpgradeOutcome>>, result: Result<u32, String>) {
    let (written, is_written) = oneshot::channel();
    if let Some(reply) = reply
        && reply.send(UpgradeOutcome { result, _written: written }).is_ok()
    {
        let _ = is_written.await;
    }
}
