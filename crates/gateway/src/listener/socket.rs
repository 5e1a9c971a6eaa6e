//! A socket that is listened on: for TCP, or a Unix socket.
use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpListener, UnixListener};
use weir_proxy::listen::{LOCAL_PEER, Listener, Socket};

/// A socket that is listened on, on this runtime.
pub(super) enum Door {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Door {
    pub(super) fn new(listener: Listener) -> io::Result<Door> {
        match listener {
            Listener::Tcp(tcp) => TcpListener::from_std(tcp).map(Door::Tcp),
            Listener::Unix(unix) => UnixListener::from_std(unix).map(Door::Unix),
        }
    }

    /// The next connection, and where it comes from.
    pub(super) async fn accept(&self) -> io::Result<(Socket, SocketAddr)> {
        match self {
            Door::Tcp(tcp) => {
                let (stream, address) = tcp.accept().await?;
                // Answers are written whole; without it each waits for the acknowledgement of the one before.
                let _ = stream.set_nodelay(true);
                Ok((Socket::Tcp(stream), address))
            }
            Door::Unix(unix) => Ok((Socket::Unix(unix.accept().await?.0), LOCAL_PEER)),
        }
    }
}
