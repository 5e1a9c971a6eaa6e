//! Analytics of this node: the memory of what its workers have measured, and the thread that fills it. A data plane hands
//! it to its control plane, whose memory is that of the fleet.
//!
//! ```text
//! worker ─► ring ─► collector ─► store ◄─ queries of the Admin API
//! plugin ─► models ─────┘
//!                       └─► outgoing ─► control plane: incoming ─► collector ─► store ◄─ queries
//! ```
mod changes;
mod collector;
mod incoming;
mod models;
mod outgoing;
mod prometheus;

pub(crate) use prometheus::{Need, Prometheus, PrometheusError, Questions, Samples};

use crate::handover::FilesGate;
use crate::prefix;
use crate::registry::Registry;
use crate::settings::{Role, SampledRequests, Settings};
use changes::ChangeWatcher;
use collector::{Collector, Exchange};
use incoming::Incoming;
use models::ModelReader;
use outgoing::Outgoing;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::Handle;
use weir_analytics::changes::{Change, Changes};
use weir_analytics::entities::Entities;
use weir_analytics::samples::Sampling;
use weir_analytics::store::{Budget, Store};
use weir_analytics::totals::Totals;
use weir_proxy::{Recording, Retained};

/// The folder of the history in `prefix`.
const FOLDER: &str = "analytics";
/// How long a stopping node waits for the history to be written.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

/// What was measured, for those who ask.
pub(crate) struct Analytics {
    memory: Arc<Memory>,
    /// Dropped when the collector is to end.
    stop: Mutex<Option<Sender<()>>>,
    /// Closed when it has ended.
    ended: Mutex<Receiver<()>>,
    fleet: FleetPart,
}

/// What connections of the fleet use.
enum FleetPart {
    None,
    DataPlane(Arc<Outgoing>),
    ControlPlane(Arc<Incoming>),
}

/// What the collector and queries share.
struct Memory {
    /// None once the node has stopped.
    store: Mutex<Option<Store>>,
    /// It is locked behind the store.
    models: Option<Mutex<ModelReader>>,
    changes: Mutex<Changes>,
}

impl Memory {
    /// Counts the calls of models until now.
    fn read_models(&self, store: &mut Store) {
        if let Some(models) = &self.models {
            lock(models).read(store);
        }
    }
}

/// Analytics whose collector has not started yet.
pub(crate) struct Prepared {
    store: Store,
    models: Option<ModelReader>,
    role: Role,
    disk: Option<(PathBuf, u64)>,
}

impl Prepared {
    /// Gives each worker that will start a ring; none where nothing is to be recorded. Call it before the first
    /// configuration is compiled, because entities get their numbers then.
    pub(crate) fn new(settings: &Settings, retained: &Retained) -> Option<Prepared> {
        if !settings.analytics {
            return None;
        }
        let entities = Arc::<Entities>::default();
        let memory = usize::try_from(settings.analytics_memory.0).unwrap_or(usize::MAX);
        let budget = Budget { memory, samples: Budget::default().samples.min(memory / 8) };
        let mut store = Store::new(entities.clone(), budget, now());
        match settings.role {
            Role::ControlPlane => store.collect_frames(),
            Role::DataPlane => store.hand_in(),
            Role::Traditional => {}
        }
        let mut models = None;
        if settings.role != Role::ControlPlane {
            models = ModelReader::new(retained);
            let producers = (0..settings.workers.0.max(1)).map(|_| store.add_worker()).collect();
            let recording = Recording::new(entities, producers);
            let headers = &settings.analytics_sample_headers;
            retained.provide(match sampling(settings.analytics_samples) {
                Some(sampling) => recording.with_samples(store.samples.sender(sampling), headers),
                None => recording,
            });
        }
        let folder = prefix::or_default(settings.prefix.clone()).map(|prefix| prefix.join(FOLDER));
        let disk = folder.ok().zip(Some(settings.analytics_disk.0)).filter(|(_, budget)| *budget > 0);
        Some(Prepared { store, models, role: settings.role, disk })
    }

    /// Starts the collector, which notes the changes of this configuration too.
    pub(crate) fn start(self, registry: &Arc<Registry>, files: &Arc<FilesGate>) -> io::Result<Analytics> {
        let Prepared { store, models, role, disk } = self;
        let (store, models) = (Mutex::new(Some(store)), models.map(Mutex::new));
        let memory = Arc::new(Memory { store, models, changes: Mutex::default() });
        let ((stop, stopping), (ending, ended)) = (channel(), channel());
        let watcher = ChangeWatcher::new(registry.clone());
        let (fleet, exchange) = fleet_part(role);
        let gate = (files.clone(), Handle::current());
        Collector::new(memory.clone(), exchange, watcher, disk).spawn(gate, (stopping, ending))?;
        Ok(Analytics { memory, stop: Mutex::new(Some(stop)), ended: Mutex::new(ended), fleet })
    }
}

/// The sides of the connections and of the collector.
fn fleet_part(role: Role) -> (FleetPart, Exchange) {
    match role {
        Role::Traditional => (FleetPart::None, Exchange::None),
        Role::DataPlane => {
            let (outgoing, handing_in) = outgoing::outgoing();
            (FleetPart::DataPlane(Arc::new(outgoing)), Exchange::HandingIn(handing_in))
        }
        Role::ControlPlane => {
            let (incoming, collecting) = incoming::incoming();
            (FleetPart::ControlPlane(Arc::new(incoming)), Exchange::Collecting(collecting))
        }
    }
}

fn sampling(setting: SampledRequests) -> Option<Sampling> {
    match setting {
        SampledRequests::Off => None,
        SampledRequests::Errors => Some(Sampling::Errors),
        SampledRequests::All => Some(Sampling::All),
    }
}

impl Analytics {
    /// Looks at the requests that have been sampled until now, if the store is free: the collector may hold it for longer
    /// than a listener of the Admin API should wait.
    pub(crate) fn glance<T>(&self, look: impl FnOnce(&Store) -> T) -> Glance<T> {
        match self.memory.store.try_lock() {
            Err(TryLockError::WouldBlock) => Glance::Busy,
            Err(TryLockError::Poisoned(poisoned)) => Glance::of(&mut poisoned.into_inner(), look),
            Ok(mut store) => Glance::of(&mut store, look),
        }
    }

    /// Asks the store, with everything that was recorded until now; none once the node has stopped.
    pub(crate) fn ask<T>(&self, question: impl FnOnce(&Store) -> T) -> Option<T> {
        let mut store = lock(&self.memory.store);
        let store = store.as_mut()?;
        self.memory.read_models(store);
        store.refresh(now());
        Some(question(store))
    }

    /// Reads what the workers of a node that stops have recorded until their end.
    pub(crate) fn read_last(&self) {
        if let Some(store) = lock(&self.memory.store).as_mut() {
            self.memory.read_models(store);
            store.refresh_last(now());
        }
    }

    /// What a data plane hands in.
    pub(crate) fn outgoing(&self) -> Option<Arc<Outgoing>> {
        if let FleetPart::DataPlane(outgoing) = &self.fleet { Some(outgoing.clone()) } else { None }
    }

    /// What a control plane gets.
    pub(crate) fn incoming(&self) -> Option<Arc<Incoming>> {
        if let FleetPart::ControlPlane(incoming) = &self.fleet { Some(incoming.clone()) } else { None }
    }

    /// Reads what was counted by route since the first call; none once the node has stopped.
    pub(crate) fn totals<T>(&self, read: impl FnOnce(&Totals, &Arc<Entities>) -> T) -> Option<T> {
        let mut store = lock(&self.memory.store);
        let store = store.as_mut()?;
        let now = now();
        store.refresh(now);
        let entities = store.entities().clone();
        Some(read(store.totals(now), &entities))
    }

    /// The changes of the configuration in a frame, in milliseconds since 1970, and how many older ones are forgotten.
    pub(crate) fn changes(&self, from: u64, to: u64) -> (Vec<Change>, u64) {
        let changes = lock(&self.memory.changes);
        (changes.between(from, to).cloned().collect(), changes.forgotten())
    }

    /// Writes what is not on the disk yet, and ends the collector.
    pub(crate) fn finish(&self) {
        drop(lock(&self.stop).take());
        if lock(&self.ended).recv_timeout(FINISH_TIMEOUT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!("the last seconds of analytics are lost: writing them took too long");
        }
    }
}

/// What a look at the store has given.
pub(crate) enum Glance<T> {
    Seen(T),
    /// The store is in use.
    Busy,
    /// The node has stopped.
    Over,
}

impl<T> Glance<T> {
    fn of(store: &mut Option<Store>, look: impl FnOnce(&Store) -> T) -> Glance<T> {
        let Some(store) = store else { return Glance::Over };
        store.samples.drain(now());
        Glance::Seen(look(store))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In milliseconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
