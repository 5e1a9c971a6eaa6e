//! The fleet, and the course of a simulation.
use super::node::{History, Served, data_plane, server_tls};
use super::store::{Replica, Store};
use super::wire::connection;
use crate::control_plane::upgrade::{Arrival, Visitor};
use crate::control_plane::{ControlPlane, Fleet, Options, weir};
use crate::data_plane::store::Writer;
use crate::data_plane::weir::Session;
use crate::sync::Selector;
use crate::tls::Peer;
use fastrand::Rng;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{Instant, sleep, sleep_until};
use weir_model::Uuid;
use weir_simulation::{Outcome, random};

/// How long there are commits and faults.
const TROUBLE: Duration = Duration::from_secs(30);
/// How long after that the fleet has to agree. The longest that a control plane or a connection takes is part of it.
const CALM: Duration = Duration::from_secs(30);

/// A fleet as it runs.
struct Simulated {
    seed: u64,
    history: Arc<History>,
    store: Arc<Mutex<Store>>,
    control_planes: Vec<Member>,
    calm: Cell<bool>,
    start: Instant,
}

/// A control plane, which can start again.
struct Member {
    replica: Arc<Replica>,
    /// None while it is down.
    plane: RefCell<Option<Rc<ControlPlane>>>,
    /// Its connections, which end when it stops.
    sessions: RefCell<Vec<AbortHandle>>,
}

/// Runs a seed.
pub(super) fn run(seed: u64) -> Outcome {
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        let simulated = Simulated::new(seed);
        simulated.live().await;
        let history = &simulated.history;
        let broken = std::mem::take(&mut *history.broken.lock().unwrap());
        Outcome { events: std::mem::take(&mut *history.events.lock().unwrap()), broken }
    })
}

fn millis(random: &mut Rng, most: u64) -> Duration {
    Duration::from_millis(random.u64(..most))
}

impl Simulated {
    fn new(seed: u64) -> Rc<Simulated> {
        let mut random = random(seed, 1);
        let start = Instant::now();
        let store = Arc::new(Mutex::new(Store::new()));
        let count = random.usize(1..=3);
        let member = |_| Member {
            replica: Arc::new(Replica {
                store: store.clone(),
                known: watch::Sender::new(1),
                memory: random.u64(1..8),
            }),
            plane: RefCell::new(None),
            sessions: RefCell::default(),
        };
        let control_planes = (0..count).map(member).collect();
        let history = Arc::new(History { start, events: Mutex::default(), broken: Mutex::default() });
        Rc::new(Simulated { seed, history, store, control_planes, calm: Cell::new(false), start })
    }

    /// Trouble, then calm: then all data planes must serve the last commit.
    async fn live(self: &Rc<Self>) {
        let mut random = random(self.seed, 2);
        for number in 0..self.control_planes.len() {
            self.begin(number);
            spawn_local(self.clone().read(number));
            spawn_local(self.clone().restart(number));
        }
        let nodes: Vec<_> = (0..random.usize(1..=3)).map(|number| self.node(number)).collect();
        for _ in 0..random.usize(1..=12) {
            sleep(millis(&mut random, 4_000)).await;
            self.commit(&mut random);
        }
        sleep_until(self.start + TROUBLE).await;
        self.calm.set(true);
        nodes.iter().for_each(|served| *served.refuses.lock().unwrap() = false);
        self.history.note("all is calm".to_owned());
        // The content that a data plane has refused is not sent to it again.
        self.commit(&mut random);
        sleep(CALM).await;
        let last = self.store.lock().unwrap().revision();
        for served in nodes {
            let revision = *served.revision.lock().unwrap();
            if revision != last {
                let number = served.number;
                self.history.breaks(format!(
                    "every data plane ends with the last commit: {number} serves {revision} of {last}"
                ));
            }
        }
    }

    fn commit(&self, random: &mut Rng) {
        let revision = self.store.lock().unwrap().commit(random);
        self.history.note(format!("revision {revision} is committed"));
    }

    /// Starts a control plane, with what it has read.
    fn begin(&self, number: usize) {
        let member = &self.control_planes[number];
        let fleet = Arc::new(Fleet::new(Uuid::from_u128(1000 + number as u128), Duration::from_secs(3600)));
        let options = Options {
            max_payload: 1 << 24,
            push_interval: Duration::from_secs(1),
            version: "3.9.1".to_owned(),
            plugins: Arc::new([]),
            rpc: false,
            incremental_sync: false,
            selector: Selector::default(),
        };
        let plane = ControlPlane::new(member.replica.clone(), server_tls(), fleet, options);
        *member.plane.borrow_mut() = Some(Rc::new(plane));
    }

    /// Reads the store now and then; what was read reaches data planes a little later.
    async fn read(self: Rc<Self>, number: usize) {
        let member = &self.control_planes[number];
        let mut random = random(self.seed, 100 + number as u64);
        loop {
            let lag = if random.u8(..4) == 0 && !self.calm.get() { 15_000 } else { 500 };
            sleep(millis(&mut random, lag)).await;
            let committed = self.store.lock().unwrap().revision();
            let known = *member.replica.known.borrow();
            if known == committed {
                continue;
            }
            let revision = random.u64(known + 1..=committed);
            member.replica.known.send_replace(revision);
            self.history.note(format!("control plane {number} has read revision {revision}"));
            sleep(millis(&mut random, 200)).await;
            let plane = member.plane.borrow().clone();
            if let Some(plane) = plane {
                plane.cohorts.advance(revision);
            }
        }
    }

    /// Stops and starts a control plane again. It may know less then.
    async fn restart(self: Rc<Self>, number: usize) {
        let member = &self.control_planes[number];
        let mut random = random(self.seed, 200 + number as u64);
        for _ in 0..random.usize(..4) {
            sleep(millis(&mut random, 20_000)).await;
            if self.calm.get() {
                return;
            }
            self.history.note(format!("control plane {number} stops"));
            *member.plane.borrow_mut() = None;
            member.sessions.take().iter().for_each(AbortHandle::abort);
            sleep(millis(&mut random, 3_000)).await;
            self.begin(number);
            self.history.note(format!("control plane {number} starts"));
        }
    }

    /// Starts a data plane.
    fn node(self: &Rc<Self>, number: usize) -> Arc<Served> {
        let served = Served::new(
            number,
            self.history.clone(),
            self.store.clone(),
            random(self.seed, 300 + number as u64),
        );
        let served = Arc::new(served);
        spawn_local(self.clone().connect(served.clone()));
        served
    }

    /// Has a data plane follow one control plane after the other.
    async fn connect(self: Rc<Self>, served: Arc<Served>) {
        let number = served.number;
        let mut random = random(self.seed, 400 + number as u64);
        let plane = data_plane(served);
        let (mut session, mut writer) = (Session::new(&plane, None), Writer::new(None));
        loop {
            sleep(millis(&mut random, 1_000)).await;
            let to = random.usize(..self.control_planes.len());
            let member = &self.control_planes[to];
            let Some(control_plane) = member.plane.borrow().clone() else { continue };
            // Some last until the end: what was refused on one, and what came then, must not keep later commits away.
            let is_lasting = self.calm.get() || random.u8(..8) == 0;
            let lasts = if is_lasting { CALM * 2 } else { millis(&mut random, 15_000) };
            let latency = Duration::from_millis(random.u64(1..=100));
            let (own, theirs) = connection(latency, Instant::now() + lasts);
            self.history.note(format!("data plane {number} connects to control plane {to}"));
            let session_task = spawn_local(async move {
                let visitor = Visitor {
                    id: Uuid::from_u128(number as u128 + 1),
                    hostname: format!("dp-{number}"),
                    version: "3.9.1".to_owned(),
                };
                let address = SocketAddr::from(([127, 0, 0, 1], 1));
                let arrival = Arrival { visitor, peer: Peer { expires: None }, address };
                let mut theirs = theirs;
                let _ = weir::connected(&control_plane, &mut theirs, arrival).await;
            });
            member.sessions.borrow_mut().push(session_task.abort_handle());
            let ended = session.follow(&plane, &mut writer, own).await;
            self.history.note(format!("data plane {number} is disconnected: {ended}"));
        }
    }
}
