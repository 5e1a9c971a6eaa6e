//! A client's TLS handshake that has begun: what plugins see of it, and what they may have it do.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use weir_net::tls::{self, CertifiedKey};

/// A client's TLS handshake that has begun and is not answered yet.
pub struct Handshake {
    /// The peer of the connection.
    pub peer: SocketAddr,
    /// The client: the peer, or whom a trusted one names by the PROXY protocol.
    pub client: SocketAddr,
    /// What the client connected to.
    pub local: SocketAddr,
    /// The server name that the client asks for, in small letters.
    pub sni: Option<Box<str>>,
    /// Whether the configuration has a certificate for this name: if not, the default one is presented.
    pub has_certificate: bool,
    /// The protocols that the client offers (ALPN), in its order.
    pub alpn: Vec<Vec<u8>>,
    answer: HandshakeAnswer,
}

/// How a handshake is to be answered, where plugins have a say in it.
#[derive(Default)]
pub struct HandshakeAnswer {
    /// The client is asked for a certificate.
    pub requests_certificate: bool,
    /// The certificate to present.
    pub certificate: Option<CertificateKey>,
    /// The one protocol to agree on.
    pub alpn: Option<Vec<u8>>,
    /// The client cannot resume the session.
    pub disables_resumption: bool,
}

/// A certificate with its chain and its key, which a handshake can present.
#[derive(Debug, Clone)]
pub struct CertificateKey(Arc<CertifiedKey>);

impl CertificateKey {
    /// From PEM: the certificate and those that it was issued by, and its private key. Takes up to a millisecond: not for
    /// a handshake.
    pub fn from_pem(chain: &str, key: &str) -> Result<Self, String> {
        let key =
            tls::certified_key(chain.as_bytes(), key.as_bytes()).map_err(|problem| problem.to_string())?;
        Ok(Self(Arc::new(key)))
    }

    /// What the engine presents.
    #[doc(hidden)]
    pub fn key(&self) -> Arc<CertifiedKey> {
        self.0.clone()
    }
}

/// What a handshake does after a hook.
pub enum HandshakeFlow {
    /// Goes on with the next plugin.
    Continue,
    /// Ends, with an alert.
    Refuse,
    /// Waits for the future, then goes on with what the value it yields says. Dropped when the time for handshakes is over.
    Wait(Pin<Box<dyn Future<Output = HandshakeResume>>>),
}

/// What a [`HandshakeFlow::Wait`] yields: the rest of the hook.
pub type HandshakeResume = Box<dyn FnOnce(&mut Handshake) -> HandshakeFlow>;

impl Handshake {
    /// A handshake that has begun.
    pub fn new(peer: SocketAddr, local: SocketAddr, sni: Option<&str>, alpn: Vec<Vec<u8>>) -> Self {
        let sni = sni.map(|name| name.to_ascii_lowercase().into());
        Self {
            peer,
            client: peer,
            local,
            sni,
            has_certificate: false,
            alpn,
            answer: HandshakeAnswer::default(),
        }
    }

    /// Whether the client offers this protocol.
    pub fn offers(&self, protocol: &[u8]) -> bool {
        self.alpn.iter().any(|offered| offered == protocol)
    }

    /// Asks the client for a certificate. Whether it presents one, and which, requests tell by
    /// [`Exchange::client_certificate`](crate::Exchange::client_certificate). Not over QUIC.
    pub fn request_client_certificate(&mut self) {
        self.answer.requests_certificate = true;
    }

    /// Presents this certificate in the place of the configured one. Over QUIC the next handshake for the name presents it, if
    /// the configuration has none for it, because the hook runs when the handshake is over.
    pub fn set_certificate(&mut self, certificate: &CertificateKey) {
        self.answer.certificate = Some(certificate.clone());
    }

    /// Agrees on this protocol, which the client must have offered, in the place of those of HTTP. The connection ends
    /// after the handshake, as the challenge `tls-alpn-01` of ACME asks for (`acme-tls/1`). Not over QUIC.
    pub fn select_alpn(&mut self, protocol: &[u8]) {
        self.answer.alpn = Some(protocol.to_vec());
    }

    /// Has the client come with a whole handshake the next time too. Not over QUIC.
    pub fn disable_session_reuse(&mut self) {
        self.answer.disables_resumption = true;
    }

    /// How it is to be answered.
    pub fn into_answer(self) -> HandshakeAnswer {
        self.answer
    }
}
