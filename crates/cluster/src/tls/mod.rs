//! TLS between control planes and data planes, which verify each other.
//!
//! In `shared` mode all nodes have the same certificate: a peer is known by the digest of the one that it presents. In
//! `pki` mode each node has its own, issued by an authority. Kong's shared certificates are of X.509 version 1 without
//! names, so only their public key is read here.
mod generate;
mod peer;
mod pinned;
#[cfg(test)]
mod tests;

pub use generate::{Generated, generate};
pub use peer::{Peer, PeerError};

use pinned::PinnedServer;
use rustls::pki_types::CertificateDer;
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ServerConfig};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::sync::Arc;
use weir_net::tls::{AcceptAny, ClientAuthorities, Verify, certified_key, client_config, provider};

/// The name that a shared certificate is for, which data planes also send as SNI.
pub const SHARED_NAME: &str = "kong_clustering";

/// SHA-256 of a certificate.
pub(crate) type Digest = [u8; 32];

/// The certificate of a node, with its key.
#[derive(Clone)]
pub struct Identity(Arc<CertifiedKey>);

impl Identity {
    /// Reads PEM.
    pub fn read(certificate: &str, key: &str) -> Result<Identity, TlsError> {
        let key = certified_key(certificate.as_bytes(), key.as_bytes());
        key.map(|key| Identity(Arc::new(key))).map_err(|problem| TlsError::Identity(problem.to_string()))
    }

    fn digest(&self) -> Digest {
        self.0.cert.first().map(digest).unwrap_or_default()
    }

    /// When the certificate ends, in seconds since 1970.
    pub fn expires(&self) -> Option<i64> {
        expiry(self.0.cert.first()?)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity(…)")
    }
}

/// Whether a control plane asks if the certificates of data planes were revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ocsp {
    /// It does not.
    Off,
    /// It refuses certificates that were revoked.
    Optional,
    /// It refuses certificates without a response that they stand.
    On,
}

/// How peers are verified.
#[derive(Debug, Clone)]
pub enum Trust {
    /// All nodes have the same certificate.
    Shared,
    /// Each node has a certificate of these authorities.
    Pki {
        /// The authorities.
        authorities: Vec<CertificateDer<'static>>,
        /// The name that the control plane's certificate must be for, if not its host.
        server_name: Option<String>,
        /// Whether revocation is asked about.
        ocsp: Ocsp,
    },
}

/// What cannot be used for TLS; the text says how to fix it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsError {
    /// The certificate and its key.
    Identity(String),
    /// The authorities.
    Authorities(String),
    /// The configuration as a whole.
    Refused(String),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsError::Identity(why) => write!(f, "cluster_cert and cluster_cert_key: {why}"),
            TlsError::Authorities(why) => write!(f, "cluster_ca_cert: {why}"),
            TlsError::Refused(why) => write!(f, "TLS of the cluster: {why}"),
        }
    }
}

impl std::error::Error for TlsError {}

/// What a data plane connects with.
#[derive(Clone)]
pub struct ClientTls {
    pub(crate) config: Arc<ClientConfig>,
    name: Option<String>,
}

impl ClientTls {
    /// For a data plane.
    pub fn new(identity: &Identity, trust: &Trust) -> Result<ClientTls, TlsError> {
        let (config, name) = match trust {
            Trust::Shared => (pinned(identity)?, Some(SHARED_NAME.to_owned())),
            Trust::Pki { authorities, server_name, .. } => {
                let verify = Verify { roots: authorities.clone(), depth: None };
                let config = client_config(Some(verify), Some(identity.0.clone()));
                (config.map_err(|error| TlsError::Authorities(error.to_string()))?, server_name.clone())
            }
        };
        let mut config = ClientConfig::clone(&config);
        // Kong offers no protocol.
        config.alpn_protocols.clear();
        Ok(ClientTls { config: Arc::new(config), name })
    }

    /// The name that is sent as SNI and verified, for a control plane on this host.
    pub(crate) fn name<'n>(&'n self, host: &'n str) -> &'n str {
        self.name.as_deref().unwrap_or(host)
    }
}

fn pinned(identity: &Identity) -> Result<Arc<ClientConfig>, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Refused(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinnedServer(identity.digest())));
    let resolver = SingleCertAndKey::from(identity.0.clone());
    Ok(Arc::new(builder.with_client_cert_resolver(Arc::new(resolver))))
}

/// What a control plane accepts connections with.
///
/// The handshake accepts any certificate whose key the peer holds. Whether the peer is admitted is decided behind it, so
/// that one that is refused gets the reason in an HTTP response.
pub struct ServerTls {
    pub(crate) config: Arc<ServerConfig>,
    admission: Admission,
}

/// How data planes are verified.
enum Admission {
    Shared(Digest),
    Pki { clients: ClientAuthorities, authorities: Vec<CertificateDer<'static>>, ocsp: Ocsp },
}

impl ServerTls {
    /// For a control plane.
    pub fn new(identity: &Identity, trust: &Trust) -> Result<ServerTls, TlsError> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Refused(error.to_string()))?
            .with_client_cert_verifier(Arc::new(AcceptAny))
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(identity.0.clone())));
        // Data planes stay connected: there is little to resume, and no stored session outlives its certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        let admission = match trust {
            Trust::Shared => Admission::Shared(identity.digest()),
            Trust::Pki { authorities, ocsp, .. } => {
                let clients = ClientAuthorities::new(authorities.clone());
                let clients = clients.map_err(|problem| TlsError::Authorities(problem.to_string()))?;
                Admission::Pki { clients, authorities: authorities.clone(), ocsp: *ocsp }
            }
        };
        Ok(ServerTls { config: Arc::new(config), admission })
    }

    /// Whether a peer that presented this chain is admitted.
    pub(crate) async fn admit(&self, chain: Option<&[CertificateDer<'static>]>) -> Result<Peer, PeerError> {
        let chain = chain.unwrap_or_default();
        let own = chain.first().ok_or(PeerError::NoCertificate)?;
        match &self.admission {
            Admission::Shared(expected) => peer::check_digest(own, expected)?,
            Admission::Pki { clients, authorities, ocsp } => {
                let vouched = clients.vouch_for(chain);
                vouched.map_err(|error| PeerError::Untrusted(error.to_string()))?;
                peer::check_revocation(chain, authorities, *ocsp).await?;
            }
        }
        Ok(Peer { expires: expiry(own) })
    }
}

pub(crate) fn digest(certificate: &CertificateDer<'_>) -> Digest {
    Sha256::digest(certificate.as_ref()).into()
}

fn expiry(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(certificate.validity().not_after.timestamp())
}
