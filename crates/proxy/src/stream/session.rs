//! One session: a connection of a stream listener, or what one client sends as datagrams.

use super::{StreamRoute, Transport};
use crate::access_log::SessionRecord;
use crate::plugin::exchange::Source;
use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use weir_model::Uuid;

/// One session, as the log and plugins see it.
pub struct Session {
    /// The client's address, by `trusted_ips` and the PROXY protocol.
    pub client: SocketAddr,
    /// What the client connected to.
    pub local: SocketAddr,
    /// The server name that the client asked for.
    pub sni: Option<String>,
    /// How it went, in nginx's numbers: 200, or as a response to a request would say.
    pub status: u16,
    /// Who ended it: the upstream, or the gateway itself.
    pub source: Source,
    /// Bytes from the client.
    pub received: u64,
    /// Bytes to the client.
    pub sent: u64,
    pub(crate) transport: Transport,
    pub(crate) route: Option<Arc<StreamRoute>>,
    started: (Instant, SystemTime),
    duration: Option<Duration>,
    /// Whether a target that was passed over was warned of: then its end is told as well.
    pub(super) is_told_of: Cell<bool>,
}

impl Session {
    pub(crate) fn new(client: SocketAddr, local: SocketAddr, transport: Transport) -> Self {
        Self {
            client: canonical(client),
            local: canonical(local),
            sni: None,
            status: 500,
            source: Source::Kong,
            received: 0,
            sent: 0,
            transport,
            route: None,
            started: (Instant::now(), SystemTime::now()),
            duration: None,
            is_told_of: Cell::new(false),
        }
    }

    /// The client that a trusted peer speaks for.
    pub(super) fn on_behalf_of(&mut self, client: SocketAddr) {
        self.client = canonical(client);
    }

    /// It has come to its end, after an upstream was reached.
    pub(super) fn served(&mut self) {
        (self.status, self.source) = (200, Source::Service);
    }

    pub(super) fn finish(&mut self) {
        self.duration = Some(self.started.0.elapsed());
    }

    /// How long it took.
    pub fn duration(&self) -> Duration {
        self.duration.unwrap_or_default()
    }

    /// When it began, by the wall clock.
    pub fn started_at(&self) -> SystemTime {
        self.started.1
    }

    /// The route that it took as JSON without what is unset.
    pub fn route_json(&self) -> Option<&str> {
        self.route.as_ref().map(|route| route.json.in_workspace(&*route.entity))
    }

    /// The service of that, likewise.
    pub fn service_json(&self) -> Option<&str> {
        self.route.as_ref()?.service.as_ref().map(|service| service.json())
    }

    /// Its line in the log.
    pub(super) fn record(&self) -> SessionRecord {
        SessionRecord {
            client_ip: self.client.ip(),
            ended: SystemTime::now(),
            protocol: if self.transport == Transport::Udp { "UDP" } else { "TCP" },
            status: self.status,
            sent: self.sent,
            received: self.received,
            duration: self.duration(),
        }
    }

    /// The route that it took, and the service of that.
    pub fn route(&self) -> Option<(Uuid, Option<Uuid>)> {
        self.route.as_ref().map(|route| (route.entity.id, route.service.as_ref().map(|s| s.entity.id)))
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
