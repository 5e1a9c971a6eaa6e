//! Listening sockets: TCP or Unix.
use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpListener, UnixListener};
use weir_proxy::listen::{LOCAL_PEER, Listener, Socket};

/// A listening socket on this runtime.
pub(super) enum AsyncListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl AsyncListener {
    pub(super) fn new(listener: Listener) -> io::Result<AsyncListener> {
        match listener {
            Listener::Tcp(tcp) => TcpListener::from_std(tcp).map(AsyncListener::Tcp),
            Listener::Unix(unix) => UnixListener::from_std(unix).map(AsyncListener::Unix),
        }
    }

    /// Accepts the next connection; returns it with the client's address.
    pub(super) async fn accept(&self) -> io::Result<(Socket, SocketAddr)> {
        match self {
            AsyncListener::Tcp(tcp) => {
                let (stream, address) = tcp.accept().await?;
                // Responses are written whole; with Nagle's algorithm each would wait for the acknowledgement of the
                // last.
                let _ = stream.set_nodelay(true);
                Ok((Socket::Tcp(stream), address))
            }
            AsyncListener::Unix(unix) => Ok((Socket::Unix(unix.accept().await?.0), LOCAL_PEER)),
        }
    }
}
