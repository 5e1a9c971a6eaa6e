//! The metrics of the node.
mod format;
mod protobuf;

pub(crate) use format::Format;

use super::Control;
use super::process::process;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use weir_analytics::aggregate::Aggregate;
use weir_analytics::entities::{Entities, Entity, NONE};
use weir_analytics::totals::Totals;
use weir_guests::{DictMemory, LuaMemory};
use weir_model::Document;
use weir_model::entity::Target;
use weir_plugin::{NodeStatistics, ServedTotals};
use weir_plugins::prometheus::{
    Connections, EjectedTarget, Names, NodeFacts, SharedStore, TargetHealth, TargetState, UpstreamLoad,
    UpstreamRetries, exposition,
};
use weir_proxy::Retained;
use weir_upstream::health::{self, OutlierPolicy};
use weir_upstream::limit::{LimitCounts, UpstreamLimits};
use weir_upstream::retry_budget::{RetryBudgets, RetryCounts};

/// What analytics have counted by route.
#[derive(Default)]
pub(crate) struct Measured {
    /// Since when, in milliseconds since 1970.
    pub(crate) since: u64,
    pub(crate) routes: Vec<MeasuredRoute>,
    /// The names of the plugins in causes.
    pub(crate) entities: Arc<Entities>,
}

/// A route and what was counted of it. Requests without a route have empty names; routes beyond the limit are `others`.
pub(crate) struct MeasuredRoute {
    pub(crate) service: String,
    pub(crate) route: String,
    pub(crate) aggregate: Aggregate,
}

impl Control {
    /// Lets plugins read the totals.
    pub(crate) fn provide_statistics(self: &Arc<Self>) {
        let control = Arc::downgrade(self);
        let read = move || {
            let totals = control.upgrade().map(|control| control.totals()).unwrap_or_default();
            ServedTotals {
                active: totals.connections as u64,
                accepted: totals.accepted,
                requests: totals.requests,
            }
        };
        self.retained().get::<NodeStatistics>().provide(read);
    }

    /// The metrics, in Prometheus' text format. Takes long where there are many routes.
    pub(crate) fn metrics(&self) -> String {
        self.scrape(exposition) + &self.cluster.metrics(&self.settings)
    }

    /// The metrics in a format.
    pub(crate) fn metrics_as(&self, format: Format) -> Vec<u8> {
        match format {
            Format::Text => self.metrics().into_bytes(),
            Format::Protobuf => protobuf::encode(&self.metrics(), &self.measured().routes),
        }
    }

    /// What analytics have counted by route since the first call.
    pub(crate) fn measured(&self) -> Measured {
        let configuration = self.registry.configuration();
        let document = &configuration.document;
        let names = Names::of(document);
        let services: HashMap<_, _> = document.routes.iter().map(|route| (route.id, route.service)).collect();
        let labels = |route: Entity, entities: &Entities| {
            let name = match entities.name(route) {
                None if route.id == NONE => return Some((String::new(), String::new())),
                None => return Some((String::new(), "others".to_owned())),
                Some(name) => name.parse().ok()?,
            };
            let service = services.get(&name)?.and_then(|service| names.get(service));
            Some((service.unwrap_or_default().to_owned(), names.get(name)?.to_owned()))
        };
        let read = |totals: &Totals, entities: &Arc<Entities>| {
            let of_route = |(route, aggregate): (Entity, &Aggregate)| {
                let (service, route) = labels(route, entities)?;
                Some(MeasuredRoute { service, route, aggregate: aggregate.clone() })
            };
            let routes = totals.routes().filter_map(of_route).collect();
            Measured { since: totals.since, routes, entities: entities.clone() }
        };
        self.analytics().and_then(|analytics| analytics.totals(read)).unwrap_or_default()
    }

    /// Renders metrics from the counters and the state of the node.
    pub(crate) fn scrape(&self, render: impl FnOnce(&Retained, &NodeFacts<'_>) -> String) -> String {
        let totals = self.totals();
        let weir_proxy::Totals { connections, accepted, sessions, sessions_accepted, .. } = totals;
        let streams = Connections::of(sessions_accepted, sessions);
        let configuration = self.registry.configuration();
        let document = &configuration.document;
        let costs = self.costs();
        let lua = LuaMemory::of(self.retained());
        let shared_dicts: Vec<_> = lua.dicts.into_iter().map(shared_store).collect();
        let node = NodeFacts {
            node_id: &self.node_id,
            version: env!("CARGO_PKG_VERSION"),
            process: process(self.started),
            connections: Connections::of(accepted - sessions_accepted, connections.saturating_sub(sessions)),
            streams: (!self.settings.stream_listen.0.is_empty()).then_some(streams),
            total_requests: totals.requests,
            http2_requests: totals.http2_requests,
            http3_requests: totals.http3_requests,
            datastore_reachable: self.registry.is_reachable(),
            document,
            costs: &costs,
            retries: &self.retries(),
            limits: &self.plane.proxy.limits(),
            upstream_loads: &self.upstream_loads(),
            ejected_targets: &ejected_targets(&self.plane.compiler.retained, document),
            worker_cpu: self.worker_cpu(),
            body_memory_usage: self.plane.proxy.body_memory_usage(),
            lost_log_lines: self.access_logs().map(|(name, log)| (name, log.dropped())),
            targets: &targets(&self.plane.compiler.retained, document),
            lua_vms_bytes: lua.vms.iter().sum(),
            shared_dicts: &shared_dicts,
        };
        render(&self.plane.compiler.retained, &node)
    }

    /// What the limits of upstreams count.
    fn upstream_loads(&self) -> Vec<UpstreamLoad> {
        let counts = self.plane.compiler.retained.get::<UpstreamLimits>().counts();
        let row = |LimitCounts { upstream, limit, in_flight, waiting, shed }| {
            let shed = Vec::from(shed);
            UpstreamLoad { upstream, limit, in_flight, waiting, shed }
        };
        counts.into_iter().map(row).collect()
    }

    /// Requests that were sent again, by upstream.
    fn retries(&self) -> Vec<UpstreamRetries> {
        let counts = self.plane.compiler.retained.get::<RetryBudgets>().counts();
        let row =
            |RetryCounts { upstream, retries, exhausted }| UpstreamRetries { upstream, retries, exhausted };
        counts.into_iter().map(row).collect()
    }
}

fn shared_store(DictMemory { name, capacity, used }: DictMemory) -> SharedStore {
    SharedStore { name, bytes: used, max_bytes: capacity }
}

/// The health of every known address of every target.
fn targets(retained: &Retained, document: &Document) -> Vec<TargetHealth> {
    let upstreams: HashMap<_, _> =
        document.upstreams.iter().map(|upstream| (upstream.id, upstream)).collect();
    let of_target = |target: &Arc<Target>| {
        let upstream = *upstreams.get(&target.upstream)?;
        let health = |address, state| TargetHealth {
            upstream: upstream.name.clone(),
            target: target.target.clone(),
            address,
            state,
        };
        Some(match health::are_used(upstream) && !target.is_socket() {
            false => {
                let address = target.target.parse::<SocketAddr>().map(|address| address.to_string());
                vec![health(address.unwrap_or_default(), TargetState::HealthchecksOff)]
            }
            true => match health::standing(&retained.get(), &upstream.name, &target.target).addresses {
                none if none.is_empty() => vec![health(String::new(), TargetState::DnsError)],
                addresses => {
                    addresses.iter().map(|it| health(it.address.to_string(), state(it.is_healthy))).collect()
                }
            },
        })
    };
    document.targets.iter().filter_map(of_target).flatten().collect()
}

/// The targets of upstreams that eject targets.
fn ejected_targets(retained: &Retained, document: &Document) -> Vec<EjectedTarget> {
    let upstreams = document.upstreams.iter().filter(|upstream| OutlierPolicy::of(&upstream.tags).is_some());
    let upstreams: HashMap<_, _> = upstreams.map(|upstream| (upstream.id, upstream)).collect();
    if upstreams.is_empty() {
        return Vec::new();
    }
    let of_target = |target: &Arc<Target>| {
        let upstream = &upstreams.get(&target.upstream)?.name;
        let (is_ejected, ejections) = health::ejections(&retained.get(), upstream, &target.target);
        let (upstream, target) = (upstream.clone(), target.target.clone());
        Some(EjectedTarget { upstream, target, is_ejected, ejections: Vec::from(ejections) })
    };
    document.targets.iter().filter_map(of_target).collect()
}

fn state(healthy: bool) -> TargetState {
    if healthy { TargetState::Healthy } else { TargetState::Unhealthy }
}
