//! The compiled configuration: immutable; each request takes it once and keeps it to its end.

mod asked;
pub(crate) mod chain;
mod check;
mod compile;
mod groups;
mod instances;
mod last;
mod scopes;
mod services;
mod stream_route;
mod stream_router;
mod streams;
#[cfg(test)]
mod tests;
mod users;
mod watched;

use asked::Asked;
use chain::Chain;
use std::ops::Deref;
use std::sync::Arc;
use weir_model::entity::{self, Protocol};
use weir_net::tls::Certificates;
use weir_plugin::engine::{PluginInstances, Routes};
use weir_plugin::{Consumer, Definition, Route, Service};
use weir_router::Router;
use weir_upstream::balance::Balancer;
use weir_upstream::endpoint::Endpoint;
use weir_upstream::health::MonitoredUpstream;
use weir_upstream::retry_budget::RetryBudget;

pub use compile::{CompileError, Compiler};
pub(crate) use stream_route::{StreamRoute, Streams};
pub(crate) use stream_router::{Query, StreamRouter, Transport};

/// The compiled configuration.
pub struct Snapshot {
    pub(crate) router: Arc<Router>,
    pub(crate) routes: Arc<[Arc<CompiledRoute>]>,
    /// The routes of stream listeners.
    pub(crate) streams: Arc<Streams>,
    pub(crate) consumers: Arc<[Consumer]>,
    /// The plugins of no route: global ones see requests that matched nothing.
    pub(crate) global: Chain,
    /// Handed to the TLS listeners when the snapshot is published.
    pub(crate) certificates: Arc<Certificates>,
    /// The upstreams whose targets' health is watched.
    pub(crate) watched: Vec<Arc<MonitoredUpstream>>,
    /// Which clients are asked for certificates.
    pub(crate) asked: Arc<Asked>,
    /// The plugins that there are, configured or not.
    pub(crate) definitions: &'static [Definition],
    /// The instances of those that want to know of them on each worker.
    pub(crate) instances: Arc<PluginInstances>,
}

impl Snapshot {
    /// One that holds nothing but the default certificate.
    pub(crate) fn without_entities(&self) -> Self {
        Self {
            router: Arc::default(),
            routes: Arc::new([]),
            streams: Arc::default(),
            consumers: Arc::new([]),
            global: Chain::default(),
            certificates: Arc::new(self.certificates.none()),
            watched: Vec::new(),
            asked: Arc::default(),
            definitions: self.definitions,
            instances: self.instances.clone(),
        }
    }
}

impl Routes for Snapshot {
    fn route(&self, index: u32) -> Option<&Route> {
        self.routes.get(index as usize).map(|route| &route.view)
    }
}

/// A route, its service and its plugins.
pub(crate) struct CompiledRoute {
    /// What plugins see of it.
    pub(crate) view: Route,
    /// Where it leads; none must be answered by a plugin.
    pub(crate) service: Option<Arc<CompiledService>>,
    pub(crate) chain: Chain,
    pub(crate) http: bool,
    pub(crate) https: bool,
    /// Whether it serves gRPC, and nothing else.
    pub(crate) grpc: bool,
}

impl Deref for CompiledRoute {
    type Target = Route;

    fn deref(&self) -> &Route {
        &self.view
    }
}

/// A service, and how to reach it.
pub(crate) struct CompiledService {
    /// The service as configured.
    pub(crate) entity: Arc<entity::Service>,
    /// What plugins see of it.
    pub(crate) view: Arc<Service>,
    pub(crate) destination: Destination,
    /// How many retries there are, shared by all services that lead to the same upstream.
    pub(crate) retry_budget: Arc<RetryBudget>,
}

impl CompiledService {
    /// Its name, or its id.
    pub(crate) fn label(&self) -> &str {
        self.entity.name.as_deref().unwrap_or(&self.view.id_text)
    }

    /// Whether it speaks gRPC.
    pub(crate) fn is_grpc(&self) -> bool {
        matches!(self.entity.protocol, Protocol::Grpc | Protocol::Grpcs)
    }

    /// Whether TLS is spoken to it.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self.entity.protocol, Protocol::Https | Protocol::Grpcs)
    }
}

/// Where a service's `host` leads.
pub(crate) enum Destination {
    /// To a host of that name or address.
    Host(Endpoint),
    /// To the targets of the upstream of that name.
    Upstream(Arc<Balancer>),
}
