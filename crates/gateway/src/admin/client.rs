//! Who is connected to a control listener, and how: plainly, or over TLS.
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use weir_proxy::listen::{self, LOCAL_PEER};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    /// Where the connection comes from.
    pub(crate) address: SocketAddr,
    /// The subject of the certificate that was shown and is trusted.
    pub(crate) certificate: Option<String>,
}

/// A connection, whatever it is spoken over.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

type Connection = (Box<dyn Stream>, Client);

/// A connection that was just accepted.
type Accepted = (Box<dyn Stream>, SocketAddr);

/// A socket that is listened on.
enum Door {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Door {
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Door::Tcp(tcp) => tcp.accept().await.map(|(stream, address)| (Box::new(stream) as _, address)),
            Door::Unix(unix) => unix.accept().await.map(|(stream, _)| (Box::new(stream) as _, LOCAL_PEER)),
        }
    }
}

/// Handshakes that may be under way at once.
const HANDSHAKES: usize = 256;

/// How long a handshake may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Accepts connections of clients.
pub(crate) struct ControlListener {
    door: Door,
    tls: Option<TlsAcceptor>,
    handshakes: JoinSet<Option<Connection>>,
}

impl ControlListener {
    /// Listens on a socket; with a configuration, for TLS.
    pub(crate) fn new(listener: listen::Listener, tls: Option<Arc<ServerConfig>>) -> io::Result<Self> {
        let door = match listener {
            listen::Listener::Tcp(tcp) => Door::Tcp(TcpListener::from_std(tcp)?),
            listen::Listener::Unix(unix) => Door::Unix(UnixListener::from_std(unix)?),
        };
        Ok(ControlListener { door, tls: tls.map(TlsAcceptor::from), handshakes: JoinSet::new() })
    }

    /// The connection, unless a handshake has to come first.
    async fn accepted(&mut self, accepted: io::Result<Accepted>) -> Option<Connection> {
        match (accepted, &self.tls) {
            (Ok((stream, address)), None) => Some((stream, Client { address, certificate: None })),
            (Ok((stream, address)), Some(acceptor)) => {
                self.handshakes.spawn(handshake(acceptor.clone(), stream, address));
                None
            }
            (Err(_), _) => {
                // Out of descriptors: they come back, and looping hot would not bring them sooner.
                tokio::time::sleep(Duration::from_millis(100)).await;
                None
            }
        }
    }
}

async fn handshake(
    acceptor: TlsAcceptor,
    stream: Box<dyn Stream>,
    address: SocketAddr,
) -> Option<Connection> {
    let stream = tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await.ok()?.ok()?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| {
        let (_, certificate) = X509Certificate::from_der(chain.first()?).ok()?;
        Some(certificate.subject().to_string())
    });
    Some((Box::new(stream), Client { address, certificate }))
}

impl Listener for ControlListener {
    type Io = Box<dyn Stream>;
    type Addr = Client;

    async fn accept(&mut self) -> Connection {
        loop {
            let connection = tokio::select! {
                Some(done) = self.handshakes.join_next() => done.ok().flatten(),
                accepted = self.door.accept(), if self.handshakes.len() < HANDSHAKES => {
                    self.accepted(accepted).await
                }
            };
            if let Some(connection) = connection {
                return connection;
            }
        }
    }

    fn local_addr(&self) -> io::Result<Client> {
        let address = match &self.door {
            Door::Tcp(tcp) => tcp.local_addr()?,
            Door::Unix(_) => LOCAL_PEER,
        };
        Ok(Client { address, certificate: None })
    }
}

impl Connected<IncomingStream<'_, ControlListener>> for Client {
    fn connect_info(stream: IncomingStream<'_, ControlListener>) -> Client {
        stream.remote_addr().clone()
    }
}
