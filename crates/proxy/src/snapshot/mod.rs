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
use weir_plugin::engine::Routes;
use weir_plugin::{Consumer, Route, Service};
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
    pub(crate) routes: Arc<[CompiledRoute]>,
    /// The routes of stream listeners.
    pub(crate) streams: Arc<Streams>,
    pub(crate) consumers: Arc<[Consumer]>,
    /// The plugins of no route: global ones see requests that matched nothing.
    pub(crate) global: Arc<Chain>,
    /// Handed to the TLS listeners when the snapshot is published.
    pub(crate) certificates: Arc<Certificates>,
    /// The upstreams whose targets' health is watched.
    pub(crate) watched: Vec<Arc<MonitoredUpstream>>,
    /// Which clients are asked for certificates.
    pub(crate) asked: Arc<Asked>,
}

impl Snapshot {
    /// One that holds nothing but the default certificate.
    pub(crate) fn without_entities(&self) -> Self {
        Self {
            router: Arc::default(),
            routes: Arc::new([]),
            streams: Arc::default(),
            consumers: Arc::new([]),
            global: Arc::default(),
            certificates: Arc::new(self.certificates.none()),
            watched: Vec::new(),
            asked: Arc::default(),
        }
    }
}

impl Routes for Snapshot {
    fn route(&self, index: u32) -> Option<&Route> {
        self.routes.get(index as usize).map(|route| &*route.view)
    }
}

/// A route, its service and its plugins: what every request reads of it is in one cache line. Of many routes, the one that
/// a request takes is in no cache.
#[derive(Clone)]
#[repr(align(32))]
pub(crate) struct CompiledRoute {
    /// Where it leads; none must be answered by a plugin.
    pub(crate) service: Option<Arc<CompiledService>>,
    pub(crate) http: bool,
    pub(crate) https: bool,
    /// Whether it serves gRPC, and nothing else.
    pub(crate) grpc: bool,
    /// As configured, like the three below.
    pub(crate) strips_path: bool,
    pub(crate) preserve_host: bool,
    pub(crate) request_buffering: bool,
    pub(crate) response_buffering: bool,
    /// Shared by all routes that have the same plugins.
    pub(crate) chain: Arc<Chain>,
    /// What plugins see of it.
    pub(crate) view: Arc<Route>,
}

const _: () = assert!(size_of::<CompiledRoute>() == 32);

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
