//! One worker's context: its connections to upstreams, the active snapshot, counters, and the other state that its
//! requests need without a lock. The loop that runs it is in `runtime`.

mod date;
mod internal_endpoints;
mod options;
mod overload;
mod pipes;

pub use internal_endpoints::{InternalEndpoints, InternalHandler, InternalRequest, RequestOrigin};
pub use options::{AddedHeaders, AltSvc, Http2Options, Http3Options, Options, PortMaps, RealIp};
pub(crate) use overload::RequestInFlight;
pub use pipes::MAX_PIPES;
pub(crate) use pipes::{Pipe, Pipes};

use date::HttpDate;

use crate::costs::{CostShard, Costs};
use crate::exchange::{Heads, WorkerSnapshot};
use crate::limits::NodeLimits;
use crate::observe::access_log::{AccessLog, WorkerLog};
use crate::observe::recorder::Recorder;
use crate::snapshot::Snapshot;
use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;
use tokio::time::Instant;
use weir_http1::Version;
use weir_net::connect::MemoryNetwork;
use weir_net::resolve::Resolver;
use weir_net::tls::ServerTls;
use weir_plugin::Retained;
use weir_plugin::engine::{BodyMemory, TrustedIps, WorkerBodyMemory};
use weir_upstream::Pools;

/// Heads kept for reuse by each worker.
const HEADS_KEPT: usize = 1024;

/// The hexadecimal digits of each byte.
static DIGITS: [[u8; 2]; 256] = {
    let mut digits = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        digits[byte] = [b"0123456789abcdef"[byte >> 4], b"0123456789abcdef"[byte & 15]];
        byte += 1;
    }
    digits
};

/// What the node's workers share.
pub(crate) struct Node {
    /// How the data plane was started.
    pub(crate) options: Options,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) tls: ServerTls,
    /// The same for stream listeners.
    pub(crate) stream_tls: Arc<rustls::ServerConfig>,
    pub(crate) access_log: AccessLog,
    pub(crate) session_log: AccessLog,
    pub(crate) loads: Vec<Load>,
    pub(crate) limits: NodeLimits,
    pub(crate) costs: Arc<Costs>,
    /// For bodies that plugins read.
    pub(crate) bodies: Arc<BodyMemory>,
    /// What plugins find on each worker.
    pub(crate) retained: Arc<Retained>,
    /// What responses over TLS say of HTTP/3, by the port that their clients connected to.
    pub(crate) alternatives: Vec<(u16, String)>,
}

impl Node {
    /// Connections of clients that are open.
    pub(crate) fn connections(&self) -> usize {
        self.loads.iter().map(|load| load.connections.load(Ordering::Relaxed)).sum()
    }

    /// The worker that has the fewest of them. One that makes no progress comes last.
    pub(crate) fn least_loaded(&self) -> Option<usize> {
        let loads = self.loads.iter().zip(self.costs.activities());
        let loads = loads.map(|(load, own)| (own.is_stuck(), load.connections.load(Ordering::Relaxed)));
        loads.enumerate().min_by_key(|(_, load)| *load).map(|(index, _)| index)
    }
}

/// What one worker counts. Written by it alone, but for `connections`, which the acceptor raises.
#[repr(align(128))]
#[derive(Default)]
pub(crate) struct Load {
    pub(crate) connections: AtomicUsize,
    pub(crate) accepted: AtomicU64,
    pub(crate) requests: AtomicU64,
    /// Of the connections, those that are sessions.
    pub(crate) sessions: AtomicUsize,
    /// Of those accepted, the ones that were sessions.
    pub(crate) sessions_accepted: AtomicU64,
    /// Of the requests, those that came over HTTP/2.
    pub(crate) http2_requests: AtomicU64,
    /// Of the requests, those that came over HTTP/3.
    pub(crate) http3_requests: AtomicU64,
}

/// A socket that this worker alone reads datagrams from.
pub(crate) struct Datagrams {
    pub(crate) socket: UdpSocket,
    pub(crate) local: SocketAddr,
}

/// One worker's own state.
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) node: Arc<Node>,
    pub(crate) options: Options,
    pub(crate) upstreams: Pools,
    pub(crate) access_log: WorkerLog,
    pub(crate) session_log: WorkerLog,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) pipes: Pipes,
    pub(crate) draining: Cell<bool>,
    /// What a drain closes by now, although it has not ended by itself.
    pub(crate) closing: Cell<Closing>,
    /// Requests that are being served.
    pub(crate) in_flight: Cell<usize>,
    pub(crate) date: HttpDate,
    pub(crate) ledger: Rc<CostShard>,
    bodies: Rc<WorkerBodyMemory>,
    trusted: Rc<TrustedIps>,
    snapshot: RefCell<Rc<WorkerSnapshot>>,
    no_routes: OnceCell<Rc<WorkerSnapshot>>,
    heads: RefCell<Vec<Heads>>,
    idle: RefCell<Idle>,
    random: Cell<u64>,
    last_warning: Cell<Option<Instant>>,
}

/// How far a drain has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Closing {
    /// Connections without a request may still send one: it may be on its way already.
    Nothing,
    /// Connections without a request are closed.
    Idle,
    /// WebSockets are closed too, because the drain is about to end.
    Tunnels,
}

/// Where a worker's upstream connections lead, and where its random numbers begin.
pub(crate) struct WorkerContext {
    /// In the place of the system's network, if set.
    pub(crate) memory: Option<Rc<dyn MemoryNetwork>>,
    pub(crate) seed: u64,
}

impl Default for WorkerContext {
    fn default() -> Self {
        let seed = uuid::Uuid::new_v4().as_u64_pair();
        Self { memory: None, seed: seed.0 ^ seed.1 }
    }
}

/// Wakers of this worker's connections, so that a drain reaches the idle ones.
#[derive(Default)]
struct Idle {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl Worker {
    pub(crate) fn new(
        index: usize,
        node: Arc<Node>,
        snapshot: Arc<Snapshot>,
        WorkerContext { memory, seed }: WorkerContext,
    ) -> Rc<Self> {
        let ledger = Rc::new(CostShard::new(node.costs.clone(), index));
        let bodies = Rc::new(WorkerBodyMemory::new(node.bodies.clone(), index));
        let trusted: Rc<TrustedIps> = {
            let node = node.clone();
            Rc::new(move |ip| node.options.trusts_address(ip))
        };
        let held = WorkerSnapshot::new(snapshot, ledger.clone(), bodies.clone(), trusted.clone());
        let (keep_alive, sharing) =
            (node.options.upstream_keepalive.clone(), node.options.upstream_http2.clone());
        let upstreams = Pools::new(keep_alive, sharing, node.resolver.clone(), memory);
        Rc::new(Self {
            index,
            options: node.options.clone(),
            access_log: node.access_log.worker(),
            session_log: node.session_log.worker(),
            recorder: Recorder::new(&node.retained.get()),
            pipes: Pipes::default(),
            upstreams,
            node,
            draining: Cell::new(false),
            closing: Cell::new(Closing::Nothing),
            in_flight: Cell::new(0),
            date: HttpDate::new(),
            snapshot: RefCell::new(Rc::new(held)),
            ledger,
            bodies,
            trusted,
            no_routes: OnceCell::new(),
            heads: RefCell::default(),
            idle: RefCell::default(),
            random: Cell::new(seed),
            last_warning: Cell::new(None),
        })
    }

    /// The active configuration.
    pub(crate) fn snapshot(&self) -> Rc<WorkerSnapshot> {
        self.snapshot.borrow().clone()
    }

    /// A configuration that holds nothing, for exchanges that outlive the one they began with.
    pub(crate) fn no_routes(&self) -> Rc<WorkerSnapshot> {
        let empty = || self.hold(Arc::new(self.snapshot.borrow().without_entities()));
        self.no_routes.get_or_init(empty).clone()
    }

    fn hold(&self, snapshot: Arc<Snapshot>) -> Rc<WorkerSnapshot> {
        let (bodies, trusted) = (self.bodies.clone(), self.trusted.clone());
        Rc::new(WorkerSnapshot::new(snapshot, self.ledger.clone(), bodies, trusted))
    }

    /// Sets the snapshot for later requests.
    pub(crate) fn publish(&self, snapshot: Arc<Snapshot>) {
        let held = self.hold(snapshot);
        *self.snapshot.borrow_mut() = held;
    }

    /// Has every connection end after its current exchange.
    pub(crate) fn drain(&self) {
        self.draining.set(true);
        self.wake_connections();
    }

    /// Closes what a drain has left open so far.
    pub(crate) fn close(&self, closing: Closing) {
        self.closing.set(self.closing.get().max(closing));
        self.wake_connections();
    }

    fn wake_connections(&self) {
        self.idle.borrow_mut().wakers.iter().flatten().for_each(Waker::wake_by_ref);
    }

    /// Heads to parse into; give them back with `keep_heads`.
    pub(crate) fn heads(&self) -> Heads {
        self.heads.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn keep_heads(&self, mut heads: Heads) {
        heads.0.clear();
        heads.1.clear();
        let mut kept = self.heads.borrow_mut();
        if kept.len() < HEADS_KEPT {
            kept.push(heads);
        }
    }

    /// A place for a connection's waker.
    pub(crate) fn register_waker(&self, waker: Waker) -> usize {
        let mut idle = self.idle.borrow_mut();
        match idle.free.pop() {
            Some(place) => {
                idle.wakers[place] = Some(waker);
                place
            }
            None => {
                idle.wakers.push(Some(waker));
                idle.wakers.len() - 1
            }
        }
    }

    pub(crate) fn unregister_waker(&self, place: usize) {
        let mut idle = self.idle.borrow_mut();
        idle.wakers[place] = None;
        idle.free.push(place);
    }

    pub(crate) fn load(&self) -> &Load {
        &self.node.loads[self.index]
    }

    /// Whether a warning that every request may cause should be given: once a second is enough.
    pub(crate) fn may_warn(&self) -> bool {
        let now = Instant::now();
        let due =
            self.last_warning.get().is_none_or(|last| now.duration_since(last) >= Duration::from_secs(1));
        if due {
            self.last_warning.set(Some(now));
        }
        due
    }

    /// Counts a connection, and numbers it among all connections of this process.
    pub(crate) fn count_connection(&self) -> u64 {
        let accepted = &self.load().accepted;
        let number = accepted.load(Ordering::Relaxed) + 1;
        accepted.store(number, Ordering::Relaxed);
        number * self.node.loads.len() as u64 + self.index as u64
    }

    /// Counts a request. Only this worker writes, so no locked instruction is needed.
    pub(crate) fn count_request(&self, version: Version) {
        let count = |number: &AtomicU64| number.store(number.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let load = self.load();
        count(&load.requests);
        match version {
            Version::Http2 => count(&load.http2_requests),
            Version::Http3 => count(&load.http3_requests),
            Version::Http10 | Version::Http11 => {}
        }
    }

    /// The next number of a sequence that is unpredictable enough to tell requests apart (SplitMix64).
    pub(crate) fn random(&self) -> u64 {
        let state = self.random.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A new request id: 32 hexadecimal digits.
    pub(crate) fn request_id(&self) -> [u8; 32] {
        let mut id = [0; 32];
        let number = (u128::from(self.random()) << 64) | u128::from(self.random());
        for (digits, byte) in id.as_chunks_mut().0.iter_mut().zip(number.to_be_bytes()) {
            *digits = DIGITS[usize::from(byte)];
        }
        id
    }
}

/// Keeps a task that is not a connection in the worker's list, so that a drain wakes it.
pub(crate) struct WakerGuard<'w> {
    worker: &'w Worker,
    place: usize,
}

impl<'w> WakerGuard<'w> {
    /// Enters the running task into the list.
    pub(crate) async fn register(worker: &'w Worker) -> Self {
        let place = poll_fn(|cx| Poll::Ready(worker.register_waker(cx.waker().clone()))).await;
        Self { worker, place }
    }
}

impl Drop for WakerGuard<'_> {
    fn drop(&mut self) {
        self.worker.unregister_waker(self.place);
    }
}

/// Takes the connection out of the worker's list when the connection ends, however it ends.
pub(crate) struct ConnectionGuard<'w> {
    worker: &'w Worker,
    place: usize,
}

impl<'w> ConnectionGuard<'w> {
    /// Enters the running task into the list, so that a drain wakes it.
    pub(crate) async fn register(worker: &'w Worker) -> Self {
        let place = poll_fn(|cx| Poll::Ready(worker.register_waker(cx.waker().clone()))).await;
        Self { worker, place }
    }
}

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        self.worker.unregister_waker(self.place);
        self.worker.load().connections.fetch_sub(1, Ordering::Relaxed);
    }
}
