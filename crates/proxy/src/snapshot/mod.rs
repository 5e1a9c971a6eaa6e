//! The configuration in force, compiled: immutable, taken once by each request and kept to its end.

mod check;
mod compile;
mod instances;
mod scopes;
#[cfg(test)]
mod tests;

use crate::chain::Chain;
use crate::route::Router;
use crate::tls::{Asked, Certificates};
use crate::upstream::balance::Balancer;
use crate::upstream::endpoint::Endpoint;
use std::ops::Deref;
use std::sync::Arc;
use weir_model::entity::{self, Protocol};

pub use compile::{CompileError, Compiler};

/// The configuration in force, compiled.
pub struct Snapshot {
    pub(crate) router: Router,
    pub(crate) routes: Vec<CompiledRoute>,
    pub(crate) consumers: Vec<Consumer>,
    /// The plugins of no route: global ones see requests that matched nothing.
    pub(crate) global: Chain,
    /// Handed to the TLS listeners when the snapshot is published.
    pub(crate) certificates: Arc<Certificates>,
    /// Which clients are asked for certificates.
    pub(crate) asked: Asked,
}

impl Snapshot {
    /// One that holds nothing but the default certificate.
    pub(crate) fn without_entities(&self) -> Self {
        Self {
            router: Router::default(),
            routes: Vec::new(),
            consumers: Vec::new(),
            global: Chain::default(),
            certificates: Arc::new(self.certificates.none()),
            asked: Asked::default(),
        }
    }
}

/// A worker's hold on the snapshot: its requests count their references to it without touching memory that other workers
/// touch.
pub(crate) struct Held(pub(crate) Arc<Snapshot>);

impl Deref for Held {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.0
    }
}

/// A route, its service and its plugins.
pub struct CompiledRoute {
    /// The route as configured.
    pub entity: Arc<entity::Route>,
    /// Its id, as text.
    pub id_text: Box<str>,
    /// Where it leads; none must be answered by a plugin.
    pub service: Option<Arc<CompiledService>>,
    pub(crate) chain: Chain,
    pub(crate) http: bool,
    pub(crate) https: bool,
    /// Whether it serves gRPC, and nothing else.
    pub(crate) grpc: bool,
}

/// A service, and how to reach it.
pub struct CompiledService {
    /// The service as configured.
    pub entity: Arc<entity::Service>,
    /// Its id, as text.
    pub id_text: Box<str>,
    pub(crate) destination: Destination,
}

impl CompiledService {
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

/// A consumer.
pub struct Consumer {
    /// The consumer as configured.
    pub entity: Arc<entity::Consumer>,
    /// Its id, as text.
    pub id_text: Box<str>,
}
