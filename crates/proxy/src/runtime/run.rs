//! A worker's loop: receives commands and spawns a task for each.

use crate::downstream::connection;
use crate::downstream::http3::{self, Reception};
use crate::listen::{Accepted, Traffic};
use crate::snapshot::Snapshot;
use crate::stream;
use crate::worker::{Closing, Datagrams, Worker};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_local;
use tokio::time::Instant;
use weir_plugin::engine::WorkerPlugins;

/// A command to a worker from another thread.
pub(super) enum Command {
    /// Serve this connection.
    Serve(Accepted),
    /// Use this snapshot from now on, then acknowledge.
    Publish(Arc<Snapshot>, oneshot::Sender<()>),
    /// Have every connection end after its exchange.
    Drain,
    /// Close what a drain has left open so far.
    Close(Closing),
    /// Hand over what the access log holds, then say so.
    Flush(oneshot::Sender<()>),
}

/// What a worker receives datagrams from.
pub(super) struct Sockets {
    /// Of stream listeners.
    pub(super) datagrams: Vec<Datagrams>,
    /// Of HTTP/3.
    pub(super) quic: Option<Reception>,
    /// Set once it receives.
    pub(super) opened: watch::Receiver<bool>,
}

/// Executes commands until all senders are dropped.
pub(super) async fn run(
    worker: Rc<Worker>,
    mut commands: mpsc::UnboundedReceiver<Command>,
    sockets: Sockets,
) {
    let snapshot = worker.snapshot();
    let mut plugins = WorkerPlugins::init(
        snapshot.definitions,
        (worker.index, worker.node.loads.len()),
        worker.node.retained.clone(),
    );
    plugins.configure(&snapshot.instances);
    drop(snapshot);
    spawn_local(sweep(worker.clone()));
    let log = worker.clone();
    spawn_local(async move { log.access_log.flush_regularly().await });
    let log = worker.clone();
    spawn_local(async move { log.session_log.flush_regularly().await });
    spawn_local(receive(worker.clone(), sockets));
    while let Some(command) = commands.recv().await {
        match command {
            Command::Serve(accepted) if accepted.listener.traffic == Traffic::Http => {
                spawn_local(connection::run(worker.clone(), accepted));
            }
            Command::Serve(accepted) => {
                spawn_local(stream::run(worker.clone(), accepted));
            }
            Command::Publish(snapshot, done) => {
                plugins.configure(&snapshot.instances);
                worker.publish(snapshot);
                let _ = done.send(());
            }
            Command::Flush(done) => {
                worker.access_log.flush();
                worker.session_log.flush();
                let _ = done.send(());
            }
            Command::Drain => worker.drain(),
            Command::Close(closing) => worker.close(closing),
        }
    }
}

/// Receives datagrams, once that was allowed.
async fn receive(worker: Rc<Worker>, Sockets { datagrams, quic, mut opened }: Sockets) {
    let _ = opened.wait_for(|opened| *opened).await;
    for datagrams in datagrams {
        spawn_local(stream::receive(worker.clone(), datagrams));
    }
    if let Some(reception) = quic {
        spawn_local(http3::receive(worker.clone(), reception));
    }
}

/// Closes upstream connections that were idle for too long, and says how much CPU time the worker has used.
pub(crate) async fn sweep(worker: Rc<Worker>) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        worker.upstreams.sweep(Instant::now());
        worker.ledger.tick();
    }
}
