//! Connects a session to its upstream.

use super::session::Session;
use super::{Refusal, StreamRoute};
use crate::downstream::proxy_protocol::{self, Addresses, Form};
use crate::snapshot::{CompiledService, Destination};
use crate::worker::Worker;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;
use weir_model::entity::{Protocol, ProxyProtocol, Service};
use weir_net::io::Io;
use weir_net::socket::Socket;
use weir_plugin::{FailedTry, without_port};
use weir_upstream::UpstreamError;
use weir_upstream::balance::{Lease, Pick, PickContext};
use weir_upstream::connect::{ConnectAttempt, secure};
use weir_upstream::endpoint::Endpoint;
use weir_upstream::health::Outcome;

/// The connection to a target, and the target's being busy with it, where that is measured.
pub(super) type Opened = (Io, Option<Lease>);

/// Connects to one of the service's targets; to another, as often as `retries` says, where one cannot be reached.
pub(super) async fn connect(
    worker: &Worker,
    route: &StreamRoute,
    session: &mut Session,
) -> Result<Opened, Refusal> {
    let service = route.service.as_deref().ok_or(Refusal::NoService)?;
    let timeout = Duration::from_millis(service.entity.connect_timeout.into());
    let mut retries = service.entity.retries;
    let mut tried = Vec::new();
    loop {
        let Pick { endpoint, lease } = match pick(worker, service, session, &tried) {
            // Each was tried: they are tried again.
            Err(UpstreamError::NoTarget) if !tried.is_empty() => {
                tried.clear();
                pick(worker, service, session, &tried).map_err(Refusal::Upstream)?
            }
            picked => picked.map_err(Refusal::Upstream)?,
        };
        let (attempt, start) = (ConnectAttempt::new(worker.random()), Instant::now());
        let opening = Box::pin(open(worker, (route, service), endpoint, (session, &attempt)));
        let opened = tokio::time::timeout(timeout, opening).await.unwrap_or_else(|_| {
            endpoint.record_outcome(attempt.get(), Outcome::Timeout);
            Err(UpstreamError::ConnectTimeout)
        });
        match opened {
            Ok(io) => {
                session.engine.upstream = attempt.get().map(|address| (address, start, Instant::now()));
                endpoint.record_outcome(attempt.get(), Outcome::Connected);
                // More is not known of how fast it is: what it says is not understood.
                lease.iter().for_each(|lease| lease.answered(Duration::ZERO));
                return Ok((io, lease));
            }
            Err(error) => {
                let code = if error.is_timeout() { 504 } else { 502 };
                let (address, port, end) = (attempt.get(), endpoint.port, Instant::now());
                session.engine.failed_tries.push(FailedTry { address, port, start, end, code });
                if retries == 0 {
                    return Err(Refusal::Upstream(error));
                }
                if worker.may_warn() {
                    session.has_warned.set(true);
                    passed_over(service, endpoint, &error);
                }
                retries -= 1;
                tried.push(endpoint.id);
            }
        }
    }
}

pub(super) fn pick<'s>(
    worker: &Worker,
    service: &'s CompiledService,
    session: &Session,
    tried: &[u32],
) -> Result<Pick<'s>, UpstreamError> {
    match &service.destination {
        Destination::Host(endpoint) if tried.contains(&endpoint.id) => Err(UpstreamError::NoTarget),
        Destination::Host(endpoint) => Ok(Pick { endpoint, lease: None }),
        Destination::Upstream(balancer) => {
            let hash = balancer.session_hash(session.client.ip());
            let random = &|| worker.random();
            let context = PickContext { worker: worker.index, tried, hash, random };
            balancer.pick(&context).ok_or(UpstreamError::NoTarget)
        }
    }
}

fn passed_over(service: &CompiledService, endpoint: &Endpoint, error: &UpstreamError) {
    let name = service.label();
    tracing::warn!(service = name, target = endpoint.name(), "{error}; it is tried again or passed over");
}

async fn open(
    worker: &Worker,
    (route, service): (&StreamRoute, &CompiledService),
    endpoint: &Endpoint,
    (session, attempt): (&Session, &ConnectAttempt),
) -> Result<Io, UpstreamError> {
    let mut socket = worker.upstreams.open_socket(endpoint, attempt).await?;
    if let Some(form) = announced(&service.entity) {
        announce(&mut socket, form, session).await.map_err(UpstreamError::Connect)?;
    }
    // What passes through encrypted is not encrypted again.
    match &endpoint.tls {
        Some(config) if service.entity.protocol == Protocol::Tls && !route.is_passthrough() => {
            let preserved = session.sni.as_deref().filter(|_| route.entity.preserve_host);
            let name = preserved.unwrap_or(without_port(&endpoint.authority));
            let secured = secure(socket, config, endpoint, Some(name), None).await;
            secured.inspect_err(|_| endpoint.record_outcome(attempt.get(), Outcome::TcpFailure))
        }
        _ => Ok(Io::Plain(socket)),
    }
}

/// The version of the PROXY header that a service gets, from its field or from a tag, because Kong's tools carry tags.
fn announced(service: &Service) -> Option<Form> {
    let tagged = |tag: &String| match tag.as_str() {
        "weir-proxy-protocol-v1" => Some(Form::V1),
        "weir-proxy-protocol-v2" => Some(Form::V2),
        _ => None,
    };
    match service.proxy_protocol {
        Some(ProxyProtocol::V1) => Some(Form::V1),
        Some(ProxyProtocol::V2) => Some(Form::V2),
        None => service.tags.iter().flatten().find_map(tagged),
    }
}

/// Sends the PROXY header to the upstream.
async fn announce(socket: &mut Socket, form: Form, session: &Session) -> std::io::Result<()> {
    let mut header = Vec::new();
    let addresses = Addresses { source: session.client, destination: session.local };
    proxy_protocol::write(&mut header, form, &addresses);
    socket.write_all(&header).await
}
