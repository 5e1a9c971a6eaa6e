//! The running data plane: listeners, the acceptor that spreads connections, and the workers.

use super::run::{Command, Sockets, run};
use super::versions::Versions;
use super::watchdog::Watchdog;
use crate::costs::Costs;
use crate::downstream::http3::{
    self, Generations, Quic, QuicIdentity, QuicInheritance, QuicListener, Reception,
};
use crate::limits::NodeLimits;
use crate::listen::{Address, Kind, Listen, SocketTable, Traffic, setting_of};
use crate::observe::access_log::AccessLog;
use crate::snapshot::Snapshot;
use crate::worker::{AltSvc, Closing, Datagrams, Load, Node, Options, Worker, WorkerContext};
use acceptor::{Accepting, Acceptor};
pub use start_error::StartError;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::LocalRuntime;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use weir_net::dialer::NodeResolver;
use weir_net::resolve::{Addresses, NameStats, ResolveError, Resolver};
use weir_net::tls::{Problem, ServerTls, Subject, TlsError, keep_fresh};
use weir_plugin::Retained;
use weir_plugin::{BodyMemoryUsage, engine::BodyMemory};
use weir_upstream::health::MonitoredUpstream;
use weir_upstream::health::monitor::{self, MonitorContext};

/// How long what says that connections over QUIC have ended may take to be sent, and sent again.
const LAST_DATAGRAMS: Duration = Duration::from_secs(1);

/// How often it is looked whether a worker that a snapshot is for is stuck.
const STUCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long before the end of a drain WebSockets get a close frame.
const CLOSE_NOTICE: Duration = Duration::from_secs(1);

/// The running data plane.
pub struct Proxy {
    node: Arc<Node>,
    workers: Vec<mpsc::UnboundedSender<Command>>,
    listening: Vec<Listening>,
    sockets: Arc<SocketTable>,
    generations: Arc<Generations>,
    opening: watch::Sender<bool>,
    closing: watch::Sender<bool>,
    /// Closed when nothing is received over QUIC any more.
    receiving: watch::Sender<()>,
    threads: Vec<JoinHandle<()>>,
    snapshots: Versions<Snapshot>,
    watched: watch::Sender<Vec<Arc<MonitoredUpstream>>>,
}

/// What a process begins with besides its configuration.
#[derive(Default)]
pub struct Inheritance {
    /// Sockets that are taken before any is opened.
    pub sockets: Arc<SocketTable>,
    /// Of a process that replaces another: who it is among those that share connections over QUIC, and the ways to the others.
    pub quic: Option<QuicInheritance>,
}

/// How long a drain may take.
#[derive(Debug, Clone, Copy)]
pub struct DrainTimeouts {
    /// For exchanges in flight.
    pub total: Duration,
    /// For a connection that waits for its next request, which may be on its way; at most half of the total.
    pub idle: Duration,
}

/// A listener that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listening {
    /// Where it really is, also where the system chose the port.
    pub address: Address,
    /// What clients bring there.
    pub traffic: Traffic,
    /// Whether clients speak TLS there.
    pub tls: bool,
}

/// The access logs of requests and sessions.
pub struct AccessLogs {
    /// A line for each request.
    pub requests: AccessLog,
    /// A line for each session of a stream listener.
    pub sessions: AccessLog,
}

/// What a node has served so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Connections open now.
    pub connections: usize,
    /// Connections accepted.
    pub accepted: u64,
    /// Requests answered.
    pub requests: u64,
    /// Of the open connections, those that are sessions of stream listeners.
    pub sessions: usize,
    /// Of the accepted ones, those that were.
    pub sessions_accepted: u64,
    /// Of the requests, those that came over HTTP/2.
    pub http2_requests: u64,
    /// Of the requests, those that came over HTTP/3.
    pub http3_requests: u64,
}

impl Proxy {
    /// Starts listening and serving. Plugins, which the compiler of snapshots builds, find the resolver in what it retains.
    pub fn start(
        options: Options,
        logs: AccessLogs,
        snapshot: Snapshot,
        retained: &Arc<Retained>,
    ) -> Result<Self, StartError> {
        let proxy = Self::prepare(options, logs, snapshot, retained, Inheritance::default())?;
        proxy.open();
        Ok(proxy)
    }

    /// Does everything that can fail, and accepts nothing before [`Proxy::open`].
    pub fn prepare(
        options: Options,
        logs: AccessLogs,
        mut snapshot: Snapshot,
        retained: &Arc<Retained>,
        Inheritance { sockets, quic: predecessor }: Inheritance,
    ) -> Result<Self, StartError> {
        let generations = Generations::new(predecessor);
        let opened = Opened::new(&options, &sockets, &generations)?;
        let tls = ServerTls::new(&options.tls, snapshot.certificates.clone()).map_err(StartError::Tls)?;
        snapshot.handshake_generation = tls.forget_remembered(!snapshot.handshake.is_empty());
        let quic = if opened.has_quic() { Some(quic(&tls, &options)?) } else { None };
        let resolver = Arc::new(Resolver::new(options.resolver.clone()).map_err(StartError::System)?);
        retained.get::<NodeResolver>().provide(&resolver);
        let node = Arc::new(Node {
            resolver,
            stream_tls: stream_config(&tls),
            tls,
            access_log: logs.requests,
            session_log: logs.sessions,
            loads: (0..options.workers.max(1)).map(|_| Load::default()).collect(),
            limits: NodeLimits::new(
                options.workers.max(1),
                options.worker_requests_in_flight,
                options.connections_per_ip,
            ),
            costs: Arc::new(Costs::new(options.workers.max(1), options.cost_sampling)),
            bodies: Arc::new(BodyMemory::new(options.mem_bodies_size, options.workers)),
            retained: retained.clone(),
            alternatives: alternatives(&opened.listening, &options),
            options,
        });
        let snapshot = Arc::new(snapshot);
        let (closing, closed) = watch::channel(false);
        let mut proxy = Self {
            node,
            workers: Vec::new(),
            listening: opened.listening.clone(),
            sockets,
            generations,
            opening: watch::Sender::new(false),
            closing,
            receiving: watch::Sender::new(()),
            threads: Vec::new(),
            snapshots: Versions::new(snapshot.clone()),
            watched: watch::Sender::new(snapshot.watched.clone()),
        };
        proxy.start_threads((opened, quic), &snapshot, closed).map_err(StartError::System)?;
        Ok(proxy)
    }

    fn start_threads(
        &mut self,
        (opened, quic): (Opened, Option<Arc<Quic>>),
        snapshot: &Arc<Snapshot>,
        closed: watch::Receiver<bool>,
    ) -> io::Result<()> {
        for (index, (datagrams, listeners)) in opened.datagrams.into_iter().zip(opened.quic).enumerate() {
            let (sender, commands) = mpsc::unbounded_channel();
            let (node, snapshot) = (self.node.clone(), snapshot.clone());
            let (closed, receiving) = (closed.clone(), self.receiving.subscribe());
            let opened = self.opening.subscribe();
            let quic = quic.clone().map(|quic| Reception { quic, listeners, closed, receiving });
            self.threads.push(thread(format!("weir-worker-{index}"), nothing, async move |()| {
                let worker = Worker::new(index, node, snapshot, WorkerContext::default());
                run(worker, commands, Sockets { datagrams, quic, opened }).await;
            })?);
            self.workers.push(sender);
        }
        let (resolver, news) = (self.node.resolver.clone(), self.watched.subscribe());
        self.threads.push(thread("weir-health".into(), nothing, async move |()| {
            monitor::run(MonitorContext::new(resolver), news).await;
        })?);
        if self.node.options.tls.stapling {
            let (node, mut closed) = (self.node.clone(), closed.clone());
            self.threads.push(thread("weir-ocsp".into(), nothing, async move |()| {
                tokio::select! {
                    () = keep_fresh(&node.resolver, &node.tls) => {}
                    _ = closed.wait_for(|closed| *closed) => {}
                }
            })?);
        }
        let (node, workers, open) = (self.node.clone(), self.workers.clone(), self.opening.subscribe());
        let acceptor = Acceptor { node, workers, opened: open, is_full: Arc::default() };
        let watch = move || opened.accepting.into_iter().map(Accepting::watch).collect::<io::Result<_>>();
        self.threads.push(thread("weir-acceptor".into(), watch, async move |listeners| {
            acceptor.run(listeners, closed).await
        })?);
        Ok(())
    }

    /// Begins to accept connections and to receive datagrams.
    pub fn open(&self) {
        self.opening.send_replace(true);
    }

    /// Who the process that follows this one is among those that share connections over QUIC.
    pub fn quic_successor(&self) -> QuicIdentity {
        self.generations.identity().successor()
    }

    /// The ways to the processes before this one, by their numbers, for the process that follows.
    pub fn quic_ways(&self) -> io::Result<Vec<(u8, OwnedFd)>> {
        self.generations.ways()
    }

    /// Leaves the datagrams of these listeners of HTTP/3 to a process that passes on, over `way`, those of connections that
    /// are served here.
    pub fn hand_over_quic(&self, addresses: &[SocketAddr], way: OwnedFd) -> io::Result<()> {
        self.generations.relay_from(way)?;
        self.generations.hand_over(addresses, true);
        Ok(())
    }

    /// Receives them here again, because that process has failed.
    pub fn take_back_quic(&self, addresses: &[SocketAddr]) {
        self.generations.hand_over(addresses, false);
    }

    /// The listeners, in the order of the options.
    pub fn listening(&self) -> &[Listening] {
        &self.listening
    }

    /// Publishes a snapshot; returns once every worker has it that makes progress.
    pub async fn publish(&self, mut snapshot: Snapshot) {
        self.node.tls.replace(snapshot.certificates.clone());
        snapshot.handshake_generation = self.handshake_generation(&snapshot);
        let snapshot = Arc::new(snapshot);
        let waiting =
            self.workers.iter().zip(self.node.costs.activities()).filter_map(|(worker, activity)| {
                let (done, has_it) = oneshot::channel();
                worker.send(Command::Publish(snapshot.clone(), done)).ok()?;
                Some((has_it, activity))
            });
        for (mut has_it, activity) in waiting.collect::<Vec<_>>() {
            // One that makes no progress gets it before its next connection.
            while tokio::time::timeout(STUCK_CHECK_INTERVAL, &mut has_it).await.is_err()
                && !activity.is_stuck()
            {}
        }
        self.watched.send_replace(snapshot.watched.clone());
        drop(self.snapshots.replace(snapshot));
    }

    /// The active generation, if the same plugins have a say in handshakes, or else a new one.
    fn handshake_generation(&self, snapshot: &Snapshot) -> u64 {
        let active = self.snapshot();
        if snapshot.decides_on_certificates_like(&active) {
            return active.handshake_generation;
        }
        self.node.tls.forget_remembered(!snapshot.handshake.is_empty())
    }

    /// What it was started with.
    pub fn options(&self) -> &Options {
        &self.node.options
    }

    /// The active snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshots.active()
    }

    /// The addresses of a host name or the text of an IP address, as requests would find them.
    pub async fn resolve(&self, host: &str) -> Result<Arc<Addresses>, ResolveError> {
        self.node.resolver.resolve(host).await
    }

    /// What the resolver has done for each name.
    pub fn dns_stats(&self) -> Vec<NameStats> {
        self.node.resolver.stats()
    }

    /// What the node has served so far.
    pub fn totals(&self) -> Totals {
        self.node.loads.iter().fold(Totals::default(), |sum, load| Totals {
            connections: sum.connections + load.connections.load(Ordering::Relaxed),
            accepted: sum.accepted + load.accepted.load(Ordering::Relaxed),
            requests: sum.requests + load.requests.load(Ordering::Relaxed),
            sessions: sum.sessions + load.sessions.load(Ordering::Relaxed),
            sessions_accepted: sum.sessions_accepted + load.sessions_accepted.load(Ordering::Relaxed),
            http2_requests: sum.http2_requests + load.http2_requests.load(Ordering::Relaxed),
            http3_requests: sum.http3_requests + load.http3_requests.load(Ordering::Relaxed),
        })
    }

    /// How often each limit of the node acted so far.
    pub fn limits(&self) -> Vec<(&'static str, u64)> {
        self.node.limits.totals()
    }

    /// Whether requests are served, rather than shed because the process uses too much memory.
    pub fn has_memory(&self) -> bool {
        self.node.limits.has_memory()
    }

    /// What plugins have cost so far.
    pub fn costs(&self) -> &Costs {
        &self.node.costs
    }

    /// What is held of bodies that plugins read.
    pub fn body_memory_usage(&self) -> BodyMemoryUsage {
        self.node.bodies.usage()
    }

    /// What finds out whether workers make progress.
    pub fn watchdog(&self) -> Watchdog {
        Watchdog::new(self.node.costs.activities())
    }

    /// The access log, for rotation and for what it dropped.
    pub fn access_log(&self) -> &AccessLog {
        &self.node.access_log
    }

    /// The access log of sessions, for the same.
    pub fn session_log(&self) -> &AccessLog {
        &self.node.session_log
    }

    /// Closes the listeners. No connection comes after this.
    pub async fn stop_accepting(&self) {
        self.sockets.close_copies();
        let _ = self.closing.send(true);
        // The acceptor holds a receiver until its listeners are closed.
        self.closing.closed().await;
    }

    /// Stops accepting, lets the exchanges in flight end, and closes the rest after the timeout. True when none was
    /// cut short.
    pub async fn drain(&self, DrainTimeouts { total: timeout, idle }: DrainTimeouts) -> bool {
        self.stop_accepting().await;
        self.tell_workers(|| Command::Drain);
        let start = Instant::now();
        let idle_grace = idle.min(timeout / 2);
        let close_notice = CLOSE_NOTICE.min(timeout / 4);
        let in_time = self.are_closed(start + idle_grace).await;
        self.tell_workers(|| Command::Close(Closing::Idle));
        let in_time = in_time || self.are_closed(start + timeout - close_notice).await;
        self.tell_workers(|| Command::Close(Closing::Tunnels));
        let in_time = in_time || self.are_closed(start + timeout).await;
        // What says that connections have ended is on its way.
        let _ = tokio::time::timeout(LAST_DATAGRAMS, self.receiving.closed()).await;
        self.flush_access_log().await;
        in_time
    }

    fn tell_workers(&self, command: impl Fn() -> Command) {
        for worker in &self.workers {
            let _ = worker.send(command());
        }
    }

    /// Waits until all connections are closed, at most until then.
    async fn are_closed(&self, end: Instant) -> bool {
        while self.totals().connections > 0 {
            if Instant::now() >= end {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        true
    }

    /// Writes what was logged so far, on all workers.
    async fn flush_access_log(&self) {
        let waiting = self.workers.iter().filter_map(|worker| {
            let (done, flushed) = oneshot::channel();
            worker.send(Command::Flush(done)).ok()?;
            Some(flushed)
        });
        for flushed in waiting.collect::<Vec<_>>() {
            let _ = tokio::time::timeout(Duration::from_secs(1), flushed).await;
        }
        self.node.access_log.flush();
        self.node.session_log.flush();
    }
}

/// What connections over QUIC share.
fn quic(tls: &ServerTls, options: &Options) -> Result<Arc<Quic>, StartError> {
    let refused = |problem| StartError::Tls(TlsError { subject: Subject::Settings, problem });
    let config = tls.quic(&options.tls).map_err(StartError::Tls)?;
    let quic = Quic::new(config, options).map_err(|error| refused(Problem::Refused(error.to_string())))?;
    Ok(Arc::new(quic))
}

/// `Alt-Svc` for the ports that are listened on for TLS and for QUIC alike.
fn alternatives(listening: &[Listening], options: &Options) -> Vec<(u16, String)> {
    let AltSvc { max_age, port: announced } = options.http3.alt_svc;
    if max_age.is_zero() {
        return Vec::new();
    }
    let ports = |traffic| {
        let with_tls = listening.iter().filter(move |it| it.tls && it.traffic == traffic);
        with_tls.filter_map(|it| it.address.ip()).map(|address| address.port())
    };
    let both = ports(Traffic::Quic).filter(|port| ports(Traffic::Http).any(|other| other == *port));
    let text = |port| format!("h3=\":{}\"; ma={}", announced.unwrap_or(port), max_age.as_secs());
    both.map(|port| options.port_maps.public(port)).map(|port| (port, text(port))).collect()
}

/// The TLS of stream listeners: as for requests, but no protocol is agreed on, since it is not known which follows.
fn stream_config(tls: &ServerTls) -> Arc<rustls::ServerConfig> {
    let mut config = rustls::ServerConfig::clone(&tls.config);
    config.alpn_protocols.clear();
    Arc::new(config)
}

/// Runs a task on a thread and a runtime of its own. `prepare` is called there first. Fails unless the task has all that it needs.
fn thread<T>(
    name: String,
    prepare: impl FnOnce() -> io::Result<T> + Send + 'static,
    task: impl AsyncFnOnce(T) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let (ready, is_ready) = std::sync::mpsc::channel();
    let run = move || {
        let prepared = LocalRuntime::new().and_then(|runtime| {
            let prepared = runtime.block_on(async { prepare() })?;
            Ok((runtime, prepared))
        });
        match prepared {
            Ok((runtime, prepared)) => {
                let _ = ready.send(Ok(()));
                runtime.block_on(task(prepared));
            }
            Err(error) => drop(ready.send(Err(error))),
        }
    };
    let thread = std::thread::Builder::new().name(name.clone()).spawn(run)?;
    let ended = |_| io::Error::other(format!("{name} ended early; this is a defect"));
    is_ready.recv().map_err(ended)??;
    Ok(thread)
}

fn nothing() -> io::Result<()> {
    Ok(())
}

/// The listeners, open.
struct Opened {
    accepting: Vec<Accepting>,
    /// For each worker, the sockets that it receives from.
    datagrams: Vec<Vec<Datagrams>>,
    /// The same for QUIC.
    quic: Vec<Vec<QuicListener>>,
    listening: Vec<Listening>,
}

impl Opened {
    fn new(
        options: &Options,
        sockets: &SocketTable,
        generations: &Arc<Generations>,
    ) -> Result<Self, StartError> {
        let workers = options.workers.max(1);
        let (datagrams, quic) = (0..workers).map(|_| (Vec::new(), Vec::new())).unzip();
        let mut opened = Self { accepting: Vec::new(), datagrams, quic, listening: Vec::new() };
        for listen in &options.listen {
            let failed = |error| StartError::Listen(listen.address.clone(), listen.traffic, error);
            let address = match listen.traffic {
                Traffic::Datagram => opened.receive(listen, sockets),
                Traffic::Quic => opened.receive_quic(listen, sockets, generations),
                _ => opened.accept(listen, sockets),
            };
            let address = address.map_err(failed)?;
            opened.listening.push(Listening { address, traffic: listen.traffic, tls: listen.tls });
        }
        Ok(opened)
    }

    fn has_quic(&self) -> bool {
        self.listening.iter().any(|it| it.traffic == Traffic::Quic)
    }

    fn accept(&mut self, listen: &Listen, sockets: &SocketTable) -> io::Result<Address> {
        let bound = sockets.bind(setting_of(listen.traffic), listen)?;
        let address = bound.address()?;
        self.accepting.push(Accepting { bound, kind: Kind::of(listen) });
        Ok(address)
    }

    /// A port that the system chooses is the one that a listener of TLS at the same address was given.
    fn receive_quic(
        &mut self,
        listen: &Listen,
        sockets: &SocketTable,
        generations: &Arc<Generations>,
    ) -> io::Result<Address> {
        let same = |it: &&Listening| {
            let addresses = it.address.ip().zip(listen.address.ip());
            it.tls && addresses.is_some_and(|(own, asked)| asked.port() == 0 && own.ip() == asked.ip())
        };
        let chosen = self.listening.iter().find(same).map_or(&listen.address, |it| &it.address);
        let listen = Listen { address: chosen.clone(), ..listen.clone() };
        let workers = self.quic.len();
        let sockets = sockets.bind_datagrams(&listen, workers)?;
        let local = sockets[0].local_addr()?;
        // There may be more sockets than workers, of a process that had more.
        for (slot, listener) in http3::listeners(sockets, local, generations).into_iter().enumerate() {
            self.quic[slot % workers].push(listener);
        }
        Ok(local.into())
    }

    fn receive(&mut self, listen: &Listen, sockets: &SocketTable) -> io::Result<Address> {
        let workers = self.datagrams.len();
        let sockets = sockets.bind_datagrams(listen, workers)?;
        let local = sockets[0].local_addr()?;
        for (slot, socket) in sockets.into_iter().enumerate() {
            self.datagrams[slot % workers].push(Datagrams { socket, local });
        }
        Ok(local.into())
    }
}

mod acceptor;
mod start_error;
#[cfg(test)]
mod tests;
