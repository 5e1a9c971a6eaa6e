//! The running data plane: listeners, the acceptor that spreads connections, and the workers.

use crate::access_log::AccessLog;
use crate::options::{Listen, Options};
use crate::snapshot::Snapshot;
use crate::tls::{ServerTls, TlsError, keep_fresh};
use crate::upstream::resolve::Resolver;
use crate::worker::{Command, Load, Node, Worker};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::LocalRuntime;
use tokio::sync::{mpsc, oneshot, watch};

/// How long the acceptor rests while it cannot take connections.
const REST: Duration = Duration::from_millis(50);

/// Why a data plane could not start.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be listened on.
    Listen(SocketAddr, io::Error),
    /// A thread or a runtime cannot be made.
    System(io::Error),
    /// The TLS settings cannot be used.
    Tls(TlsError),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Listen(address, error) if error.kind() == io::ErrorKind::AddrInUse => {
                write!(f, "{address} is in use: stop what listens there, or set another proxy_listen")
            }
            StartError::Listen(address, error) => write!(f, "cannot listen on {address}: {error}"),
            StartError::System(error) => write!(f, "cannot start: {error}"),
            StartError::Tls(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// The running data plane.
pub struct Proxy {
    node: Arc<Node>,
    workers: Vec<mpsc::UnboundedSender<Command>>,
    addresses: Vec<(SocketAddr, bool)>,
    closing: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
    snapshots: Mutex<Snapshots>,
}

/// The snapshot in force, and those before it that requests still use. The last owner of a snapshot pays for freeing it:
/// that is to be no worker.
struct Snapshots {
    in_force: Arc<Snapshot>,
    earlier: Vec<Arc<Snapshot>>,
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
}

impl Proxy {
    /// Starts listening and serving.
    pub fn start(options: Options, access_log: AccessLog, snapshot: Snapshot) -> Result<Self, StartError> {
        let listeners: Vec<(TcpListener, Listen)> =
            options.listen.iter().map(listen).collect::<Result<_, _>>()?;
        let address = |(listener, listen): &(TcpListener, Listen)| Ok((listener.local_addr()?, listen.tls));
        let addresses =
            listeners.iter().map(address).collect::<io::Result<_>>().map_err(StartError::System)?;
        let tls = ServerTls::new(&options.tls, snapshot.certificates.clone()).map_err(StartError::Tls)?;
        let node = Arc::new(Node {
            resolver: Resolver::new(options.resolver.clone()).map_err(StartError::System)?,
            tls,
            access_log,
            loads: (0..options.workers.max(1)).map(|_| Load::default()).collect(),
            options,
        });
        let snapshot = Arc::new(snapshot);
        let (closing, closed) = watch::channel(false);
        let mut proxy = Self {
            node,
            workers: Vec::new(),
            addresses,
            closing,
            threads: Vec::new(),
            snapshots: Mutex::new(Snapshots { in_force: snapshot.clone(), earlier: Vec::new() }),
        };
        proxy.start_threads(listeners, &snapshot, closed).map_err(StartError::System)?;
        Ok(proxy)
    }

    fn start_threads(
        &mut self,
        listeners: Vec<(TcpListener, Listen)>,
        snapshot: &Arc<Snapshot>,
        closed: watch::Receiver<bool>,
    ) -> io::Result<()> {
        for index in 0..self.node.loads.len() {
            let (sender, commands) = mpsc::unbounded_channel();
            let (node, snapshot) = (self.node.clone(), snapshot.clone());
            self.threads.push(thread(format!("weir-worker-{index}"), async move || {
                Worker::new(index, node, snapshot, None).run(commands).await;
            })?);
            self.workers.push(sender);
        }
        if self.node.options.tls.stapling {
            let (node, mut closed) = (self.node.clone(), closed.clone());
            self.threads.push(thread("weir-ocsp".into(), async move || {
                tokio::select! {
                    () = keep_fresh(&node) => {}
                    _ = closed.wait_for(|closed| *closed) => {}
                }
            })?);
        }
        let acceptor = Acceptor { node: self.node.clone(), workers: self.workers.clone() };
        self.threads
            .push(thread("weir-acceptor".into(), async move || acceptor.run(listeners, closed).await)?);
        Ok(())
    }

    /// The addresses that are listened on, and whether clients speak TLS there.
    pub fn addresses(&self) -> &[(SocketAddr, bool)] {
        &self.addresses
    }

    /// Puts a snapshot in force; returns once every worker has it.
    pub async fn publish(&self, snapshot: Snapshot) {
        self.node.tls.replace(snapshot.certificates.clone());
        let snapshot = Arc::new(snapshot);
        let told = self.workers.iter().filter_map(|worker| {
            let (done, has_it) = oneshot::channel();
            worker.send(Command::Publish(snapshot.clone(), done)).ok()?;
            Some(has_it)
        });
        for has_it in told.collect::<Vec<_>>() {
            let _ = has_it.await;
        }
        let mut snapshots = self.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        let replaced = std::mem::replace(&mut snapshots.in_force, snapshot);
        snapshots.earlier.push(replaced);
        snapshots.earlier.retain(|old| Arc::strong_count(old) > 1);
    }

    /// The snapshot in force.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshots.lock().unwrap_or_else(PoisonError::into_inner).in_force.clone()
    }

    /// What the node has served so far.
    pub fn totals(&self) -> Totals {
        self.node.loads.iter().fold(Totals::default(), |sum, load| Totals {
            connections: sum.connections + load.connections.load(Ordering::Relaxed),
            accepted: sum.accepted + load.accepted.load(Ordering::Relaxed),
            requests: sum.requests + load.requests.load(Ordering::Relaxed),
        })
    }

    /// The access log, for rotation and for what it dropped.
    pub fn access_log(&self) -> &AccessLog {
        &self.node.access_log
    }

    /// Stops accepting, lets the exchanges under way end, and closes the rest after the timeout. True when none was
    /// cut short.
    pub async fn drain(&self, timeout: Duration) -> bool {
        let _ = self.closing.send(true);
        // The acceptor holds a receiver until its listeners are closed: no connection comes after this.
        self.closing.closed().await;
        for worker in &self.workers {
            let _ = worker.send(Command::Drain);
        }
        let end = Instant::now() + timeout;
        let mut in_time = true;
        while in_time && self.totals().connections > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            in_time = Instant::now() < end;
        }
        self.flush_access_log().await;
        in_time
    }

    /// Writes what was logged so far, on all workers.
    async fn flush_access_log(&self) {
        let told = self.workers.iter().filter_map(|worker| {
            let (done, flushed) = oneshot::channel();
            worker.send(Command::Flush(done)).ok()?;
            Some(flushed)
        });
        for flushed in told.collect::<Vec<_>>() {
            let _ = tokio::time::timeout(Duration::from_secs(1), flushed).await;
        }
        self.node.access_log.flush();
    }
}

/// Runs a task on a thread and a runtime of its own.
fn thread(name: String, task: impl AsyncFnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.clone()).spawn(move || match LocalRuntime::new() {
        Ok(runtime) => runtime.block_on(task()),
        Err(error) => tracing::error!("{name} cannot start: {error}"),
    })
}

fn listen(listen: &Listen) -> Result<(TcpListener, Listen), StartError> {
    let open = || {
        let socket = Socket::new(Domain::for_address(listen.address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        if listen.address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_nonblocking(true)?;
        socket.bind(&listen.address.into())?;
        socket.listen(listen.backlog.try_into().unwrap_or(i32::MAX))?;
        Ok(TcpListener::from(socket))
    };
    open().map(|listener| (listener, *listen)).map_err(|error| StartError::Listen(listen.address, error))
}

/// Hands each connection to the worker that has the fewest.
#[derive(Clone)]
struct Acceptor {
    node: Arc<Node>,
    workers: Vec<mpsc::UnboundedSender<Command>>,
}

impl Acceptor {
    /// Accepts until told to close; `closed` is kept until every listener is.
    async fn run(self, listeners: Vec<(TcpListener, Listen)>, closed: watch::Receiver<bool>) {
        let accept = |(listener, listen)| {
            let (acceptor, mut closed) = (self.clone(), closed.clone());
            tokio::task::spawn_local(async move {
                tokio::select! {
                    result = acceptor.accept(listener, listen) => {
                        if let Err(error) = result {
                            tracing::error!("a listener failed: {error}");
                        }
                    }
                    _ = closed.wait_for(|closed| *closed) => {}
                }
            })
        };
        let tasks: Vec<_> = listeners.into_iter().map(accept).collect();
        for task in tasks {
            let _ = task.await;
        }
        drop(closed);
    }

    async fn accept(&self, listener: TcpListener, listen: Listen) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut complaint = Complaint::default();
        loop {
            if self.connections() >= self.node.options.max_connections {
                complaint.log(format_args!("{} connections are open", self.node.options.max_connections));
                tokio::time::sleep(REST).await;
                continue;
            }
            match listener.accept().await {
                Ok((tcp, peer)) => self.hand_over(tcp, peer, listen),
                Err(error) if is_momentary(&error) => {}
                Err(error) => {
                    complaint.log(format_args!("{error}"));
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }

    fn connections(&self) -> usize {
        self.node.loads.iter().map(|load| load.connections.load(Ordering::Relaxed)).sum()
    }

    fn hand_over(&self, tcp: tokio::net::TcpStream, peer: SocketAddr, listen: Listen) {
        let loads = self.node.loads.iter().map(|load| load.connections.load(Ordering::Relaxed));
        let Some((index, _)) = loads.enumerate().min_by_key(|(_, connections)| *connections) else { return };
        let prepared = tcp.set_nodelay(true).and_then(|()| Ok((tcp.local_addr()?, tcp.into_std()?)));
        if let Ok((local, tcp)) = prepared {
            self.node.loads[index].connections.fetch_add(1, Ordering::Relaxed);
            let _ = self.workers[index].send(Command::Serve(tcp, peer, local, listen));
        }
    }
}

/// Errors of one connection that was gone before it was accepted.
fn is_momentary(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | WouldBlock)
}

/// Says that connections have to wait, as often as is of use.
#[derive(Default)]
struct Complaint {
    last: Option<Instant>,
}

impl Complaint {
    fn log(&mut self, why: std::fmt::Arguments<'_>) {
        if self.is_due(Instant::now()) {
            tracing::error!(
                "cannot accept connections: {why}; clients wait until some close: raise the limit of open files \
                 (ulimit -n)"
            );
        }
    }

    /// Once a second.
    fn is_due(&mut self, now: Instant) -> bool {
        let due = self.last.is_none_or(|last| now.duration_since(last) >= Duration::from_secs(1));
        if due {
            self.last = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests;
