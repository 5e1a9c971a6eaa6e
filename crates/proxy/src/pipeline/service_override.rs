//! The service as plugins have changed it for one request: another target, TLS or not, retries, timeouts.

use crate::exchange::Exchange;
use crate::snapshot::upstreams::endpoint;
use crate::snapshot::{CompiledService, Destination};
use crate::worker::Worker;
use std::ops::Deref;
use std::sync::Arc;
use weir_model::entity::{self, Protocol};
use weir_plugin::ServiceOverride;

/// The service of a request.
pub(crate) enum ServiceRef<'s> {
    /// As it is configured.
    Configured(&'s CompiledService),
    /// As plugins have changed it.
    Overridden(Box<CompiledService>),
}

impl<'s> ServiceRef<'s> {
    /// The service as the request is to reach it.
    pub(crate) fn of(worker: &Worker, exchange: &Exchange, service: &'s CompiledService) -> Self {
        match exchange.service_override() {
            None => Self::Configured(service),
            Some(change) => Self::Overridden(Box::new(overridden(worker, exchange, service, change))),
        }
    }
}

impl Deref for ServiceRef<'_> {
    type Target = CompiledService;

    #[inline]
    fn deref(&self) -> &CompiledService {
        match self {
            Self::Configured(service) => service,
            Self::Overridden(service) => service,
        }
    }
}

fn overridden(
    worker: &Worker,
    exchange: &Exchange,
    service: &CompiledService,
    change: &ServiceOverride,
) -> CompiledService {
    let mut entity = (*service.entity).clone();
    change.retries.into_iter().for_each(|retries| entity.retries = retries);
    if let Some([connect, write, read]) = change.timeouts {
        (entity.connect_timeout, entity.write_timeout, entity.read_timeout) = (connect, write, read);
    }
    change.tls.into_iter().for_each(|tls| entity.protocol = with_tls(entity.protocol, tls));
    if let Some(target) = &change.target {
        entity.host = target.host.to_string();
        entity.port = target.port.unwrap_or(entity.port);
    }
    let is_elsewhere = change.target.is_some() || entity.protocol != service.entity.protocol;
    let destination = match is_elsewhere {
        true => destination(worker, exchange, &entity, service),
        false => service.destination.clone(),
    };
    let limit = match &destination {
        Destination::Upstream(balancer) => balancer.limit.clone(),
        Destination::Host(_) => service.limit.clone().filter(|_| !is_elsewhere),
    };
    CompiledService {
        destination,
        limit,
        entity: Arc::new(entity),
        view: service.view.clone(),
        retry_budget: service.retry_budget.clone(),
        tls: service.tls.clone(),
    }
}

fn with_tls(protocol: Protocol, tls: bool) -> Protocol {
    match (protocol, tls) {
        (Protocol::Http | Protocol::Https, true) => Protocol::Https,
        (Protocol::Http | Protocol::Https, false) => Protocol::Http,
        (Protocol::Grpc | Protocol::Grpcs, true) => Protocol::Grpcs,
        (Protocol::Grpc | Protocol::Grpcs, false) => Protocol::Grpc,
        (other, _) => other,
    }
}

/// Where the changed service leads. Connections to a host of a plugin's choice are kept apart from those of the
/// configuration, because there may be any number of such hosts.
fn destination(
    worker: &Worker,
    exchange: &Exchange,
    entity: &entity::Service,
    service: &CompiledService,
) -> Destination {
    if let Some(balancer) = exchange.snapshot.balancer(entity, service.tls.as_ref()) {
        return Destination::Upstream(balancer);
    }
    let ids = &worker.upstreams.dynamic_ids;
    Destination::Host(endpoint(ids, entity, (&entity.host, entity.port), None, service.tls.as_ref()))
}
