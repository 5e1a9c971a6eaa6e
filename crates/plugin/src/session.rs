//! One session: a connection of a stream listener, or what one client sends as datagrams.

use super::engine::SessionState;
use super::exchange::Source;
use super::views::{Route, Service};
use std::cell::Ref;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

/// An attempt to connect a session to its upstream.
#[derive(Debug, Clone, Copy)]
pub struct SessionTry {
    /// The address, where one was found.
    pub address: Option<SocketAddr>,
    /// The upstream's port.
    pub port: u16,
    /// When it began.
    pub start: Instant,
    /// When it ended.
    pub end: Instant,
    /// Whether there was no connection.
    pub failed: bool,
}

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
    /// What the engine alone touches.
    #[doc(hidden)]
    pub engine: SessionState,
}

impl Session {
    /// A session that begins.
    pub fn new(client: SocketAddr, local: SocketAddr) -> Self {
        Self {
            client: canonical(client),
            local: canonical(local),
            sni: None,
            status: 500,
            source: Source::Kong,
            received: 0,
            sent: 0,
            engine: SessionState::new(),
        }
    }

    /// How long it took.
    pub fn duration(&self) -> Duration {
        self.engine.duration.unwrap_or_default()
    }

    /// When it began, by the wall clock.
    pub fn started_at(&self) -> SystemTime {
        self.engine.started.1
    }

    /// A moment of the session by the wall clock.
    pub fn at(&self, moment: Instant) -> SystemTime {
        let (start, started) = self.engine.started;
        started + moment.saturating_duration_since(start)
    }

    /// The attempts to connect to the upstream, in turn. Only the last one may have succeeded.
    pub fn tries(&self) -> Ref<'_, [SessionTry]> {
        self.engine.tries()
    }

    /// The route that it took.
    pub fn route(&self) -> Option<&Route> {
        self.engine.route.as_deref()
    }

    /// The service that the route leads to.
    pub fn service(&self) -> Option<&Service> {
        self.route()?.service.as_deref()
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
