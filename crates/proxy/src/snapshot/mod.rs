//! The compiled configuration: immutable; each request takes it once and keeps it to its end.

mod asked;
pub(crate) mod chain;
mod check;
mod compile;
mod groups;
mod instances;
mod last;
mod numbers;
mod scopes;
mod services;
mod stream_route;
mod stream_router;
mod streams;
#[cfg(test)]
mod tests;
mod unusable;
pub(crate) mod upstreams;
mod users;
mod watched;

use asked::Asked;
use chain::{Chain, Instance};
use numbers::Numbers;
use std::ops::Deref;
use std::sync::Arc;
use upstreams::Upstreams;
use users::Users;
use weir_model::Uuid;
use weir_model::entity::{self, PathHandling, Protocol};
use weir_net::tls::Certificates;
use weir_plugin::engine::{Entities, PluginInstances};
use weir_plugin::{Consumer, ConsumerIndex, Definition, Route, Service};
use weir_router::Router;
use weir_upstream::balance::Balancer;
use weir_upstream::endpoint::Endpoint;
use weir_upstream::health::MonitoredUpstream;
use weir_upstream::limit::UpstreamLimit;
use weir_upstream::retry_budget::RetryBudget;

pub use compile::{CompileError, Compiler, UpstreamVerification};
pub(crate) use stream_route::{StreamRoute, Streams};
pub(crate) use stream_router::{Query, StreamRouter, Transport};

/// The compiled configuration.
pub struct Snapshot {
    pub(crate) router: Arc<Router>,
    pub(crate) routes: Arc<[CompiledRoute]>,
    /// The routes of stream listeners.
    pub(crate) streams: Arc<Streams>,
    pub(crate) consumers: Arc<[Consumer]>,
    users: Arc<Users>,
    /// What services may be balanced over.
    pub(crate) upstreams: Arc<Upstreams>,
    /// The plugins of no route: global ones see requests that matched nothing.
    pub(crate) global: Arc<Chain>,
    /// Global plugins that have a say in TLS handshakes.
    pub(crate) handshake: Vec<Instance>,
    /// The entities that configure these.
    handshake_of: Vec<Arc<entity::Plugin>>,
    /// By which what they decide differs from what others decided before: set when the snapshot is published.
    pub(crate) handshake_generation: u64,
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
    /// What analytics call routes and consumers.
    pub(crate) numbers: Arc<Numbers>,
    /// The certificates and plugins that cannot be used with the secrets that they refer to: a line each.
    pub unusable: Vec<String>,
}

impl Snapshot {
    /// One that holds nothing but the default certificate.
    pub(crate) fn without_entities(&self) -> Self {
        Self {
            router: Arc::default(),
            routes: Arc::new([]),
            streams: Arc::default(),
            consumers: Arc::new([]),
            users: Arc::default(),
            upstreams: Arc::default(),
            global: Arc::default(),
            handshake: Vec::new(),
            handshake_of: Vec::new(),
            handshake_generation: self.handshake_generation,
            certificates: Arc::new(self.certificates.none()),
            watched: Vec::new(),
            asked: Arc::default(),
            definitions: self.definitions,
            instances: self.instances.clone(),
            numbers: Arc::default(),
            unusable: Vec::new(),
        }
    }
}

impl Snapshot {
    /// Whether the same plugins, configured alike, decide on certificates. Their instances may be others, as after a declarative
    /// file was read again.
    pub(crate) fn decides_on_certificates_like(&self, other: &Self) -> bool {
        self.handshake_of == other.handshake_of
    }
}

impl Entities for Snapshot {
    fn route(&self, index: u32) -> Option<&Route> {
        self.routes.get(index as usize).map(|route| &*route.view)
    }

    fn consumer(&self, id: Uuid) -> Option<ConsumerIndex> {
        self.users.index.get(&id).copied()
    }

    fn consumer_by_username(&self, username: &str) -> Option<ConsumerIndex> {
        self.users.by_username(username)
    }

    fn has_upstream(&self, name: &str) -> bool {
        self.upstreams.contains(name)
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
    /// As configured in the flavor `traditional`, else v0.
    pub(crate) path_handling: PathHandling,
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
    /// The limits of the requests in flight, if there are any.
    pub(crate) limit: Option<Arc<UpstreamLimit>>,
    /// How many retries there are, shared by all services that lead to the same upstream.
    pub(crate) retry_budget: Arc<RetryBudget>,
    /// How TLS is spoken, or would be if a plugin asked for it. None for protocols that are not HTTP's.
    pub(crate) tls: Option<ServiceTls>,
}

/// How one service's connections are secured.
#[derive(Clone)]
pub(crate) struct ServiceTls {
    pub(crate) config: Arc<rustls::ClientConfig>,
    /// The same for services whose connections may be shared.
    pub(crate) profile: Arc<str>,
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
#[derive(Clone)]
pub(crate) enum Destination {
    /// To a host of that name or address.
    Host(Endpoint),
    /// To the targets of the upstream of that name.
    Upstream(Arc<Balancer>),
}
