//! The thread that accepts connections and spreads them over the workers.

use crate::listen::{Accepted, Bound, Complaint, Incoming, Kind, LOCAL_PEER, Listener};
use crate::runtime::run::Command;
use crate::worker::Node;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};

/// How long the acceptor rests while it cannot take connections.
const REST: Duration = Duration::from_millis(50);

/// A listener and what is expected of its connections.
pub(super) struct Accepting {
    pub(super) bound: Bound,
    pub(super) kind: Kind,
}

/// A listener on the acceptor's runtime.
enum Door {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection through it.
enum Entered {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

impl Door {
    fn new(listener: Listener) -> io::Result<Self> {
        match listener {
            Listener::Tcp(tcp) => TcpListener::from_std(tcp).map(Door::Tcp),
            Listener::Unix(unix) => UnixListener::from_std(unix).map(Door::Unix),
        }
    }

    async fn accept(&self) -> io::Result<Entered> {
        match self {
            Door::Tcp(tcp) => tcp.accept().await.map(|(tcp, peer)| Entered::Tcp(tcp, peer)),
            Door::Unix(unix) => unix.accept().await.map(|(unix, _)| Entered::Unix(unix)),
        }
    }
}

impl Entered {
    fn prepared(self, listener: Kind) -> io::Result<Accepted> {
        match self {
            Entered::Tcp(tcp, peer) => {
                tcp.set_nodelay(true)?;
                let local = tcp.local_addr()?;
                Ok(Accepted { incoming: Incoming::Tcp(tcp.into_std()?), peer, local, listener })
            }
            Entered::Unix(unix) => {
                let (peer, local) = (LOCAL_PEER, listener.unix_local());
                Ok(Accepted { incoming: Incoming::Unix(unix.into_std()?), peer, local, listener })
            }
        }
    }
}

/// Hands each connection to the worker that has the fewest.
#[derive(Clone)]
pub(super) struct Acceptor {
    pub(super) node: Arc<Node>,
    pub(super) workers: Vec<mpsc::UnboundedSender<Command>>,
}

impl Acceptor {
    /// Accepts until told to close; `closed` is kept until every listener is.
    pub(super) async fn run(self, listeners: Vec<Accepting>, closed: watch::Receiver<bool>) {
        let accept = |accepting: Accepting| {
            let (acceptor, mut closed) = (self.clone(), closed.clone());
            tokio::task::spawn_local(async move {
                tokio::select! {
                    result = acceptor.accept(accepting) => {
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

    async fn accept(&self, Accepting { bound: Bound { listener, file }, kind }: Accepting) -> io::Result<()> {
        let door = Door::new(listener)?;
        let mut complaint = Complaint::default();
        // Removed with the listener, when this is dropped.
        let _file = file;
        loop {
            if self.node.connections() >= self.node.options.max_connections {
                complaint.log(format_args!("{} connections are open", self.node.options.max_connections));
                tokio::time::sleep(REST).await;
                continue;
            }
            match door.accept().await {
                Ok(entered) => self.hand_over(entered, kind),
                Err(error) if is_momentary(&error) => {}
                Err(error) => {
                    complaint.log(format_args!("{error}"));
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }

    fn hand_over(&self, entered: Entered, kind: Kind) {
        let Some(index) = self.node.least_loaded() else { return };
        if let Ok(accepted) = entered.prepared(kind) {
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
