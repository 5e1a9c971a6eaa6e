//! What log plugins read of an exchange.

use super::state::{write_path, write_target};
use super::{Exchange, Source};
use std::cell::Cell;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;
use weir_router::push_encoded;

/// Where an exchange's time went, as Kong divides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latencies {
    /// From the request's head to the response's last byte.
    pub request: Duration,
    /// Until the upstream was asked; until the response was made, where it was not.
    pub kong: Duration,
    /// From there to the upstream's response head.
    pub proxy: Option<Duration>,
    /// From there to the response's last byte.
    pub receive: Option<Duration>,
}

impl Latencies {
    /// When what ended then began.
    pub fn began_before(&self, end: SystemTime) -> SystemTime {
        end.checked_sub(self.request).unwrap_or(UNIX_EPOCH)
    }
}

thread_local! {
    /// A moment by both clocks.
    static CLOCKS: Cell<(Instant, SystemTime)> = Cell::new((Instant::now(), SystemTime::now()));
}

/// How long what is known of the clocks holds: within it they do not part by what is worth telling, and when the wall
/// clock is set, it is known soon after.
const KNOWN: Duration = Duration::from_millis(500);

/// The wall clock at a moment just past. It is asked now and then: that costs as much as dozens of additions.
fn wall_clock(moment: Instant) -> SystemTime {
    let (known, wall) = CLOCKS.get();
    match moment.checked_duration_since(known).filter(|since| *since < KNOWN) {
        Some(since) => wall + since,
        None => {
            let (instant, wall) = (Instant::now(), SystemTime::now());
            CLOCKS.set((instant, wall));
            wall.checked_sub(instant.saturating_duration_since(moment)).unwrap_or(UNIX_EPOCH)
        }
    }
}

impl Exchange {
    /// Where the time went. Complete once the log hooks run.
    pub fn latencies(&self) -> Latencies {
        let timing = self.timing;
        let since = |moment: Instant| moment.saturating_duration_since(timing.start);
        let request = since(timing.end.unwrap_or_else(Instant::now));
        let (asked, head) = (timing.upstream_start.map(since), timing.upstream_head.map(since));
        Latencies {
            request,
            kong: asked.unwrap_or(request),
            proxy: asked.zip(head).map(|(asked, head)| head.saturating_sub(asked)),
            receive: head.map(|head| request.saturating_sub(head)),
        }
    }

    /// When the request's head was complete, by the wall clock.
    pub fn started_at(&self) -> SystemTime {
        self.latencies().began_before(self.ended_at())
    }

    /// When the response's last byte was sent, likewise; now, where it was not yet.
    pub fn ended_at(&self) -> SystemTime {
        wall_clock(self.timing.end.unwrap_or_else(Instant::now))
    }

    /// The client's address as text, where it is the peer's: that is written once for the connection.
    pub fn client_ip_text(&self) -> Option<&str> {
        (self.client_ip == self.engine.connection.peer.ip()).then_some(&self.engine.connection.peer_text)
    }

    /// The upstream's address that was asked last; none where no connection was made.
    pub fn upstream_address(&self) -> Option<SocketAddr> {
        self.engine.upstream_addr
    }

    /// The status of the upstream's response, as it came; none where the gateway answered.
    pub fn upstream_status(&self) -> Option<u16> {
        (self.source == Source::Service).then(|| self.service_status().unwrap_or(self.response.status))
    }

    /// The path and query that the upstream is asked for; none where there is no service.
    pub fn upstream_uri(&self) -> Option<Vec<u8>> {
        let mut uri = Vec::new();
        self.write_upstream_uri(&mut uri);
        (!uri.is_empty()).then_some(uri)
    }

    /// Appends the same; nothing where there is no service.
    pub fn write_upstream_uri(&self, out: &mut Vec<u8>) {
        let Some(route) = self.route() else { return };
        if let Some(service) = &route.service {
            write_target(out, self, route.entity.strips_path(), &service.entity);
        }
    }

    /// The path that the upstream is asked for, escaped and without query. Where there is no service, it is what the route
    /// leaves of the request's.
    pub fn upstream_target_path(&self) -> String {
        let (route, service) = (self.route(), self.service());
        let strips_path = route.is_some_and(|route| route.entity.strips_path());
        let mut path = Vec::new();
        write_path(&mut path, self, strips_path, service.and_then(|service| service.path.as_deref()));
        String::from_utf8_lossy(&path).into_owned()
    }

    /// The path that routes are found by, escaped, and the query.
    pub fn normal_target(&self) -> Vec<u8> {
        let mut target = Vec::new();
        push_encoded(&mut target, self.path());
        if let Some(query) = self.query() {
            target.push(b'?');
            target.extend_from_slice(query.as_bytes());
        }
        target
    }

    /// The TLS version and cipher suite that the client came with.
    pub fn tls_session(&self) -> Option<(&str, &str)> {
        self.engine.connection.tls.as_ref().map(|tls| (tls.version, &*tls.cipher))
    }

    /// What the groups of the route's path regex captured: in order, and by name where they have one.
    pub fn uri_captures(&self) -> Option<&weir_router::Captures> {
        self.engine.captures.as_deref()
    }

    /// Whether the response says that something failed, rather than that a plugin has decided.
    pub fn is_failure(&self) -> bool {
        self.engine.failed
    }
}
