//! The thread `weir-analytics`: reads the rings of all workers, and writes the history to the disk.
use super::changes::ChangeWatcher;
use super::incoming::Collecting;
use super::outgoing::HandingIn;
use super::{Memory, lock, now};
use crate::handover::FilesGate;
use crate::threads::set_idle_priority;
use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;
use tokio::runtime::Handle;
use weir_analytics::disk::{Disk, DiskError};
use weir_analytics::store::Store;

/// How often the rings are read.
const DRAIN_INTERVAL: Duration = Duration::from_millis(50);

/// What the store exchanges with other nodes of the fleet.
pub(super) enum Exchange {
    /// The node is in no fleet.
    None,
    /// A data plane hands in frames.
    HandingIn(HandingIn),
    /// A control plane gets them.
    Collecting(Collecting),
}

pub(super) struct Collector {
    memory: Arc<Memory>,
    exchange: Exchange,
    watcher: ChangeWatcher,
    /// The folder and the size of the history.
    disk: Option<(PathBuf, u64)>,
    /// The errors of the disk that are logged already.
    logged: HashSet<io::ErrorKind>,
}

impl Collector {
    pub(super) fn new(
        memory: Arc<Memory>,
        exchange: Exchange,
        watcher: ChangeWatcher,
        disk: Option<(PathBuf, u64)>,
    ) -> Self {
        Collector { memory, exchange, watcher, disk, logged: HashSet::new() }
    }

    /// Collects on a thread of its own, once the history is this process's own, and until the other end of `stopping` is
    /// dropped.
    pub(super) fn spawn(
        mut self,
        (files, runtime): (Arc<FilesGate>, Handle),
        (stopping, ending): (Receiver<()>, Sender<()>),
    ) -> io::Result<()> {
        let work = move || {
            set_idle_priority();
            files.wait(&runtime);
            self.open_disk();
            while stopping.recv_timeout(DRAIN_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                self.collect();
            }
            self.finish();
            drop(ending);
        };
        thread::Builder::new().name("weir-analytics".to_owned()).spawn(work).map(drop)
    }

    fn open_disk(&mut self) {
        let Some((folder, budget)) = self.disk.take() else { return };
        let mut store = lock(&self.memory.store);
        let Some(store) = store.as_mut() else { return };
        match Disk::open(folder, budget, store.entities()) {
            Ok(disk) => store.attach(disk),
            Err(error) => log(&mut self.logged, &error),
        }
    }

    fn collect(&mut self) {
        if let Some(change) = self.watcher.look(now()) {
            lock(&self.memory.changes).add(change);
        }
        let mut store = lock(&self.memory.store);
        let Some(store) = store.as_mut() else { return };
        self.memory.read_models(store);
        store.drain(now());
        match &mut self.exchange {
            Exchange::None => {}
            Exchange::HandingIn(handing_in) => handing_in.turn(store),
            Exchange::Collecting(collecting) => collecting.turn(store, now()),
        }
        if let Some(error) = store.disk_mut().and_then(Disk::take_error) {
            log(&mut self.logged, &error);
        }
    }

    fn finish(&self) {
        let store: Option<Store> = lock(&self.memory.store).take();
        if let Some(mut store) = store {
            self.memory.read_models(&mut store);
            store.finish(now());
        }
    }
}

/// Logs an error of the disk, once for each kind.
fn log(logged: &mut HashSet<io::ErrorKind>, error: &DiskError) {
    if logged.insert(error.kind()) {
        tracing::error!("{error}");
    }
}
