//! TLS towards clients: the configuration that a set of listeners shares.

use super::client::AcceptAny;
use super::remembered::Remembered;
use super::{Certificates, CertifiedKey, CipherSuites, HTTP1, HTTP2, HTTP3, Problem, Subject, TlsError};
use arc_swap::ArcSwap;
use rustls::crypto::{GetRandomFailed, aws_lc_rs::Ticketer};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert, ServerSessionMemoryCache,
};
use rustls::ticketer::TicketRotator;
use rustls::{ServerConfig, SupportedProtocolVersion};
use std::sync::Arc;
use std::time::Duration;

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// TLS 1.2
    Tls12,
    /// TLS 1.3
    Tls13,
}

/// The protocol and the cipher suite that a client and a listener have agreed on, by their names in nginx and in IANA's
/// registry.
pub fn negotiated(connection: &rustls::ServerConnection) -> (&'static str, String) {
    let version = match connection.protocol_version() {
        Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3",
        _ => "TLSv1.2",
    };
    let suite = connection.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str());
    (version, suite.unwrap_or_default().replacen("TLS13_", "TLS_", 1))
}

/// How listeners speak TLS.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// `ssl_protocols`
    pub protocols: Vec<Version>,
    /// `ssl_cipher_suite`
    pub cipher_suites: CipherSuites,
    /// `ssl_prefer_server_ciphers`: whether the order of ours counts, rather than the client's.
    pub prefer_server_ciphers: bool,
    /// `ssl_session_tickets`: whether clients keep their sessions themselves.
    pub session_tickets: bool,
    /// `ssl_stapling`: whether OCSP responses are fetched and stapled.
    pub stapling: bool,
    /// `ssl_session_timeout`: how long a session can be resumed. Ticket keys are replaced every half of it, and at the
    /// latest after six hours, so that no session lives longer than twelve.
    pub session_timeout: Duration,
    /// How many sessions are kept for TLS 1.2 clients that know no tickets, until others push them out. Tickets cost
    /// no memory here.
    pub session_cache: usize,
}

impl Default for TlsOptions {
    fn default() -> Self {
        Self {
            protocols: vec![Version::Tls12, Version::Tls13],
            cipher_suites: CipherSuites::Intermediate,
            prefer_server_ciphers: false,
            session_tickets: true,
            stapling: false,
            session_timeout: Duration::from_secs(24 * 60 * 60),
            session_cache: 1024,
        }
    }
}

impl TlsOptions {
    pub(super) fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        let wanted = |version| self.protocols.contains(&version);
        let mut versions = Vec::new();
        if wanted(Version::Tls13) {
            versions.push(&rustls::version::TLS13);
        }
        if wanted(Version::Tls12) && self.cipher_suites != CipherSuites::Modern {
            versions.push(&rustls::version::TLS12);
        }
        versions
    }
}

/// The TLS of a set of listeners, kept over reloads.
pub struct ServerTls {
    /// What connections are accepted with.
    pub config: Arc<ServerConfig>,
    /// The same, with HTTP/2 offered and preferred.
    pub http2: Arc<ServerConfig>,
    asking: Arc<ServerConfig>,
    asking_http2: Arc<ServerConfig>,
    refusing: Arc<ServerConfig>,
    current: Arc<Current>,
    remembered: Arc<Remembered>,
}

impl ServerTls {
    /// Makes the configuration that all listeners share.
    pub fn new(options: &TlsOptions, initial: impl Into<Arc<Certificates>>) -> Result<Self, TlsError> {
        let current = Arc::new(Current(ArcSwap::new(initial.into())));
        let made = |asks| {
            let config = config(options, current.clone(), asks);
            let http1 = config.map_err(|problem| TlsError { subject: Subject::Settings, problem })?;
            let mut http2 = http1.clone();
            http2.alpn_protocols.insert(0, HTTP2.to_vec());
            Ok((Arc::new(http1), Arc::new(http2)))
        };
        let ((config, http2), (asking, asking_http2)) = (made(false)?, made(true)?);
        let refusing = Arc::new(unresumable(&config, Arc::new(Presented(None))));
        Ok(Self { config, http2, asking, asking_http2, refusing, current, remembered: Arc::default() })
    }

    /// The same, but asking the client for a certificate. Tickets of one are no use with the other: a session that began
    /// without the question is not resumed past it.
    pub fn asking(&self, http2: bool) -> &Arc<ServerConfig> {
        if http2 { &self.asking_http2 } else { &self.asking }
    }

    /// Ends every handshake with an alert.
    pub fn refusing(&self) -> &Arc<ServerConfig> {
        &self.refusing
    }

    /// One of these configurations, presenting another certificate or agreeing on another protocol. Its sessions are not
    /// resumed: the next handshake may be answered differently.
    pub fn presenting(
        &self,
        config: &ServerConfig,
        certificate: Option<Arc<CertifiedKey>>,
        alpn: Option<Vec<u8>>,
    ) -> Arc<ServerConfig> {
        let resolver = match certificate {
            Some(key) => Arc::new(Presented(Some(key))),
            None => config.cert_resolver.clone(),
        };
        let mut config = unresumable(config, resolver);
        if let Some(protocol) = alpn {
            config.alpn_protocols = vec![protocol];
        }
        Arc::new(config)
    }

    /// The configuration for QUIC, which is always TLS 1.3. It requests no client certificate, because that depends on
    /// the SNI, which is not known yet at that point. It accepts no early data, because an attacker could replay it
    /// (RFC 8446, 8).
    pub fn quic(&self, options: &TlsOptions) -> Result<ServerConfig, TlsError> {
        let options = TlsOptions { protocols: vec![Version::Tls13], ..options.clone() };
        let mut config = config(&options, self.current.clone(), false)
            .map_err(|problem| TlsError { subject: Subject::Settings, problem })?;
        config.alpn_protocols = vec![HTTP3.to_vec()];
        let (current, remembered) = (self.current.clone(), self.remembered.clone());
        config.cert_resolver = Arc::new(OverQuic { current, remembered });
        Ok(config)
    }

    /// Replaces the certificates; later handshakes use the new ones.
    pub fn replace(&self, certificates: impl Into<Arc<Certificates>>) {
        self.current.0.store(certificates.into());
    }

    /// Forgets what plugins have presented, because other plugins decide from now on, or none where `any` is false. The generation
    /// of these plugins, by which they are known in [`Self::remember`].
    pub fn forget_remembered(&self, any: bool) -> u64 {
        self.remembered.begin(any)
    }

    /// Has later handshakes over QUIC present what plugins have decided on for a name: a certificate, or the configured one. Nothing
    /// follows from it if other plugins decide by now.
    pub fn remember(&self, generation: u64, name: &str, certificate: Option<&Arc<CertifiedKey>>) {
        self.remembered.note(generation, name, certificate);
    }

    /// The active certificates.
    pub fn certificates(&self) -> Arc<Certificates> {
        self.current.0.load_full()
    }
}

fn config(options: &TlsOptions, current: Arc<Current>, asks: bool) -> Result<ServerConfig, Problem> {
    let refused = |error: rustls::Error| Problem::Refused(error.to_string());
    let versions = options.versions();
    if versions.is_empty() {
        return Err(Problem::NoProtocol);
    }
    let builder = ServerConfig::builder_with_provider(options.cipher_suites.provider())
        .with_protocol_versions(&versions)
        .map_err(refused)?;
    let builder = match asks {
        true => builder.with_client_cert_verifier(Arc::new(AcceptAny)),
        false => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(current);
    config.alpn_protocols = vec![HTTP1.to_vec()];
    config.ignore_client_order = options.prefer_server_ciphers;
    if options.session_tickets {
        config.ticketer = tickets(options.session_timeout).map_err(refused)?;
    }
    config.session_storage = ServerSessionMemoryCache::new(options.session_cache);
    // One ticket is what a client needs to resume. More would cost an encryption and a record per handshake.
    config.send_tls13_tickets = 1;
    config.max_early_data_size = 0;
    Ok(config)
}

/// The same configuration with these certificates, whose sessions are not resumed, nor those of others with it.
fn unresumable(config: &ServerConfig, certificates: Arc<dyn ResolvesServerCert>) -> ServerConfig {
    let mut config = config.clone();
    config.cert_resolver = certificates;
    config.ticketer = Arc::new(NoTickets);
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config
}

/// One certificate for all names, or none, which ends the handshake.
#[derive(Debug)]
struct Presented(Option<Arc<CertifiedKey>>);

impl ResolvesServerCert for Presented {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.clone()
    }
}

/// Clients keep no sessions.
#[derive(Debug)]
struct NoTickets;

impl ProducesTickets for NoTickets {
    fn enabled(&self) -> bool {
        false
    }
    fn lifetime(&self) -> u32 {
        0
    }
    fn encrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

#[derive(Debug)]
struct Current(ArcSwap<Certificates>);

impl ResolvesServerCert for Current {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load().find(hello.server_name(), hello.signature_schemes()))
    }
}

/// The configured certificates and, for names without one, those that plugins have presented.
#[derive(Debug)]
struct OverQuic {
    current: Arc<Current>,
    remembered: Arc<Remembered>,
}

impl ResolvesServerCert for OverQuic {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().filter(|name| !self.current.0.load().has(name));
        name.and_then(|name| self.remembered.find(name)).or_else(|| self.current.resolve(hello))
    }
}

/// Stateless tickets whose keys are replaced every half of the timeout; the previous key still opens its tickets.
fn tickets(timeout: Duration) -> Result<Arc<dyn ProducesTickets>, rustls::Error> {
    let half = u32::try_from(timeout.as_secs() / 2).unwrap_or(u32::MAX).max(1);
    Ok(Arc::new(TicketRotator::new(half, ticket_key)?))
}

fn ticket_key() -> Result<Box<dyn ProducesTickets>, GetRandomFailed> {
    let key = Ticketer::new().map_err(|_| GetRandomFailed)?;
    Ok(Box::new(TicketKey(key)))
}

/// The provider hands out its ticketer shared, the rotation wants to own it.
#[derive(Debug)]
struct TicketKey(Arc<dyn ProducesTickets>);

impl ProducesTickets for TicketKey {
    fn enabled(&self) -> bool {
        self.0.enabled()
    }
    fn lifetime(&self) -> u32 {
        self.0.lifetime()
    }
    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.0.encrypt(plain)
    }
    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.0.decrypt(cipher)
    }
}
