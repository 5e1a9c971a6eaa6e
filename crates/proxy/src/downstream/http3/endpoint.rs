//! The QUIC endpoints: each worker has one for each address, with a socket of its own, and serves the connections that
//! begin there.

use super::server;
use super::steering::{Socket, Steering};
use crate::limits::{AddressPermit, NodeLimit};
use crate::listen::Complaint;
use crate::worker::{Http3Options, Options, Worker};
use quinn::congestion::CubicConfig;
use quinn::crypto::rustls::{NoInitialCipherSuite, QuicServerConfig};
use quinn::{
    AckFrequencyConfig, ConnectionError, Endpoint, EndpointConfig, IdleTimeout, Incoming, MtuDiscoveryConfig,
    Runtime, ServerConfig, TokioRuntime, TransportConfig, VarInt,
};
use rustix::net::sockopt::{ip_mtu, ipv6_mtu};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::spawn_local;

/// What may be on its way to one client without having arrived.
const SEND_WINDOW: u64 = 2 * 1024 * 1024;
/// The largest datagram that a client is sent, where the way to it takes such.
const LARGEST: u16 = 16 * 1024;
/// So many of them may be on their way before the first is acknowledged: `quinn` does not say that a connection has ended
/// while one that tries out the way fills it.
const FIRST_DATAGRAMS: u64 = 4;
/// What fits into a packet of Ethernet.
const ETHERNET: u16 = 1472;
/// A client that supports it acknowledges not every second datagram, but every tenth, or what came within its delay.
const UNACKNOWLEDGED: u32 = 9;
/// Streams of one direction that a client may have open: three are needed.
const ONE_WAY_STREAMS: u32 = 8;

/// A worker's socket that clients send to.
pub(crate) struct QuicListener {
    pub(super) socket: UdpSocket,
    pub(super) local: SocketAddr,
    pub(super) steering: Steering,
}

impl QuicListener {
    fn open(self, config: ServerConfig) -> io::Result<Endpoint> {
        let mut endpoint = EndpointConfig::default();
        let ids = self.steering.ids;
        endpoint.cid_generator(move || Box::new(ids));
        let own = TokioRuntime.wrap_udp_socket(self.socket)?;
        let socket = Arc::new(Socket { own, steering: self.steering });
        Endpoint::new_with_abstract_socket(endpoint, Some(config), socket, Arc::new(TokioRuntime))
    }
}

/// What all connections over QUIC share.
pub(crate) struct Quic {
    config: ServerConfig,
    options: Http3Options,
    /// Handshakes with clients whose address is not proven.
    unproven: Arc<AtomicU32>,
}

impl Quic {
    pub(crate) fn new(tls: rustls::ServerConfig, options: &Options) -> Result<Self, NoInitialCipherSuite> {
        let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
        let options = options.http3.clone();
        config.transport_config(Arc::new(transport(&options, None)));
        Ok(Self { config, options, unproven: Arc::default() })
    }

    /// How a client is served that larger datagrams than usual may reach.
    fn config_for(&self, largest: u16) -> Arc<ServerConfig> {
        let mut config = self.config.clone();
        config.transport_config(Arc::new(transport(&self.options, Some(largest))));
        Arc::new(config)
    }
}

fn transport(options: &Http3Options, largest: Option<u16>) -> TransportConfig {
    let (mut discovery, mut congestion) = (MtuDiscoveryConfig::default(), CubicConfig::default());
    if let Some(largest) = largest {
        discovery.upper_bound(largest);
        congestion.initial_window(FIRST_DATAGRAMS * u64::from(largest));
    }
    let mut acknowledgements = AckFrequencyConfig::default();
    acknowledgements.ack_eliciting_threshold(UNACKNOWLEDGED.into());
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(options.max_concurrent_streams.into())
        .max_concurrent_uni_streams(ONE_WAY_STREAMS.into())
        .stream_receive_window(options.body_preread_size.into())
        .receive_window(options.connection_window_size.into())
        .send_window(SEND_WINDOW)
        .datagram_receive_buffer_size(None)
        .mtu_discovery_config(Some(discovery))
        .congestion_controller_factory(Arc::new(congestion))
        .ack_frequency_config(Some(acknowledgements))
        .max_idle_timeout(Some(idle_timeout(options.idle_timeout)))
        .keep_alive_interval(Some(options.idle_timeout / 3));
    transport
}

fn idle_timeout(timeout: Duration) -> IdleTimeout {
    IdleTimeout::try_from(timeout).unwrap_or(VarInt::MAX.into())
}

/// A connection that begins.
pub(crate) struct Arriving {
    incoming: Incoming,
    quic: Arc<Quic>,
    local: SocketAddr,
    unproven: Option<Unproven>,
    permit: Option<AddressPermit>,
}

/// Counts a handshake with a client whose address is not proven.
struct Unproven(Arc<AtomicU32>);

impl Drop for Unproven {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Arriving {
    /// What counts it among the connections of its client's address, if these are limited.
    pub(super) fn take_permit(&mut self) -> Option<AddressPermit> {
        self.permit.take()
    }

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
        match largest_datagram(self.incoming.remote_address()) {
            Some(largest) => self.incoming.accept_with(self.quic.config_for(largest))?.await,
            None => self.incoming.accept()?.await,
        }
    }
}

/// The largest datagram that leaves for a client in one piece, where that is more than over Ethernet. Whether it arrives
/// has to be tried out.
fn largest_datagram(client: SocketAddr) -> Option<u16> {
    let any: IpAddr =
        if client.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(client).ok()?;
    let packet = if client.is_ipv4() { ip_mtu(&socket) } else { ipv6_mtu(&socket) };
    let headers = if client.is_ipv4() { 20 + 8 } else { 40 + 8 };
    let largest = packet.ok()?.saturating_sub(headers).min(LARGEST.into());
    u16::try_from(largest).ok().filter(|largest| *largest > ETHERNET)
}

/// What a worker receives over QUIC.
pub(crate) struct Reception {
    pub(crate) quic: Arc<Quic>,
    pub(crate) listeners: Vec<QuicListener>,
    /// Kept for as long as new connections are taken.
    pub(crate) closed: watch::Receiver<bool>,
    /// Kept until every connection has ended.
    pub(crate) receiving: watch::Receiver<()>,
}

/// Receives until every connection has ended, and serves them.
pub(crate) async fn receive(worker: Rc<Worker>, reception: Reception) {
    let Reception { quic, listeners, mut closed, receiving } = reception;
    let mut endpoints = Vec::new();
    for listener in listeners {
        let (local, slots) = (listener.local, listener.steering.handed_over());
        match listener.open(quic.config.clone()) {
            Ok(endpoint) => endpoints.push((endpoint, local, slots)),
            Err(error) => tracing::error!("a listener of QUIC failed: {error}"),
        }
    }
    for (endpoint, local, slots) in &endpoints {
        let taker = Taker { worker: worker.clone(), quic: quic.clone(), local: *local };
        let (endpoint, slots, mut closed) = (endpoint.clone(), slots.clone(), closed.clone());
        spawn_local(async move {
            let mut taking = pin!(taker.take(&endpoint));
            tokio::select! {
                () = &mut taking => {}
                _ = closed.wait_for(|closed| *closed) => {}
            }
            drop(closed);
            if slots.handed_over.load(Ordering::Relaxed) {
                // Those that come now came before the sockets were handed over.
                return taking.await;
            }
            // Refuses new connections at once, so that their clients need not wait for a timeout.
            while let Some(incoming) = endpoint.accept().await {
                incoming.refuse();
            }
        });
    }
    let _ = closed.wait_for(|closed| *closed).await;
    drop(closed);
    for (endpoint, ..) in endpoints {
        endpoint.wait_idle().await;
    }
    drop(receiving);
}

/// Takes new connections.
struct Taker {
    worker: Rc<Worker>,
    quic: Arc<Quic>,
    local: SocketAddr,
}

impl Taker {
    async fn take(&self, endpoint: &Endpoint) {
        let (node, mut complaint) = (&self.worker.node, Complaint::default());
        while let Some(incoming) = endpoint.accept().await {
            if node.connections() >= node.options.max_connections {
                complaint.log_limit(node.options.max_connections);
                self.worker.limit_acted(NodeLimit::Connections);
                incoming.refuse();
                continue;
            }
            let Ok(permit) = self.permit(incoming.remote_address().ip()) else {
                self.worker.limit_acted(NodeLimit::ConnectionsPerIp);
                incoming.refuse();
                continue;
            };
            if let Some(arriving) = self.arrive(incoming, permit) {
                self.worker.load().connections.fetch_add(1, Ordering::Relaxed);
                spawn_local(server::serve(self.worker.clone(), arriving));
            }
        }
    }

    /// Counts a connection among those of its client's address, if these are limited; an error if there are too many.
    fn permit(&self, peer: IpAddr) -> Result<Option<AddressPermit>, ()> {
        let options = &self.worker.options;
        if options.connections_per_ip == usize::MAX || options.trusts_address(peer) {
            return Ok(None);
        }
        self.worker.node.limits.connect(peer).map(Some).ok_or(())
    }

    /// If many handshakes with unvalidated addresses are in progress, a new client must prove its address with a Retry,
    /// which costs it a round trip and nothing here.
    fn arrive(&self, incoming: Incoming, permit: Option<AddressPermit>) -> Option<Arriving> {
        let mut unproven = None;
        if !incoming.remote_address_validated() {
            if self.quic.unproven.load(Ordering::Relaxed) >= self.worker.options.http3.max_unproven_handshakes
            {
                self.worker.limit_acted(NodeLimit::UnprovenHandshakes);
                // What may not be asked is refused by being dropped.
                let _ = incoming.retry();
                return None;
            }
            self.quic.unproven.fetch_add(1, Ordering::Relaxed);
            unproven = Some(Unproven(self.quic.unproven.clone()));
        }
        Some(Arriving { incoming, quic: self.quic.clone(), local: self.local, unproven, permit })
    }
}
