//! What plugins see of the configuration: routes, services, consumers.

use super::body_memory::WorkerBodyMemory;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use weir_model::Uuid;
use weir_model::entity;
use weir_model::schema::{Json, Record};

/// Every entity is in the one workspace, which has this id where Kong has no database.
pub const WORKSPACE: &str = "0dc6f45b-8f8d-40d2-a504-473544ee190b";

/// What exchanges of one worker see of the snapshot that they began with.
pub struct Configuration {
    entities: Arc<dyn Entities>,
    consumers: Arc<[Consumer]>,
    pub(super) bodies: Rc<WorkerBodyMemory>,
    trusted: Rc<TrustedIps>,
}

/// Whether `trusted_ips` holds an address.
pub type TrustedIps = dyn Fn(IpAddr) -> bool;

/// The entities of a snapshot.
pub trait Entities: Send + Sync {
    /// The route at this place.
    fn route(&self, index: u32) -> Option<&Route>;
    /// Where the consumer of this id stands.
    fn consumer(&self, id: Uuid) -> Option<ConsumerIndex>;
    /// Where the consumer of this username stands.
    fn consumer_by_username(&self, username: &str) -> Option<ConsumerIndex>;
    /// Whether there is an upstream of this name.
    fn has_upstream(&self, name: &str) -> bool;
}

impl Configuration {
    /// Of these entities; `bodies` is where the worker takes memory for bodies that plugins read.
    pub fn new(
        entities: Arc<dyn Entities>,
        consumers: Arc<[Consumer]>,
        bodies: Rc<WorkerBodyMemory>,
        trusted: Rc<TrustedIps>,
    ) -> Self {
        Self { entities, consumers, bodies, trusted }
    }

    pub(super) fn is_trusted(&self, ip: IpAddr) -> bool {
        (self.trusted)(ip)
    }

    pub(super) fn find_consumer(&self, id: Uuid) -> Option<ConsumerIndex> {
        self.entities.consumer(id)
    }

    pub(super) fn has_upstream(&self, name: &str) -> bool {
        self.entities.has_upstream(name)
    }

    pub(super) fn find_consumer_by_username(&self, username: &str) -> Option<ConsumerIndex> {
        self.entities.consumer_by_username(username)
    }

    pub(super) fn route(&self, index: u32) -> Option<&Route> {
        self.entities.route(index)
    }

    pub(super) fn consumer(&self, ConsumerIndex(index): ConsumerIndex) -> Option<&Consumer> {
        self.consumers.get(index as usize)
    }
}

/// Where a consumer stands in the snapshot's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConsumerIndex(pub u32);

/// Where a consumer group stands in the snapshot: in the order of their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupIndex(pub u32);

/// A route.
pub struct Route {
    /// The route as configured.
    pub entity: Arc<entity::Route>,
    /// Its id, as text.
    pub id_text: Box<str>,
    /// Where it leads; none must be answered by a plugin.
    pub service: Option<Arc<Service>>,
    json: EntityJson,
}

impl Route {
    /// The route of this entity, to this service.
    pub fn new(entity: Arc<entity::Route>, service: Option<Arc<Service>>) -> Self {
        Self { id_text: text(entity.id), entity, service, json: EntityJson::default() }
    }

    /// The route as JSON without what is unset, as log plugins show it.
    pub fn json(&self) -> &str {
        self.json.in_workspace(&*self.entity)
    }
}

/// A service.
pub struct Service {
    /// The service as configured.
    pub entity: Arc<entity::Service>,
    /// Its id, as text.
    pub id_text: Box<str>,
    json: EntityJson,
}

impl Service {
    /// The service of this entity.
    pub fn new(entity: Arc<entity::Service>) -> Self {
        Self { id_text: text(entity.id), entity, json: EntityJson::default() }
    }

    /// The service as JSON without what is unset, as log plugins show it.
    pub fn json(&self) -> &str {
        self.json.in_workspace(&*self.entity)
    }
}

/// A consumer.
pub struct Consumer {
    /// The consumer as configured.
    pub entity: Arc<entity::Consumer>,
    /// Its id, as text.
    pub id_text: Box<str>,
    groups: Box<[GroupIndex]>,
    json: EntityJson,
}

impl Consumer {
    /// The consumer of this entity, and the consumer groups that it is in, in the order of their names.
    pub fn new(entity: Arc<entity::Consumer>, groups: Box<[GroupIndex]>) -> Self {
        Self { id_text: text(entity.id), entity, groups, json: EntityJson::default() }
    }

    /// The consumer groups that it is in, in the order of their names.
    pub fn groups(&self) -> &[GroupIndex] {
        &self.groups
    }

    /// The consumer as JSON without what is unset, as log plugins show it.
    pub fn json(&self) -> &str {
        self.json.of(&*self.entity)
    }
}

/// An entity as JSON without what is unset, written when first asked for.
#[derive(Default)]
struct EntityJson(OnceLock<Box<str>>);

impl EntityJson {
    fn of<T: Record>(&self, entity: &T) -> &str {
        self.0.get_or_init(|| written(entity, None))
    }

    /// The same with its workspace, which Kong's records tell of routes and services, not of consumers.
    fn in_workspace<T: Record>(&self, entity: &T) -> &str {
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

fn text(id: Uuid) -> Box<str> {
    id.to_string().into()
}
