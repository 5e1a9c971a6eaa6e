//! Reaching the upstream of a session.

use super::StreamRoute;
use super::session::Session;
use crate::answer::Failure;
use crate::head::without_port;
use crate::io::Io;
use crate::proxy_protocol::{self, Addresses, Form};
use crate::snapshot::{CompiledService, Destination};
use crate::socket::Socket;
use crate::upstream::connect::{open_socket, secure};
use crate::upstream::endpoint::Endpoint;
use crate::worker::Worker;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use weir_model::entity::{Protocol, ProxyProtocol};

/// Connects to one of the service's targets; to another, as often as `retries` says, where one cannot be reached.
pub(super) async fn connect(worker: &Worker, route: &StreamRoute, session: &Session) -> Result<Io, Failure> {
    let service = route.service.as_deref().ok_or(Failure::NoService)?;
    let timeout = Duration::from_millis(service.entity.connect_timeout.into());
    let mut retries = service.entity.retries;
    let mut tried = Vec::new();
    loop {
        let endpoint = match pick(worker, service, &tried) {
            // Each was tried: they are tried again.
            Err(Failure::NoPeer) if !tried.is_empty() => {
                tried.clear();
                pick(worker, service, &tried)?
            }
            picked => picked?,
        };
        let opening = Box::pin(open(worker, route, service, endpoint, session));
        let opened = tokio::time::timeout(timeout, opening).await.unwrap_or(Err(Failure::ConnectTimeout));
        match opened {
            Err(failure) if retries > 0 => {
                if worker.may_warn() {
                    passed_over(service, endpoint, &failure);
                }
                retries -= 1;
                tried.push(endpoint.id);
            }
            opened => return opened,
        }
    }
}

pub(super) fn pick<'s>(
    worker: &Worker,
    service: &'s CompiledService,
    tried: &[u32],
) -> Result<&'s Endpoint, Failure> {
    match &service.destination {
        Destination::Host(endpoint) if tried.contains(&endpoint.id) => Err(Failure::NoPeer),
        Destination::Host(endpoint) => Ok(endpoint),
        Destination::Upstream(balancer) => balancer.next(worker.index, tried).ok_or(Failure::NoPeer),
    }
}

fn passed_over(service: &CompiledService, endpoint: &Endpoint, failure: &Failure) {
    let name = service.entity.name.as_deref().unwrap_or(&service.id_text);
    let target = format!("{}:{}", endpoint.host, endpoint.port);
    tracing::warn!(service = name, target, "{failure}; it is tried again or passed over");
}

async fn open(
    worker: &Worker,
    route: &StreamRoute,
    service: &CompiledService,
    endpoint: &Endpoint,
    session: &Session,
) -> Result<Io, Failure> {
    let mut socket = open_socket(worker, endpoint).await?;
    if let Some(version) = service.entity.proxy_protocol {
        announce(&mut socket, version, session).await.map_err(Failure::Connect)?;
    }
    // What passes through encrypted is not encrypted again.
    match &endpoint.tls {
        Some(config) if service.entity.protocol == Protocol::Tls && !route.is_passthrough() => {
            let preserved = session.sni.as_deref().filter(|_| route.entity.preserve_host);
            let name = preserved.unwrap_or(without_port(&endpoint.authority));
            secure(socket, config, endpoint, Some(name)).await
        }
        _ => Ok(Io::Plain(socket)),
    }
}

/// Tells the upstream who the client is.
async fn announce(socket: &mut Socket, version: ProxyProtocol, session: &Session) -> std::io::Result<()> {
    let form = match version {
        ProxyProtocol::V1 => Form::V1,
        ProxyProtocol::V2 => Form::V2,
    };
    let mut header = Vec::new();
    let addresses = Addresses { source: session.client, destination: session.local };
    proxy_protocol::write(&mut header, form, &addresses);
    socket.write_all(&header).await
}
