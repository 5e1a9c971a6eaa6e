//! Sends lines as datagrams.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;
use tokio::net::{UdpSocket, UnixDatagram};
use tokio::time::timeout;
use weir_plugin::{Dialer, Undelivered};

/// A server that receives datagrams.
pub(crate) struct Peer {
    host: String,
    port: u16,
    patience: Duration,
    dialer: Dialer,
}

/// A socket that datagrams are sent with.
pub(crate) enum Socket {
    /// A socket and the address it sends to. It is not connected, because a connected socket reports that earlier
    /// datagrams were refused instead of sending the next one.
    Udp(UdpSocket, SocketAddr),
    /// A connected Unix socket.
    Unix(UnixDatagram),
}

impl Peer {
    /// The server at this host. Resolving its name may take this many milliseconds.
    pub(crate) fn new(host: &str, port: u16, milliseconds: f64, dialer: Dialer) -> Self {
        let patience = Duration::from_secs_f64((milliseconds / 1000.0).clamp(0.0, 86_400.0));
        Self { host: host.trim_matches(['[', ']']).to_owned(), port, patience, dialer }
    }

    pub(crate) async fn socket(&self) -> io::Result<Socket> {
        let found = timeout(self.patience, self.dialer.address(&self.host, self.port)).await;
        let address = found.map_err(|_| io::ErrorKind::TimedOut)??;
        let any = match address {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        Ok(Socket::Udp(UdpSocket::bind(any).await?, address))
    }
}

impl Socket {
    /// The socket at this path.
    pub(crate) fn unix(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        Ok(Self::Unix(socket))
    }

    pub(crate) async fn send(&self, datagram: &[u8]) -> io::Result<()> {
        match self {
            Self::Udp(socket, address) => socket.send_to(datagram, *address).await.map(drop),
            Self::Unix(socket) => socket.send(datagram).await.map(drop),
        }
    }
}

/// Sends each line of a text as one datagram, without the line feed.
pub(crate) async fn send_lines(text: &[u8], socket: io::Result<Socket>) -> Result<(), Undelivered> {
    let socket = socket.map_err(|error| Undelivered::all(text, error))?;
    let mut lost: Option<Undelivered> = None;
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        if let Err(error) = socket.send(line).await {
            let lost = lost.get_or_insert_with(|| Undelivered { lines: 0, why: error.to_string() });
            lost.lines += 1;
        }
    }
    lost.map_or(Ok(()), Err)
}
