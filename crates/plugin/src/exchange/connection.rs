//! What all requests of one connection share.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use weir_http1::{Known, KnownSet};
use weir_net::tls::ClientCertificate;

/// Headers by which the gateway names the consumer to the upstream. A client's own would be a forgery.
pub const IDENTITY: KnownSet = KnownSet::of(&[
    Known::XConsumerId,
    Known::XConsumerCustomId,
    Known::XConsumerUsername,
    Known::XConsumerGroups,
    Known::XAuthenticatedGroups,
    Known::XCredentialIdentifier,
    Known::XAnonymousConsumer,
]);

/// Headers in which a gateway describes the client's certificate. They are believed where they come from a trusted peer.
pub const CERTIFICATE: KnownSet =
    KnownSet::of(&[Known::XClientCertDn, Known::XClientCertSan, Known::ClientCert, Known::ClientCertChain]);

/// What all requests of one connection share.
pub struct Connection {
    /// The client's end, or that of the proxy before it.
    pub peer: SocketAddr,
    /// The client's address, unless a request says otherwise: the peer's, or what a trusted one said by PROXY protocol.
    pub client_ip: IpAddr,
    /// The client's port, likewise.
    pub client_port: u16,
    /// The forwarded headers of a request that came with none, which is most: lines ready to be sent.
    pub forwarded: Box<str>,
    /// The peer's address as text, for the forwarded headers.
    pub peer_text: Box<str>,
    /// The address that the client connected to.
    pub local_ip: IpAddr,
    /// The port that the client connected to.
    pub local_port: u16,
    /// Its number among all connections of this process.
    pub number: u64,
    /// How many requests it has carried, the current one included.
    pub requests: Cell<u64>,
    /// Over TLS: what the handshake agreed on.
    pub tls: Option<Tls>,
    /// Whether `trusted_ips` holds the peer, so that its forwarded headers are believed.
    pub trusted: bool,
    /// Whether a proxy connected.
    pub announced: bool,
}

/// What a TLS handshake agreed on.
pub struct Tls {
    /// The server name that the client asked for.
    pub sni: Option<Rc<str>>,
    /// `TLSv1.3`
    pub version: &'static str,
    /// The cipher suite's IANA name.
    pub cipher: String,
    /// Whether the client was asked for a certificate.
    pub asked: bool,
    /// The one that it presented.
    pub client: Option<Rc<ClientCertificate>>,
}

impl Connection {
    /// One that was accepted.
    pub fn new(peer: SocketAddr, local: SocketAddr, number: u64, tls: Option<Tls>, trusted: bool) -> Self {
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let (ip, port) = (peer.ip(), local.port());
        let scheme = if tls.is_some() { "https" } else { "http" };
        Self {
            forwarded: format!(
                "X-Forwarded-For: {ip}\r\nX-Forwarded-Proto: {scheme}\r\nX-Forwarded-Port: {port}\r\nX-Real-IP: {ip}\r\n"
            )
            .into(),
            peer,
            client_ip: ip,
            client_port: peer.port(),
            peer_text: ip.to_string().into(),
            local_ip: local.ip().to_canonical(),
            local_port: port,
            number,
            requests: Cell::new(0),
            tls,
            trusted,
            announced: false,
        }
    }

    /// The same, begun by a header of the PROXY protocol; it may name the client.
    pub fn on_behalf_of(mut self, client: Option<SocketAddr>) -> Self {
        self.announced = true;
        if let Some(client) = client {
            self.client_ip = client.ip().to_canonical();
            self.client_port = client.port();
        }
        self
    }
}
