//! TLS towards clients.

use super::client::AcceptAny;
use super::{Certificates, CertifiedKey, Problem, Subject, TlsError, provider};
use arc_swap::ArcSwap;
use rustls::crypto::{GetRandomFailed, aws_lc_rs::Ticketer};
use rustls::server::{ClientHello, ProducesTickets, ResolvesServerCert, ServerSessionMemoryCache};
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

/// Kong's `ssl_cipher_suite`, after Mozilla's recommendations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CipherSuites {
    /// TLS 1.3 alone.
    Modern,
    /// TLS 1.2 and 1.3 with forward secrecy and authenticated encryption.
    Intermediate,
    /// As intermediate: the weaker suites of this set are not implemented.
    Old,
}

/// How listeners speak TLS.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// `ssl_protocols`
    pub protocols: Vec<Version>,
    /// `ssl_cipher_suite`
    pub cipher_suites: CipherSuites,
    /// `ssl_session_timeout`: how long a session can be resumed. Ticket keys are replaced every half of it, and at the
    /// latest after six hours, so that no session lives longer than twelve.
    pub session_timeout: Duration,
    /// How many sessions are kept for TLS 1.2 clients that know no tickets, until others push them out. Tickets cost
    /// no memory here.
    pub session_cache: usize,
    /// The protocols offered by ALPN, the preferred one first.
    pub alpn: Vec<Vec<u8>>,
}

impl Default for TlsOptions {
    fn default() -> Self {
        Self {
            protocols: vec![Version::Tls12, Version::Tls13],
            cipher_suites: CipherSuites::Intermediate,
            session_timeout: Duration::from_secs(24 * 60 * 60),
            session_cache: 1024,
            alpn: vec![b"http/1.1".to_vec()],
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
    /// As `config`, but asks the client for a certificate. Its tickets are its own: a session that began without being
    /// asked is not resumed here.
    pub asking: Arc<ServerConfig>,
    current: Arc<Current>,
}

impl ServerTls {
    /// Makes the configuration that all listeners share.
    pub fn new(options: &TlsOptions, initial: impl Into<Arc<Certificates>>) -> Result<Self, TlsError> {
        let current = Arc::new(Current(ArcSwap::new(initial.into())));
        let config = |asks| {
            let made = config(options, current.clone(), asks);
            made.map_err(|problem| TlsError { subject: Subject::Settings, problem })
        };
        Ok(Self { config: config(false)?, asking: config(true)?, current })
    }

    /// Puts other certificates in force for the handshakes to come.
    pub fn replace(&self, certificates: impl Into<Arc<Certificates>>) {
        self.current.0.store(certificates.into());
    }

    /// The certificates in force.
    pub fn certificates(&self) -> Arc<Certificates> {
        self.current.0.load_full()
    }
}

fn config(options: &TlsOptions, current: Arc<Current>, asks: bool) -> Result<Arc<ServerConfig>, Problem> {
    let refused = |error: rustls::Error| Problem::Refused(error.to_string());
    let versions = options.versions();
    if versions.is_empty() {
        return Err(Problem::NoProtocol);
    }
    let builder =
        ServerConfig::builder_with_provider(provider()).with_protocol_versions(&versions).map_err(refused)?;
    let builder = match asks {
        true => builder.with_client_cert_verifier(Arc::new(AcceptAny)),
        false => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(current);
    config.alpn_protocols = options.alpn.clone();
    config.ticketer = tickets(options.session_timeout).map_err(refused)?;
    config.session_storage = ServerSessionMemoryCache::new(options.session_cache);
    // One ticket is what a client needs to resume. More would cost an encryption and a record per handshake.
    config.send_tls13_tickets = 1;
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

#[derive(Debug)]
struct Current(ArcSwap<Certificates>);

impl ResolvesServerCert for Current {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load().find(hello.server_name(), hello.signature_schemes()))
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
