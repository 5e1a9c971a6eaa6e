//! The layer 4 proxy: relays TCP connections, TLS and UDP datagrams without parsing their content.
//!
//! ```text
//! connection ─► PROXY header ─► TLS: its name, or all of it ─► route ─► connect ─► relay ─► log
//! ```
//! A session holds the route that it began with, not the snapshot: it may last for days.

mod hello;
mod relay;
mod session;
mod udp;
mod upstream;

pub(crate) use session::Session;
pub(crate) use udp::receive;

use crate::downstream::proxy_protocol;
use crate::error::upstream_cause;
use crate::limits::NodeLimit;
use crate::listen::Accepted;
use crate::snapshot::{Query, StreamRoute, Transport};
use crate::worker::{ConnectionGuard, Load, Worker};
use hello::NoHello;
use relay::{Ended, Relay};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use weir_analytics::cause::Cause;
use weir_analytics::entities::NONE;
use weir_net::io::Io;
use weir_net::socket::Socket;
use weir_net::tls::negotiated;
use weir_plugin::{Admission, SessionTls};
use weir_upstream::UpstreamError;

/// Why a session came to nothing.
#[derive(Debug)]
enum Refusal {
    /// Its header was refused, and that is logged.
    Header,
    /// The TLS handshake did not begin.
    Hello(NoHello),
    /// The TLS handshake failed.
    Handshake(io::Error),
    /// The TLS handshake took too long.
    Late,
    /// No route matched.
    NoRoute,
    /// A plugin did not admit it.
    NotAdmitted,
    /// The route leads nowhere.
    NoService,
    /// The upstream was not reached.
    Upstream(UpstreamError),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::Header => f.write_str("the PROXY protocol header was refused"),
            Refusal::Hello(hello) => hello.fmt(f),
            Refusal::Handshake(error) => write!(f, "the TLS handshake with the client failed: {error}"),
            Refusal::Late => f.write_str("the client did not complete its TLS handshake in time"),
            Refusal::NoRoute => f.write_str("no stream route matched"),
            Refusal::NotAdmitted => f.write_str("a plugin did not admit it"),
            Refusal::NoService => f.write_str("the route has no service"),
            Refusal::Upstream(error) => error.fmt(f),
        }
    }
}

impl Refusal {
    /// What analytics call it.
    fn cause(&self) -> Cause {
        match self {
            Refusal::Header | Refusal::Hello(_) | Refusal::Handshake(_) => Cause::Rejected,
            Refusal::Late => Cause::ClientTimeout,
            Refusal::NoRoute => Cause::NoRoute,
            Refusal::NotAdmitted => Cause::Plugin(0),
            Refusal::NoService => Cause::NoService,
            Refusal::Upstream(error) => upstream_cause(error),
        }
    }

    /// As nginx numbers it.
    fn status(&self) -> u16 {
        match self {
            Refusal::Header | Refusal::Hello(_) => 400,
            Refusal::NotAdmitted => 403,
            Refusal::Handshake(_) | Refusal::Late | Refusal::NoRoute | Refusal::NoService => 500,
            Refusal::Upstream(_) => 502,
        }
    }
}

/// Serves a connection to its end.
pub(crate) async fn run(worker: Rc<Worker>, mut accepted: Accepted) {
    let _guard = ConnectionGuard::register(&worker).await;
    let _permit = accepted.permit.take();
    worker.count_connection();
    let _counted = Counted::new(&worker);
    let transport = if accepted.listener.tls { Transport::Tls } else { Transport::Tcp };
    let mut session = Session::new(accepted.peer, accepted.local, transport);
    // Boxed, so that a session has no room for what only its beginning needs.
    let begun = Box::pin(begin(&worker, accepted, &mut session)).await;
    match begun {
        Ok((downstream, (upstream, lease), route)) => {
            let mut relay = Relay::new(downstream, upstream, &worker.pipes);
            let ended = relay.run(route.idle_timeout()).await;
            (session.received, session.sent) = (relay.up.moved, relay.down.moved);
            drop((relay, lease));
            session.served();
            tell_end(&session, &ended);
        }
        Err(refusal) => refuse(&worker, &mut session, &refusal),
    }
    finish(&worker, session);
}

/// Counts a session for as long as it lasts. Only this worker writes.
struct Counted<'w>(&'w Worker);

impl<'w> Counted<'w> {
    fn new(worker: &'w Worker) -> Self {
        let Load { sessions, sessions_accepted, .. } = worker.load();
        sessions.store(sessions.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        sessions_accepted.store(sessions_accepted.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Self(worker)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let sessions = &self.0.load().sessions;
        sessions.store(sessions.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }
}

fn refuse(worker: &Worker, session: &mut Session, refusal: &Refusal) {
    (session.status, session.cause) = (refusal.status(), refusal.cause());
    if matches!(refusal, Refusal::Late) {
        worker.limit_acted(NodeLimit::HandshakeTime);
    }
    let is_said_elsewhere = matches!(refusal, Refusal::Header | Refusal::NotAdmitted);
    if !is_said_elsewhere && (session.has_warned.get() || worker.may_warn()) {
        tracing::warn!(client = %session.client, local = %session.local, "the session is closed: {refusal}");
    }
}

fn tell_end(session: &Session, ended: &Ended) {
    match ended {
        Ended::Closed => {}
        Ended::Idle => {
            tracing::info!(client = %session.client, local = %session.local, "a session was idle for too long");
        }
        Ended::Broken(error) => {
            tracing::debug!(client = %session.client, local = %session.local, "a session broke off: {error}");
        }
    }
}

/// After the last byte: logs and counts.
fn finish(worker: &Worker, mut session: Session) {
    session.engine.finish();
    if let Some(recorder) = &worker.recorder {
        let route = session.route.as_ref().map_or(NONE, |route| route.number);
        recorder.record_session(&session, route, session.cause);
    }
    if let Some(route) = &session.route {
        route.chain.log_stream(&session);
    }
    if worker.session_log.is_on() {
        worker.session_log.write_session(&session.record());
    }
}

/// Everything before the first byte is passed on.
async fn begin(
    worker: &Worker,
    accepted: Accepted,
    session: &mut Session,
) -> Result<(Io, upstream::Opened, Arc<StreamRoute>), Refusal> {
    let tls = accepted.listener.tls;
    let opened = proxy_protocol::open(worker, accepted).await;
    let (socket, client) = opened.map_err(|_| Refusal::Header)?;
    if let Some(client) = client {
        session.on_behalf_of(client);
    }
    let downstream = if tls {
        accept_tls(worker, socket, session).await?
    } else {
        take_route(worker, session)?;
        Io::Plain(socket)
    };
    let route = session.route.clone().ok_or(Refusal::NoRoute)?;
    admit(&route, session)?;
    let upstream = upstream::connect(worker, &route, session).await?;
    Ok((downstream, upstream, route))
}

fn admit(route: &StreamRoute, session: &Session) -> Result<(), Refusal> {
    match route.chain.preread(session) {
        Admission::Admit => Ok(()),
        Admission::Refuse => Err(Refusal::NotAdmitted),
    }
}

/// Ends the client's TLS here, or finds that it is to pass through; either way with a route.
async fn accept_tls(worker: &Worker, mut socket: Socket, session: &mut Session) -> Result<Io, Refusal> {
    let patience = worker.options.client_header_timeout;
    if worker.snapshot().streams.any_passthrough {
        let named = timeout(patience, hello::server_name(&mut socket)).await.map_err(|_| Refusal::Late)?;
        session.sni = named.map_err(Refusal::Hello)?;
        if take_route(worker, session)?.is_passthrough() {
            return Ok(Io::Plain(socket));
        }
    }
    let accepting = TlsAcceptor::from(worker.node.stream_tls.clone()).accept(socket);
    let accepted = timeout(patience, accepting).await.map_err(|_| Refusal::Late)?;
    let stream = accepted.map_err(Refusal::Handshake)?;
    let (version, cipher) = negotiated(stream.get_ref().1);
    session.tls = Some(SessionTls { version, cipher });
    if session.route.is_none() {
        session.sni = stream.get_ref().1.server_name().map(str::to_ascii_lowercase);
        take_route(worker, session)?;
    }
    Ok(Io::TlsServer(Box::new(stream)))
}

/// Finds the session's route in the active configuration.
fn take_route(worker: &Worker, session: &mut Session) -> Result<Arc<StreamRoute>, Refusal> {
    let query = Query {
        transport: session.transport,
        source: session.client,
        destination: worker.options.port_maps.public_address(session.local),
        sni: session.sni.as_deref(),
    };
    let snapshot = worker.snapshot();
    let found = snapshot.streams.router.find(&query).ok_or(Refusal::NoRoute)?;
    let route = snapshot.streams.routes[found as usize].clone();
    session.take(&route);
    Ok(route)
}
