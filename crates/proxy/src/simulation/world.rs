//! One gateway with its clients and targets, and the course of a simulation.

use super::history::History;
use super::plan::{Mode, Plan, name};
use super::server::{Server, serve};
use super::stream::{Stream, connection};
use super::version::PLUGINS;
use super::{client, grpc, invariants, panics};
use crate::downstream::connection::exchanges;
use crate::downstream::http1::Http1;
use crate::downstream::http2;
use crate::exchange::Connection;
use crate::runtime::in_memory;
use crate::runtime::run::sweep;
use crate::snapshot::Snapshot;
use crate::testing::Gateway;
use crate::worker::{Options, Worker, WorkerContext};
use fastrand::Rng;
use std::cell::{Cell, RefCell};
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, sleep_until};
use weir_net::connect::{MemoryConnecting, MemoryNetwork};
use weir_net::io::{Duplex, Io};
use weir_net::wire::Wire;
use weir_plugin::Retained;
use weir_simulation::{Outcome, random};
use weir_upstream::balance::latency::Latency;
use weir_upstream::health::MonitoredUpstream;
use weir_upstream::health::monitor::{self, MonitorContext};
use weir_upstream::pool::KeepAlive;

/// How long connections may be idle.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Longer than any window that is counted since the process began, in milliseconds.
const PERIOD: u64 = 1_000_000;

/// A simulation as it runs.
pub(super) struct World {
    pub(super) history: Rc<History>,
    pub(super) worker: Rc<Worker>,
    pub(super) retained: Arc<Retained>,
    gateway: RefCell<Gateway>,
    watched: watch::Sender<Vec<Arc<MonitoredUpstream>>>,
    /// Each version of the configuration that was published.
    pub(super) snapshots: RefCell<Vec<Weak<Snapshot>>>,
    /// Connections of clients that have no further request.
    pub(super) idle: RefCell<Vec<Stream>>,
    connections: Cell<u64>,
}

/// Runs a seed.
pub(super) fn run(seed: u64) -> Outcome {
    panics::note();
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        begin_alike().await;
        let world = World::new(Plan::of(seed));
        world.live().await;
        let history = &world.history;
        // Each of them has the history.
        history.links.take();
        Outcome { events: history.events.take(), broken: history.broken.take() }
    })
}

/// Has each simulation begin at the same place of the windows that are counted since the process began.
async fn begin_alike() {
    static BEGINNING: LazyLock<Instant> = LazyLock::new(|| {
        Latency::default().add(Duration::ZERO);
        Instant::now()
    });
    // Whole milliseconds, because timers count them since the runtime began.
    let since = BEGINNING.elapsed().as_millis() as u64 % PERIOD;
    tokio::time::advance(Duration::from_millis(PERIOD - since)).await;
}

impl World {
    fn new(plan: Plan) -> Rc<World> {
        let mut gateway = Gateway::new();
        gateway.document = plan.document(0);
        let snapshot = Arc::new(gateway.snapshot_with(PLUGINS));
        let keep_alive = KeepAlive {
            pool_size: plan.pool_size,
            max_requests: plan.connection_requests,
            idle_timeout: IDLE_TIMEOUT,
        };
        let options = Options { upstream_keepalive: keep_alive, ..Options::default() };
        let node = in_memory::node(options, &snapshot, gateway.retained.clone()).unwrap();
        let history = History::new(plan);
        let network = Rc::new(Targets::new(history.clone()));
        let seed = history.plan.seed;
        let context = WorkerContext { memory: Some(network.clone()), seed };
        let (watched, news) = watch::channel(snapshot.watched.clone());
        let world = Rc::new(World {
            worker: Worker::new(0, Arc::new(node), snapshot.clone(), context),
            retained: gateway.retained.clone(),
            gateway: RefCell::new(gateway),
            watched,
            snapshots: RefCell::new(vec![Arc::downgrade(&snapshot)]),
            idle: RefCell::default(),
            connections: Cell::new(0),
            history,
        });
        world.history.published.borrow_mut().push(0);
        let numbers = RefCell::new(random(seed, 2));
        let context = MonitorContext {
            resolver: world.worker.node.resolver.clone(),
            memory: Some(network.clone()),
            random: Rc::new(move || numbers.borrow_mut().u64(..)),
        };
        spawn_local(monitor::run(context, news));
        spawn_local(sweep(world.worker.clone()));
        spawn_local(network.misbehave());
        spawn_local(world.clone().reload());
        spawn_local(invariants::watch(world.clone()));
        world
    }

    /// Trouble, then calm: then everything must be as if nothing had been.
    async fn live(self: &Rc<Self>) {
        let clients =
            (0..self.history.plan.clients.len()).map(|number| spawn_local(client::run(self.clone(), number)));
        for client in clients.collect::<Vec<_>>() {
            // One that has panicked is noted as any other part is, and the others go on.
            let _ = client.await;
        }
        let calm = self.history.plan.calm_at().saturating_sub(self.history.now());
        sleep(Duration::from_millis(calm) + self.history.plan.recovery()).await;
        client::last(self).await;
        sleep(IDLE_TIMEOUT * 2).await;
        self.history.note(format_args!("the end"));
        invariants::at_the_end(self);
    }

    /// Opens a connection of a client.
    pub(super) fn connect_client(&self, random: &mut Rng) -> Stream {
        let (client, gateway) = connection(Duration::from_millis(1), random.fork());
        let number = self.connections.replace(self.connections.get() + 1);
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let connection = Rc::new(Connection::new(address(40_000), address(8000), number, None, false));
        let (worker, io) = (self.worker.clone(), Io::Memory(Box::new(gateway)));
        if self.history.plan.is_grpc {
            spawn_local(async move { http2::serve(&worker, io.into(), connection).await });
        } else {
            let http1 = Box::new(Http1::new(Wire::new(io)));
            spawn_local(async move { exchanges(&worker, http1, connection).await });
        }
        client
    }

    /// Publishes each further version at its time, as the gateway does.
    async fn reload(self: Rc<Self>) {
        let start = Instant::now();
        for (number, version) in self.history.plan.versions.iter().enumerate().skip(1) {
            sleep_until(start + Duration::from_millis(version.at)).await;
            let mut gateway = self.gateway.borrow_mut();
            gateway.document = self.history.plan.document(number);
            let snapshot = Arc::new(gateway.snapshot_with(PLUGINS));
            self.history.note(format_args!("version {number} is published: targets {:?}", version.targets));
            self.history.published.borrow_mut().push(self.history.now());
            self.snapshots.borrow_mut().push(Arc::downgrade(&snapshot));
            self.worker.publish(snapshot.clone());
            self.watched.send_replace(snapshot.watched.clone());
        }
        // The sender of the watched upstreams lives as long as the gateway.
        pending().await
    }
}

/// A connection to a target that is being opened.
struct Connecting(Rc<History>, u64);

impl Drop for Connecting {
    fn drop(&mut self) {
        invariants::after_connecting(&self.0, self.0.now() - self.1);
    }
}

/// The network of the targets.
struct Targets {
    history: Rc<History>,
    servers: Vec<Rc<Server>>,
    random: RefCell<Rng>,
}

impl Targets {
    fn new(history: Rc<History>) -> Targets {
        let server = |_| Rc::new(Server { history: history.clone(), mode: Cell::new(Mode::Healthy) });
        let servers = (0..history.plan.targets).map(server).collect();
        let random = RefCell::new(random(history.plan.seed, 3));
        Targets { history, servers, random }
    }

    /// Has the targets behave as the plan says.
    async fn misbehave(self: Rc<Self>) {
        let start = Instant::now();
        for fault in &self.history.plan.faults {
            sleep_until(start + Duration::from_millis(fault.at)).await;
            self.history.note(format_args!("target {} is {:?}", fault.target, fault.mode));
            self.servers[fault.target].mode.set(fault.mode);
        }
        sleep_until(start + Duration::from_millis(self.history.plan.calm_at())).await;
        self.history.note(format_args!("all targets are healthy"));
        self.servers.iter().for_each(|server| server.mode.set(Mode::Healthy));
    }
}

impl MemoryNetwork for Targets {
    fn connect(&self, address: SocketAddr) -> MemoryConnecting {
        let named = |target: &usize| name(*target) == address.to_string();
        let Some(target) = (0..self.servers.len()).find(named) else {
            return Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) });
        };
        let (server, history) = (self.servers[target].clone(), self.history.clone());
        let latency = history.plan.latency;
        let random = self.random.borrow_mut().fork();
        Box::pin(async move {
            let _connecting = Connecting(history.clone(), history.now());
            sleep(2 * latency).await;
            match server.mode.get() {
                Mode::Refusing => return Err(io::ErrorKind::ConnectionRefused.into()),
                Mode::Silent => return pending().await,
                _ => {}
            }
            let (gateways, targets) = connection(latency, random.clone());
            if history.plan.is_grpc {
                spawn_local(grpc::serve(server, target, targets, random));
                return Ok(Box::new(gateways) as Box<dyn Duplex>);
            }
            let link = history.link(target);
            history.note(format_args!("connection {} to target {target}", link.number));
            spawn_local(serve(server, targets, Some(link.clone()), random));
            Ok(Box::new(gateways.tapped(link)) as Box<dyn Duplex>)
        })
    }
}
