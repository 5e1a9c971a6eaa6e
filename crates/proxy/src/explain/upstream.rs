//! Explains which upstream a request would go to.
use super::Named;
use crate::Retained;
use crate::exchange::Exchange;
use crate::snapshot::{CompiledRoute, CompiledService, Destination};
use serde::Serialize;
use std::sync::Arc;
use weir_model::Document;
use weir_model::entity::{Service, Target};
use weir_model::schema::Choice;
use weir_plugin::engine;
use weir_upstream::endpoint::authority;
use weir_upstream::health;

/// Where a request goes.
#[derive(Debug, Clone, Serialize)]
pub struct Upstream {
    /// The service.
    pub service: Named,
    /// The URL that is asked for; none if a plugin chooses it.
    pub url: Option<String>,
    /// The places that may be asked.
    pub targets: Vec<Candidate>,
    /// The plugin that chooses the upstream when the request comes, in the place of the service's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
}

/// One place that may be asked.
#[derive(Debug, Clone, Serialize)]
pub struct Candidate {
    /// Its host and port.
    pub target: String,
    /// Its share of the requests; none where there is no choice.
    pub weight: Option<u16>,
    /// Those of a lower one are asked only while none of a higher one is available; left out where it is 0.
    #[serde(skip_serializing_if = "is_default")]
    pub priority: i32,
    /// The Host header that it gets.
    pub host: String,
}

fn is_default(priority: &i32) -> bool {
    *priority == 0
}

impl Upstream {
    /// Another one than the service's.
    pub(super) fn chosen_by(plugin: String, compiled: &CompiledService) -> Upstream {
        let service = Named::new(compiled.entity.id, &compiled.entity.name);
        Upstream { service, url: None, targets: Vec::new(), decided_by: Some(plugin) }
    }

    /// Whether it is known that there is no target to ask.
    pub(super) fn has_no_target(&self) -> bool {
        self.decided_by.is_none() && self.targets.iter().all(|target| target.weight == Some(0))
    }

    /// Whether every target that may be asked is known to be unhealthy.
    pub(super) fn is_unhealthy(&self, retained: &Retained, document: &Document) -> bool {
        if self.decided_by.is_some() {
            return false;
        }
        let service = document.services.iter().find(|service| service.id == self.service.id);
        let named = |service: &Arc<Service>| document.upstreams.iter().find(|it| it.name == service.host);
        let Some(upstream) = service.and_then(named).filter(|upstream| health::are_used(upstream)) else {
            return false;
        };
        let is_unhealthy = |target: &Candidate| {
            let addresses = health::standing(&retained.get(), &upstream.name, &target.target).addresses;
            !addresses.is_empty() && addresses.iter().all(|address| !address.is_healthy)
        };
        self.targets.iter().filter(|target| target.weight != Some(0)).all(is_unhealthy)
    }
}

pub(super) fn of(
    exchange: &Exchange,
    route: &CompiledRoute,
    compiled: &CompiledService,
    document: &Document,
) -> Upstream {
    let service = &compiled.entity;
    let named = match compiled.destination {
        Destination::Host(_) => authority(service.protocol, &service.host, service.port),
        Destination::Upstream(_) => service.host.clone(),
    };
    let mut target = Vec::new();
    engine::write_target(&mut target, exchange, route.entity.strips_path(), service);
    let url = format!("{}://{named}{}", service.protocol.as_str(), String::from_utf8_lossy(&target));
    let mut targets = match compiled.destination {
        Destination::Host(_) => {
            let target = place(&service.host, service.port);
            vec![Candidate { target, weight: None, priority: 0, host: named }]
        }
        Destination::Upstream(_) => candidates(compiled, document),
    };
    let preserved = || exchange.request.host().filter(|_| route.entity.preserve_host);
    if let Some(host) = exchange.upstream_host().or_else(preserved) {
        targets.iter_mut().for_each(|target| target.host = host.to_owned());
    }
    Upstream { service: Named::new(service.id, &service.name), url: Some(url), targets, decided_by: None }
}

/// A host with its port, which a socket has not.
fn place(host: &str, port: u16) -> String {
    if host.starts_with("unix:") { host.to_owned() } else { format!("{host}:{port}") }
}

/// The targets of the upstream that the service names.
fn candidates(compiled: &CompiledService, document: &Document) -> Vec<Candidate> {
    let service = &compiled.entity;
    let Some(upstream) = document.upstreams.iter().find(|upstream| upstream.name == service.host) else {
        return Vec::new();
    };
    let targets = document.targets.iter().filter(|target| target.upstream == upstream.id);
    let candidate = |target: &Arc<Target>| {
        let (host, port) = target.host_and_port()?;
        let own = || authority(service.protocol, host, port);
        Some(Candidate {
            target: target.target.clone(),
            weight: Some(target.weight),
            priority: target.priority,
            host: upstream.host_header.clone().unwrap_or_else(own),
        })
    };
    targets.filter_map(candidate).collect()
}
