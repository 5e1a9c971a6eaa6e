//! The acceptor thread: accepts connections and distributes them over the workers.

use crate::limits::NodeLimit;
use crate::listen::{Accepted, Bound, Complaint, Incoming, Kind, LOCAL_PEER, Listener, UnixFile};
use crate::runtime::run::Command;
use crate::worker::Node;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};

/// How long the acceptor pauses after a failed accept.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// How many connections are taken at most from the queue of a listener that is closed. After an upgrade it goes on to fill, for
/// the new process.
const MAX_QUEUED: usize = 16_384;

/// A listener and what is expected of its connections.
pub(super) struct Accepting {
    pub(super) bound: Bound,
    pub(super) kind: Kind,
}

/// The same on the acceptor's runtime.
pub(super) struct Watched {
    listener: AsyncListener,
    kind: Kind,
    /// The file of a Unix socket is removed with the listener, when this is dropped.
    _file: Option<UnixFile>,
}

impl Accepting {
    /// Watches the listener on the runtime of this thread.
    pub(super) fn watch(self) -> io::Result<Watched> {
        let Accepting { bound: Bound { listener, file }, kind } = self;
        Ok(Watched { listener: AsyncListener::new(listener)?, kind, _file: file })
    }
}

/// A listener on the acceptor's runtime.
enum AsyncListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection that it accepted.
enum AcceptedStream {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

impl AsyncListener {
    fn new(listener: Listener) -> io::Result<Self> {
        match listener {
            Listener::Tcp(tcp) => TcpListener::from_std(tcp).map(AsyncListener::Tcp),
            Listener::Unix(unix) => UnixListener::from_std(unix).map(AsyncListener::Unix),
        }
    }

    async fn accept(&self) -> io::Result<AcceptedStream> {
        match self {
            AsyncListener::Tcp(tcp) => tcp.accept().await.map(|(tcp, peer)| AcceptedStream::Tcp(tcp, peer)),
            AsyncListener::Unix(unix) => unix.accept().await.map(|(unix, _)| AcceptedStream::Unix(unix)),
        }
    }
}

impl AcceptedStream {
    fn prepared(self, listener: Kind) -> io::Result<Accepted> {
        match self {
            AcceptedStream::Tcp(tcp, peer) => {
                tcp.set_nodelay(true)?;
                let local = tcp.local_addr()?;
                Ok(Accepted { incoming: Incoming::Tcp(tcp.into_std()?), peer, local, listener, permit: None })
            }
            AcceptedStream::Unix(unix) => {
                let (peer, local) = (LOCAL_PEER, listener.unix_local());
                Ok(Accepted {
                    incoming: Incoming::Unix(unix.into_std()?),
                    peer,
                    local,
                    listener,
                    permit: None,
                })
            }
        }
    }
}

/// Hands each connection to the worker that has the fewest.
#[derive(Clone)]
pub(super) struct Acceptor {
    pub(super) node: Arc<Node>,
    pub(super) workers: Vec<mpsc::UnboundedSender<Command>>,
    /// Set once connections are accepted.
    pub(super) opened: watch::Receiver<bool>,
    /// Whether as many connections are open as may be.
    pub(super) is_full: Arc<AtomicBool>,
}

impl Acceptor {
    /// Accepts until `closed` changes; holds the receiver until every listener is closed.
    pub(super) async fn run(self, listeners: Vec<Watched>, closed: watch::Receiver<bool>) {
        let accept = |watched: Watched| {
            let (acceptor, mut closed) = (self.clone(), closed.clone());
            tokio::task::spawn_local(async move {
                let Watched { listener, kind, _file } = watched;
                tokio::select! {
                    () = acceptor.accept(&listener, kind) => return,
                    _ = closed.wait_for(|closed| *closed) => {}
                }
                acceptor.accept_queued(&listener, kind).await;
            })
        };
        let tasks: Vec<_> = listeners.into_iter().map(accept).collect();
        let memory = self.node.options.memory.map(|limit| {
            let node = self.node.clone();
            tokio::task::spawn_local(async move { node.watch_memory(limit).await })
        });
        for task in tasks {
            let _ = task.await;
        }
        if let Some(memory) = memory {
            memory.abort();
        }
        drop(closed);
    }

    async fn accept(&self, listener: &AsyncListener, kind: Kind) {
        let mut complaint = Complaint::default();
        let _ = self.opened.clone().wait_for(|opened| *opened).await;
        loop {
            if self.node.connections() >= self.node.options.max_connections {
                complaint.log_limit(self.node.options.max_connections);
                // However long it lasts, and whichever listener notices, the limit acts once.
                if !self.is_full.swap(true, Ordering::Relaxed) {
                    self.node.limits.of_acceptor().count(NodeLimit::Connections);
                }
                tokio::time::sleep(ACCEPT_BACKOFF).await;
                continue;
            }
            self.is_full.store(false, Ordering::Relaxed);
            match listener.accept().await {
                Ok(stream) => self.hand_over(stream, kind),
                Err(error) if is_momentary(&error) => {}
                Err(error) => {
                    complaint.log_error(&error);
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                }
            }
        }
    }

    /// Accepts the connections that wait in the queue of a listener which is about to be closed, because the kernel would
    /// reset them.
    async fn accept_queued(&self, listener: &AsyncListener, kind: Kind) {
        if !*self.opened.borrow() {
            return;
        }
        // The runtime learns only while it sleeps that a connection has come.
        tokio::time::sleep(Duration::from_millis(1)).await;
        for _ in 0..MAX_QUEUED {
            match tokio::time::timeout(Duration::ZERO, listener.accept()).await {
                Ok(Ok(stream)) => self.hand_over(stream, kind),
                Ok(Err(error)) if is_momentary(&error) => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }

    fn hand_over(&self, stream: AcceptedStream, kind: Kind) {
        let Some(index) = self.node.least_loaded() else { return };
        if let Ok(mut accepted) = stream.prepared(kind) {
            let options = &self.node.options;
            if options.connections_per_ip < usize::MAX && !options.trusts(&accepted) && !kind.unix {
                // Closed without a response, which a client that opens too many does not read.
                let Some(permit) = self.node.limits.connect(accepted.peer.ip()) else {
                    return self.node.limits.of_acceptor().count(NodeLimit::ConnectionsPerIp);
                };
                accepted.permit = Some(permit);
            }
            self.node.loads[index].connections.fetch_add(1, Ordering::Relaxed);
            let _ = self.workers[index].send(Command::Serve(accepted));
        }
    }
}

/// Errors of one connection that was gone before it was accepted.
fn is_momentary(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | WouldBlock)
}
