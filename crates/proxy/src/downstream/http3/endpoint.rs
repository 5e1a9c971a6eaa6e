//! The QUIC endpoint: one thread receives from the socket of each address, and passes each new connection to a worker
//! and each later datagram to its connection, even after the client's address has changed.

use crate::listen::Complaint;
use crate::worker::Node;
use quinn::crypto::rustls::{NoInitialCipherSuite, QuicServerConfig};
use quinn::{
    ConnectionError, Endpoint, EndpointConfig, IdleTimeout, Incoming, ServerConfig, TransportConfig,
};
use quinn::{TokioRuntime, VarInt};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// What may be on its way to one client without having arrived.
const SEND_WINDOW: u64 = 2 * 1024 * 1024;
/// Streams of one direction that a client may have open: three are needed.
const ONE_WAY_STREAMS: u32 = 8;

/// A socket that clients send to.
pub(crate) struct QuicListener {
    pub(crate) socket: UdpSocket,
    pub(crate) local: SocketAddr,
}

/// What all connections over QUIC share.
pub(crate) struct Quic {
    config: Arc<QuicServerConfig>,
    /// Handshakes with clients whose address is not proven.
    unproven: Arc<AtomicU32>,
}

impl Quic {
    pub(crate) fn new(tls: rustls::ServerConfig) -> Result<Self, NoInitialCipherSuite> {
        let config = QuicServerConfig::try_from(tls)?;
        Ok(Self { config: Arc::new(config), unproven: Arc::default() })
    }

    fn server_config(&self, node: &Node) -> ServerConfig {
        let options = &node.options.http3;
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_bidi_streams(options.max_concurrent_streams.into())
            .max_concurrent_uni_streams(ONE_WAY_STREAMS.into())
            .stream_receive_window(options.body_preread_size.into())
            .receive_window(options.connection_window_size.into())
            .send_window(SEND_WINDOW)
            .datagram_receive_buffer_size(None)
            .max_idle_timeout(Some(idle_timeout(options.idle_timeout)))
            .keep_alive_interval(Some(options.idle_timeout / 3));
        let mut config = ServerConfig::with_crypto(self.config.clone());
        config.transport_config(Arc::new(transport));
        config
    }
}

fn idle_timeout(timeout: Duration) -> IdleTimeout {
    IdleTimeout::try_from(timeout).unwrap_or(VarInt::MAX.into())
}

/// A connection on its way to a worker.
pub(crate) struct Arriving {
    incoming: Incoming,
    local: SocketAddr,
    unproven: Option<Unproven>,
}

/// Counts a handshake with a client whose address is not proven.
struct Unproven(Arc<AtomicU32>);

impl Drop for Unproven {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Arriving {
    pub(crate) fn peer(&self) -> SocketAddr {
        self.incoming.remote_address()
    }

    /// What the client sent to, also where the listener is open on all addresses.
    pub(crate) fn local(&self) -> SocketAddr {
        let ip = self.incoming.local_ip().unwrap_or(self.local.ip());
        SocketAddr::new(ip, self.local.port())
    }

    /// The handshake; what drives the connection runs where this does.
    pub(crate) async fn handshake(self) -> Result<quinn::Connection, ConnectionError> {
        let _unproven = self.unproven;
        self.incoming.accept()?.await
    }
}

/// Receives until every connection has ended, and delivers each to a worker. `closed` is kept for as long as new ones are taken.
pub(crate) async fn receive(
    node: Arc<Node>,
    quic: Arc<Quic>,
    deliver: impl Fn(usize, Box<Arriving>) + Clone + 'static,
    listeners: Vec<QuicListener>,
    mut closed: watch::Receiver<bool>,
) {
    let mut endpoints = Vec::new();
    for QuicListener { socket, local } in listeners {
        let config = Some(quic.server_config(&node));
        match Endpoint::new(EndpointConfig::default(), config, socket, Arc::new(TokioRuntime)) {
            Ok(endpoint) => endpoints.push((endpoint, local)),
            Err(error) => tracing::error!("a listener of QUIC failed: {error}"),
        }
    }
    for (endpoint, local) in &endpoints {
        let taker = Taker { node: node.clone(), quic: quic.clone(), deliver: deliver.clone(), local: *local };
        let (endpoint, mut closed) = (endpoint.clone(), closed.clone());
        tokio::task::spawn_local(async move {
            tokio::select! {
                () = taker.take(&endpoint) => {}
                _ = closed.wait_for(|closed| *closed) => {}
            }
            drop(closed);
            // Refuses new connections at once, so that their clients need not wait for a timeout.
            while let Some(incoming) = endpoint.accept().await {
                incoming.refuse();
            }
        });
    }
    let _ = closed.wait_for(|closed| *closed).await;
    drop(closed);
    for (endpoint, _) in endpoints {
        endpoint.wait_idle().await;
    }
}

/// Takes new connections.
struct Taker<D> {
    node: Arc<Node>,
    quic: Arc<Quic>,
    /// Hands a connection to the worker of this number.
    deliver: D,
    local: SocketAddr,
}

impl<D: Fn(usize, Box<Arriving>)> Taker<D> {
    async fn take(self, endpoint: &Endpoint) {
        let mut complaint = Complaint::default();
        while let Some(incoming) = endpoint.accept().await {
            if self.node.connections() >= self.node.options.max_connections {
                complaint.log(format_args!("{} connections are open", self.node.options.max_connections));
                incoming.refuse();
                continue;
            }
            if let Some(arriving) = self.arrive(incoming) {
                self.hand_over(arriving);
            }
        }
    }

    /// If many handshakes with unvalidated addresses are in progress, a new client must prove its address with a Retry,
    /// which costs it a round trip and nothing here.
    fn arrive(&self, incoming: Incoming) -> Option<Arriving> {
        let mut unproven = None;
        if !incoming.remote_address_validated() {
            if self.quic.unproven.load(Ordering::Relaxed) >= self.node.options.http3.max_unproven_handshakes {
                // What may not be asked is refused by being dropped.
                let _ = incoming.retry();
                return None;
            }
            self.quic.unproven.fetch_add(1, Ordering::Relaxed);
            unproven = Some(Unproven(self.quic.unproven.clone()));
        }
        Some(Arriving { incoming, local: self.local, unproven })
    }

    fn hand_over(&self, arriving: Arriving) {
        let Some(index) = self.node.least_loaded() else { return };
        self.node.loads[index].connections.fetch_add(1, Ordering::Relaxed);
        (self.deliver)(index, Box::new(arriving));
    }
}
