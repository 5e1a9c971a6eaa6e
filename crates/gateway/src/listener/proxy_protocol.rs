//! The PROXY protocol on the node's own listeners.
use crate::settings::{Settings, Trusted};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use weir_proxy::Network;
use weir_proxy::listen::Socket;
use weir_proxy::proxy_protocol;

/// The peers that are believed when they name a client, by `trusted_ips` and `real_ip_header`.
#[derive(Debug)]
pub(crate) struct TrustedPeers {
    networks: Vec<Network>,
    unix: bool,
}

impl TrustedPeers {
    pub(crate) fn of(settings: &Settings) -> TrustedPeers {
        let is_asked = settings.real_ip_header.0 == "proxy_protocol";
        let trusted = || settings.trusted_ips.iter().filter(|_| is_asked);
        let network = |trusted: &Trusted| match trusted {
            Trusted::Network(network) => Some(*network),
            Trusted::Unix => None,
        };
        TrustedPeers {
            networks: trusted().filter_map(network).collect(),
            unix: trusted().any(|trusted| *trusted == Trusted::Unix),
        }
    }

    /// Takes the header off the connection of a peer, and returns the client: whom a trusted peer names, else the peer.
    pub(super) async fn client(
        &self,
        stream: &mut Socket,
        peer: SocketAddr,
        timeout: Duration,
    ) -> io::Result<SocketAddr> {
        let is_trusted = match stream {
            Socket::Unix(_) => self.unix,
            Socket::Tcp(_) => self.trusts(peer.ip()),
        };
        let header = proxy_protocol::receive(stream, timeout).await;
        let addresses = header.map_err(|refused| {
            tracing::warn!(%peer, "the connection is closed: {refused}");
            io::Error::from(io::ErrorKind::InvalidData)
        })?;
        Ok(addresses.filter(|_| is_trusted).map_or(peer, |addresses| addresses.source))
    }

    fn trusts(&self, peer: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(peer))
    }
}
