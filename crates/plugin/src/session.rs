//! One session: a connection of a stream listener, or what one client sends as datagrams.

use super::exchange::{FailedTry, Source};
use super::views::{Route, Service};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// The TLS that a client and a stream listener have agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionTls {
    /// Such as `TLSv1.3`.
    pub version: &'static str,
    /// The cipher suite.
    pub cipher: String,
}

/// One session, as the log and plugins see it.
pub struct Session {
    /// The client's address, by `trusted_ips` and the PROXY protocol.
    pub client: SocketAddr,
    /// What the client connected to.
    pub local: SocketAddr,
    /// The server name that the client asked for.
    pub sni: Option<String>,
    /// The client's TLS, if it ends here.
    pub tls: Option<SessionTls>,
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
            tls: None,
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

    /// A moment of it, by the wall clock.
    pub fn time_of(&self, moment: Instant) -> SystemTime {
        let (start, started_at) = self.engine.started;
        started_at + moment.saturating_duration_since(start)
    }

    /// The attempts to reach the upstream that failed.
    pub fn failed_tries(&self) -> &[FailedTry] {
        &self.engine.failed_tries
    }

    /// The address that was reached, when it was asked, and when it was connected to.
    pub fn upstream(&self) -> Option<(SocketAddr, Instant, Instant)> {
        self.engine.upstream
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

/// What the engine knows and changes of a session.
pub struct SessionState {
    /// The route that it took.
    pub route: Option<Arc<Route>>,
    /// The attempts to reach the upstream that failed.
    pub failed_tries: Vec<FailedTry>,
    /// The address that was reached, when it was asked, and when it was connected to.
    pub upstream: Option<(SocketAddr, Instant, Instant)>,
    started: (Instant, SystemTime),
    duration: Option<Duration>,
}

impl SessionState {
    fn new() -> Self {
        let started = (Instant::now(), SystemTime::now());
        Self { route: None, failed_tries: Vec::new(), upstream: None, started, duration: None }
    }

    /// It has come to its end.
    pub fn finish(&mut self) {
        self.duration = Some(self.started.0.elapsed());
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
