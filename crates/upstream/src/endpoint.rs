//! An endpoint: one host and port of a service or target, and how to connect to it.

use super::health::{Outcome, TargetMonitor};
use rustls::ClientConfig;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use weir_model::entity::{Protocol, Service};
use weir_model::tags;
use weir_net::resolve::{Addresses, Resolver};
use weir_net::tls::{HTTP1, HTTP2};

/// One address to connect to, and the host name that is sent to it.
#[derive(Clone)]
pub struct Endpoint {
    /// Stable over reloads: the index in every worker's table of idle connections.
    pub id: u32,
    /// A name, or the text of an address.
    pub host: Box<str>,
    /// Set where the host is an address, so that no name is resolved.
    pub ip: Option<IpAddr>,
    /// Set where the host is a Unix socket, which has no port.
    pub unix: Option<Box<Path>>,
    /// The port; SRV records may name another.
    pub port: u16,
    /// The `Host` header it gets when the client's is not preserved.
    pub authority: Box<str>,
    /// Whether the host that an SRV record names takes the place of that.
    pub use_srv_name: bool,
    /// Whether SRV records have given its addresses weights.
    pub(super) weighted: Arc<AtomicBool>,
    /// The TLS configuration, if it uses TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// The versions of HTTP that it is offered.
    pub protocol: UpstreamProtocol,
    /// Set if its upstream monitors its health or load.
    pub monitor: Option<Arc<TargetMonitor>>,
}

/// The versions of HTTP that an endpoint is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UpstreamProtocol {
    /// HTTP/1.1 alone.
    Http1,
    /// HTTP/2 alone; in clear by prior knowledge.
    Http2,
    /// What the endpoint chooses in its TLS handshake.
    Either,
}

impl UpstreamProtocol {
    /// What is spoken to a service by this protocol.
    pub fn of(service: &Service, protocol: Protocol) -> Self {
        let asked = tags::has(&service.tags, tags::UPSTREAM_HTTP2);
        match protocol {
            Protocol::Grpc | Protocol::Grpcs => Self::Http2,
            Protocol::Https if asked => Self::Either,
            Protocol::Http if asked => Self::Http2,
            _ => Self::Http1,
        }
    }

    /// Offers it in the handshakes of a TLS configuration that offers HTTP/1.1.
    pub fn offered_by(self, config: Arc<ClientConfig>) -> Arc<ClientConfig> {
        let offered: &[&[u8]] = match self {
            Self::Http1 => return config,
            Self::Http2 => &[HTTP2],
            Self::Either => &[HTTP2, HTTP1],
        };
        let mut config = Arc::unwrap_or_clone(config);
        config.alpn_protocols = offered.iter().map(|protocol| protocol.to_vec()).collect();
        Arc::new(config)
    }
}

impl Endpoint {
    /// An endpoint of this host and port. `tls` has a configuration, and a key that identifies it.
    pub fn new(
        ids: &impl AllocateId,
        scheme: Protocol,
        (host, port): (&str, u16),
        host_header: Option<&str>,
        tls: Option<(Arc<ClientConfig>, &str)>,
        protocol: UpstreamProtocol,
    ) -> Self {
        let unix = host.strip_prefix("unix:");
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let authority = host_header.map_or_else(|| authority(scheme, host, port), str::to_owned);
        let profile = tls.as_ref().map(|(_, profile)| *profile);
        Self {
            id: ids.id(host, port, profile),
            host: bare.into(),
            ip: bare.parse().ok(),
            unix: unix.map(|path| Path::new(path).into()),
            port,
            authority: authority.into(),
            use_srv_name: false,
            weighted: Arc::default(),
            tls: tls.map(|(config, _)| config),
            protocol,
            monitor: None,
        }
    }

    /// Notes whether SRV records give its addresses weights.
    pub(super) fn learn(&self, addresses: &Addresses) {
        if self.weighted.load(Ordering::Relaxed) != addresses.are_weighted() {
            self.weighted.store(addresses.are_weighted(), Ordering::Relaxed);
        }
    }

    /// The address whose turn it is, where SRV records give its addresses weights.
    pub fn weighted_address(&self, resolver: &Resolver, turn: u64) -> Option<SocketAddr> {
        if !self.weighted.load(Ordering::Relaxed) {
            return None;
        }
        let addresses = resolver.cached(&self.host)?;
        addresses.sockets(self.port, turn as usize).find(|address| self.admits(Some(*address)))
    }

    /// Whether it leads to this address, as far as is known without waiting. Starts the renewal of an expired answer.
    pub(crate) fn leads_to(&self, resolver: &Resolver, address: Option<SocketAddr>) -> bool {
        let Some(address) = address else { return true };
        let known = resolver.cached(&self.host);
        known.is_none_or(|known| known.sockets(self.port, 0).any(|one| one == address))
    }

    /// The `Host` header for a connection to an address, if the name of its SRV record is to be used.
    pub fn srv_authority(&self, resolver: &Resolver, address: Option<SocketAddr>) -> Option<String> {
        let (true, Some(address)) = (self.use_srv_name, address) else { return None };
        let addresses = resolver.cached(&self.host)?;
        let scheme = if self.tls.is_some() { Protocol::Https } else { Protocol::Http };
        addresses.srv_name(address).map(|name| authority(scheme, name, address.port()))
    }

    /// Whether it is unavailable.
    pub fn is_down(&self) -> bool {
        self.monitor.as_ref().is_some_and(|monitor| monitor.is_down())
    }

    /// Whether this address of it is available.
    pub fn admits(&self, address: Option<SocketAddr>) -> bool {
        match (&self.monitor, address) {
            (Some(monitor), Some(address)) => monitor.admits(address),
            _ => true,
        }
    }

    /// Records the outcome of a request to this address.
    pub fn record_outcome(&self, address: Option<SocketAddr>, outcome: Outcome) {
        if let (Some(monitor), Some(address)) = (&self.monitor, address) {
            monitor.record_outcome(address, outcome);
        }
    }

    /// `host:port`, which identifies it among the targets of its upstream.
    pub fn name(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// `host`, or `host:port` where the port is not the scheme's own; `localhost` for a Unix socket, as nginx has it.
pub fn authority(protocol: Protocol, host: &str, port: u16) -> String {
    if host.starts_with("unix:") {
        return "localhost".to_owned();
    }
    let default = if matches!(protocol, Protocol::Https | Protocol::Grpcs) { 443 } else { 80 };
    let mut text = host.to_owned();
    if port != default {
        let _ = write!(text, ":{port}");
    }
    text
}

/// Allocates endpoint ids: the same for the same host, port and TLS.
pub trait AllocateId {
    /// The id of this host and port; `tls` identifies how TLS is spoken, if it is.
    fn id(&self, host: &str, port: u16, tls: Option<&str>) -> u32;
}

/// Allocates endpoint ids; retained, so that unchanged endpoints keep their idle connections over a reload.
#[derive(Default)]
pub struct EndpointIds(Mutex<HashMap<Place, u32>>);

/// Host, port and how TLS is spoken.
type Place = (String, u16, Option<String>);

impl AllocateId for EndpointIds {
    fn id(&self, host: &str, port: u16, tls: Option<&str>) -> u32 {
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = ids.len() as u32;
        *ids.entry((host.to_owned(), port, tls.map(str::to_owned))).or_insert(next)
    }
}

/// The first id of endpoints that are chosen by requests.
pub(crate) const FIRST_DYNAMIC: u32 = 1 << 31;

/// How many of these a worker remembers.
const MAX_DYNAMIC: usize = 1024;

/// Allocates ids for endpoints that plugins choose request by request, of which there may be any number: one worker's. An
/// endpoint that was forgotten gets another id, so that no connection to another is ever taken for one to it.
#[derive(Default)]
pub struct DynamicEndpointIds {
    known: RefCell<HashMap<Place, u32>>,
    next: Cell<u32>,
}

impl AllocateId for DynamicEndpointIds {
    fn id(&self, host: &str, port: u16, tls: Option<&str>) -> u32 {
        let mut known = self.known.borrow_mut();
        let place = (host.to_owned(), port, tls.map(str::to_owned));
        if let Some(id) = known.get(&place) {
            return *id;
        }
        if known.len() >= MAX_DYNAMIC {
            known.clear();
        }
        let id = FIRST_DYNAMIC | self.next.get();
        self.next.set((self.next.get() + 1) % FIRST_DYNAMIC);
        known.insert(place, id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::{AllocateId, DynamicEndpointIds, FIRST_DYNAMIC};

    #[test]
    fn dynamic_ids_are_bounded_and_never_given_to_another_endpoint() {
        let ids = DynamicEndpointIds::default();
        let first = ids.id("a", 80, None);
        assert!(first >= FIRST_DYNAMIC && first == ids.id("a", 80, None));
        let others = [ids.id("a", 81, None), ids.id("b", 80, None), ids.id("a", 80, Some("tls"))];
        assert!(others.iter().all(|id| *id != first));
        let many: Vec<u32> = (0..5000).map(|n| ids.id(&format!("h{n}"), 80, None)).collect();
        assert!(many.windows(2).all(|two| two[0] < two[1]));
        assert!(ids.known.borrow().len() <= super::MAX_DYNAMIC);
        assert!(ids.id("a", 80, None) > first);
    }
}
