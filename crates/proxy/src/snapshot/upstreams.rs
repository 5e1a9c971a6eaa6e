//! Upstreams with their targets, and balancers over them.

use super::ServiceTls;
use super::last::same;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use weir_model::entity::{self, Protocol};
use weir_model::{Document, Uuid};
use weir_plugin::Retained;
use weir_upstream::balance::{BalancedEndpoint, Balancer, Cursors, Rings};
use weir_upstream::endpoint::{AllocateId, Endpoint, EndpointIds, UpstreamProtocol};
use weir_upstream::health::TargetMonitors;
use weir_upstream::limit::{LimitPolicy, UpstreamLimits};

/// An upstream and its targets.
#[derive(Clone)]
pub(super) struct Balanced {
    pub(super) upstream: Arc<entity::Upstream>,
    pub(super) targets: Vec<Arc<entity::Target>>,
}

impl Balanced {
    /// Whether it is what it was.
    pub(super) fn is(&self, other: &Balanced) -> bool {
        Arc::ptr_eq(&self.upstream, &other.upstream) && same(&self.targets, &other.targets)
    }
}

/// A document's upstreams by name.
#[derive(Default)]
pub(crate) struct Upstreams {
    by_name: HashMap<Box<str>, Balanced>,
    retained: Arc<Retained>,
    workers: usize,
}

impl Upstreams {
    pub(super) fn new(document: &Document, (retained, workers): (Arc<Retained>, usize)) -> Self {
        let mut targets: HashMap<Uuid, Vec<Arc<entity::Target>>> = HashMap::new();
        for target in &document.targets {
            targets.entry(target.upstream).or_default().push(target.clone());
        }
        let by_name = document.upstreams.iter().map(|upstream| {
            let targets = targets.remove(&upstream.id).unwrap_or_default();
            (upstream.name.as_str().into(), Balanced { upstream: upstream.clone(), targets })
        });
        Self { by_name: by_name.collect(), retained, workers }
    }

    /// The upstream of this name.
    pub(super) fn named(&self, name: &str) -> Option<&Balanced> {
        self.by_name.get(name)
    }

    /// Whether there is one of this name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// What balances requests over the upstream that a service's host names, as this service reaches it.
    pub(crate) fn balancer_of(
        &self,
        service: &entity::Service,
        tls: Option<&ServiceTls>,
    ) -> Option<Arc<Balancer>> {
        Some(self.balancer(service, self.named(&service.host)?, tls))
    }

    pub(super) fn balancer(
        &self,
        service: &entity::Service,
        Balanced { upstream, targets }: &Balanced,
        tls: Option<&ServiceTls>,
    ) -> Arc<Balancer> {
        let retained = &*self.retained;
        let (monitors, ids) = (TargetMonitors::new(upstream, &retained.get()), retained.get::<EndpointIds>());
        let endpoints = targets.iter().filter_map(|target| {
            let place = target.host_and_port()?;
            let mut endpoint = endpoint(&*ids, service, place, upstream.host_header.as_deref(), tls);
            endpoint.use_srv_name = upstream.use_srv_name && upstream.host_header.is_none();
            endpoint.monitor = monitors.of(&target.target);
            Some(BalancedEndpoint { endpoint, weight: target.weight, priority: target.priority })
        });
        let positions = retained.get::<Positions>();
        let mut positions = positions.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Arc::new(Cursors::new(self.workers));
        let cursors = positions.entry(upstream.id).or_insert_with(fresh).clone();
        drop(positions);
        let rings = retained.get::<Rings>();
        let limits = retained.get::<UpstreamLimits>();
        let limit = LimitPolicy::of(&upstream.tags).map(|policy| limits.of(&upstream.name, policy));
        Arc::new(Balancer::new(upstream, endpoints.collect(), (cursors, &rings), limit))
    }
}

/// The endpoint of this host and port, as the service reaches it. TLS is spoken where the service's protocol is over TLS.
pub(crate) fn endpoint(
    ids: &impl AllocateId,
    service: &entity::Service,
    place: (&str, u16),
    host_header: Option<&str>,
    tls: Option<&ServiceTls>,
) -> Endpoint {
    let is_tls = matches!(service.protocol, Protocol::Https | Protocol::Grpcs | Protocol::Tls);
    let tls = tls.filter(|_| is_tls).map(|tls| (tls.config.clone(), &*tls.profile));
    let spoken = UpstreamProtocol::of(service, service.protocol);
    Endpoint::new(ids, service.protocol, place, host_header, tls, spoken)
}

/// Round-robin positions, by the upstream's id.
#[derive(Default)]
pub(super) struct Positions(pub(super) Mutex<HashMap<Uuid, Arc<Cursors>>>);

impl Positions {
    /// Forgets upstreams that are no more; balancers still in use keep their own.
    pub(super) fn keep_those_of(&self, document: &Document) {
        let ids: HashSet<Uuid> = document.upstreams.iter().map(|upstream| upstream.id).collect();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|id, _| ids.contains(id));
    }
}
