//! Opens the connections of plugins to other servers. Names are resolved like those of upstreams; the node's settings
//! or the plugin's configuration decide how certificates are verified.

use crate::connect;
use crate::resolve::{Addresses, ResolveError, Resolver};
use crate::tls::{FaultKind, HandshakeFault, certified_key};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::sign::SingleCertAndKey;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// The node's resolver, for plugins, which are built before the data plane starts.
#[derive(Default)]
pub struct NodeResolver {
    resolver: OnceLock<Arc<Resolver>>,
    /// Whether the system resolves names, rather than that resolver.
    by_system: bool,
    /// Counts resolutions, because connections start with each address of a name in turn.
    turn: AtomicUsize,
}

impl NodeResolver {
    /// One that the system resolves names for, for connections before the data plane starts. It blocks its thread meanwhile,
    /// because tokio's look-up panics where no other thread can be started.
    pub fn of_system() -> Self {
        Self { by_system: true, ..Self::default() }
    }

    /// Sets the resolver of the data plane that starts, for plugins to use.
    pub fn provide(&self, resolver: &Arc<Resolver>) {
        self.resolver.get_or_init(|| resolver.clone());
    }

    /// The addresses of a name.
    pub async fn resolve(&self, host: &str) -> Result<Arc<Addresses>, ResolveError> {
        match self.resolver.get() {
            Some(resolver) => resolver.resolve(host).await,
            None => Resolver::resolve_literal(host),
        }
    }

    async fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if self.by_system {
            return Ok((host, port).to_socket_addrs()?.collect());
        }
        let found = self.resolve(host).await;
        let found = found.map_err(|error| io::Error::new(io::ErrorKind::NotFound, error))?;
        Ok(found.sockets(port, self.turn.fetch_add(1, Ordering::Relaxed)).collect())
    }
}

/// Opens connections for one plugin. Clones share its state.
#[derive(Clone)]
pub struct Dialer {
    resolver: Arc<NodeResolver>,
    tls: Option<Tls>,
}

/// The TLS client configuration.
#[derive(Clone)]
struct Tls {
    /// Or why certificates cannot be verified.
    config: Result<Arc<ClientConfig>, String>,
    /// What turns verification off, for error messages.
    switch: &'static str,
}

impl Dialer {
    /// For connections in clear.
    pub fn new(resolver: Arc<NodeResolver>) -> Self {
        Self { resolver, tls: None }
    }

    /// For connections over TLS too. `switch` is the setting or field, and its value, that turns verification off.
    pub fn with_tls(self, config: Result<Arc<ClientConfig>, String>, switch: &'static str) -> Self {
        Self { tls: Some(Tls { config, switch }), ..self }
    }

    /// The same, offering this protocol alone in handshakes (ALPN).
    pub fn with_alpn(mut self, protocol: &[u8]) -> Self {
        if let Some(Ok(config)) = self.tls.as_mut().map(|tls| tls.config.as_mut()) {
            Arc::make_mut(config).alpn_protocols = vec![protocol.to_vec()];
        }
        self
    }

    /// The same, presenting this certificate to servers that ask for one; both are PEM. Sessions of others are not resumed.
    pub fn with_identity(mut self, chain: &[u8], key: &[u8]) -> Result<Self, String> {
        let identity = certified_key(chain, key).map_err(|problem| problem.to_string())?;
        if let Some(Ok(config)) = self.tls.as_mut().map(|tls| tls.config.as_mut()) {
            let config = Arc::make_mut(config);
            config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(Arc::new(identity)));
            config.resumption = Resumption::disabled();
        }
        Ok(self)
    }

    /// Connects without TLS. The addresses of a name are tried one after another.
    pub async fn tcp(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let opened = connect::first(self.resolver.addresses(host, port).await?, connect::tcp).await;
        opened.unwrap_or_else(|| Err(no_address()))
    }

    /// An address of a host, for datagrams. Only one is tried, because UDP does not report whether a datagram arrived.
    pub async fn address(&self, host: &str, port: u16) -> io::Result<SocketAddr> {
        let found = self.resolver.addresses(host, port).await?;
        found.first().copied().ok_or_else(no_address)
    }

    /// Performs a TLS handshake with the server of this name.
    pub async fn tls(&self, name: &str, tcp: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let tls = self.tls.as_ref().ok_or_else(|| io::Error::other("the connection is to be in clear"))?;
        let config = tls.config.clone().map_err(|why| tls.unusable(name, &why))?;
        connect::tls(tcp, config, name, None).await.map_err(|error| tls.explained(name, error))
    }
}

fn no_address() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, ResolveError::NotFound)
}

impl Tls {
    fn unusable(&self, name: &str, why: &str) -> io::Error {
        let switch = self.switch;
        io::Error::other(format!(
            "the certificate of {name} cannot be verified: {why}: set lua_ssl_trusted_certificate, or set {switch}"
        ))
    }

    /// Says what is wrong in plain words, and how to fix it.
    fn explained(&self, name: &str, error: io::Error) -> io::Error {
        let Some(fault) = HandshakeFault::of(&error) else { return error };
        let (switch, fix) = (self.switch, fix(&fault));
        let text = match fault.of_certificate() {
            Some(what) => format!("the certificate of {name} {what}: {fix}, or set {switch}"),
            None => format!("TLS with {name} failed: {fault}: {fix}"),
        };
        io::Error::new(error.kind(), text)
    }
}

fn fix(fault: &HandshakeFault) -> &'static str {
    fault.fix().unwrap_or(match fault.kind() {
        FaultKind::UnknownAuthority => {
            "add its authority to lua_ssl_trusted_certificate, as `system,/path/to/ca.pem`"
        }
        FaultKind::ClientCertificate => "configure the certificate that the server asks for",
        FaultKind::UnknownName => "address it by a name that it has",
        _ => "turn TLS off for it, or write the port at which it speaks TLS",
    })
}
