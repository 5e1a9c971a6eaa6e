//! The configuration in force, compiled: immutable, taken once by each request and kept to its end.

mod check;
mod compile;
mod groups;
mod instances;
mod last;
#[cfg(test)]
mod precedence;
mod scopes;
mod services;
mod streams;
#[cfg(test)]
mod tests;
mod users;
mod watched;

use crate::chain::Chain;
use crate::costs::{Costs, Ledger};
use crate::plugin::body_memory::{BodyMemory, Share};
use crate::plugin::exchange::{GroupIndex, WORKSPACE};
use crate::stream::Streams;
use crate::tls::{Asked, Certificates};
use crate::upstream::balance::Balancer;
use crate::upstream::endpoint::Endpoint;
use crate::upstream::health::Watched;
use crate::upstream::retry_budget::RetryBudget;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use weir_model::entity::{self, Protocol};
use weir_model::schema::{Json, Record};
use weir_router::Router;

pub use compile::{CompileError, Compiler};

/// The configuration in force, compiled.
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
    pub(crate) watched: Vec<Arc<Watched>>,
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
            global: Chain::default(),
            certificates: Arc::new(self.certificates.none()),
            watched: Vec::new(),
            asked: Arc::default(),
        }
    }
}

/// A worker's hold on the snapshot: its requests count their references to it without touching memory that other workers
/// touch.
pub(crate) struct Held {
    snapshot: Arc<Snapshot>,
    /// Where the worker writes down what its plugins cost.
    pub(crate) ledger: Rc<Ledger>,
    /// Where it takes memory for bodies that plugins read.
    pub(crate) bodies: Rc<Share>,
}

impl Held {
    pub(crate) fn new(snapshot: Arc<Snapshot>, ledger: Rc<Ledger>, bodies: Rc<Share>) -> Self {
        Self { snapshot, ledger, bodies }
    }

    /// Held by nobody who serves: nothing is written down.
    pub(crate) fn apart(snapshot: Arc<Snapshot>) -> Self {
        let ledger = Ledger::new(Arc::new(Costs::new(1, 0)), 0);
        Self::new(snapshot, Rc::new(ledger), Rc::new(Share::new(Arc::new(BodyMemory::new(0, 1)), 0)))
    }
}

impl Deref for Held {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.snapshot
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
    pub(crate) json: EntityJson,
}

/// An entity as JSON without what is unset, written when first asked for.
#[derive(Default)]
pub(crate) struct EntityJson(OnceLock<Box<str>>);

impl EntityJson {
    pub(crate) fn of<T: Record>(&self, entity: &T) -> &str {
        self.0.get_or_init(|| written(entity, None))
    }

    /// The same with its workspace, which Kong's records tell of routes and services, not of consumers.
    pub(crate) fn in_workspace<T: Record>(&self, entity: &T) -> &str {
        self.0.get_or_init(|| written(entity, Some(("ws_id", WORKSPACE.into()))))
    }
}

fn written<T: Record>(entity: &T, more: Option<(&str, Json)>) -> Box<str> {
    let mut json = entity.to_value();
    if let Json::Object(members) = &mut json {
        members.retain(|_, value| !value.is_null());
        members.extend(more.map(|(name, value)| (name.to_owned(), value)));
        // As the Admin API shows them.
        for field in T::SCHEMA.fields.iter().filter(|field| field.foreign.is_some()) {
            if let Some(id @ Json::String(_)) = members.get_mut(field.name) {
                *id = serde_json::json!({ "id": id.take() });
            }
        }
    }
    json.to_string().into()
}

impl CompiledRoute {
    /// The route as JSON without what is unset, as log plugins show it.
    pub fn json(&self) -> &str {
        self.json.in_workspace(&*self.entity)
    }
}

/// A service, and how to reach it.
pub struct CompiledService {
    /// The service as configured.
    pub entity: Arc<entity::Service>,
    /// Its id, as text.
    pub id_text: Box<str>,
    pub(crate) destination: Destination,
    /// How many retries there are, shared by all services that lead to the same upstream.
    pub(crate) retry_budget: Arc<RetryBudget>,
    pub(crate) json: EntityJson,
}

impl CompiledService {
    /// The service as JSON without what is unset, as log plugins show it.
    pub fn json(&self) -> &str {
        self.json.in_workspace(&*self.entity)
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

/// A consumer.
pub struct Consumer {
    /// The consumer as configured.
    pub entity: Arc<entity::Consumer>,
    /// Its id, as text.
    pub id_text: Box<str>,
    /// The groups that it is in by its `acls`, in their order.
    pub acl_groups: Box<[Box<str>]>,
    /// The consumer groups that it is in, in the order of their names.
    pub(crate) groups: Box<[GroupIndex]>,
    pub(crate) json: EntityJson,
}

impl Consumer {
    /// The consumer as JSON without what is unset, as log plugins show it.
    pub fn json(&self) -> &str {
        self.json.of(&*self.entity)
    }
}
