//! What was compiled last. Documents share the entities that did not change, so that lists of the same ones are known by
//! their addresses, and what was compiled from them is used again.

use super::asked::Asked;
use super::instances::Instances;
use super::numbers::Numbers;
use super::scopes::Scopes;
use super::services::Services;
use super::users::Users;
use super::{CompiledRoute, CompiledService, Snapshot};
use super::{StreamRoute, StreamRouter, Streams};
use std::sync::{Arc, Mutex};
use weir_model::entity;
use weir_model::{Document, Uuid};
use weir_net::tls::Certificates;
use weir_plugin::Definition;
use weir_plugin::engine::PluginInstances;
use weir_router::{Patterns, Router, are_alike};
use weir_upstream::health::MonitoredUpstream;

/// Retained from one compilation to the next.
#[derive(Default)]
pub(super) struct Last(pub(super) Mutex<LastParts>);

/// The parts of the last snapshot that could be compiled.
#[derive(Default)]
pub(super) struct LastParts {
    pub(super) parts: Option<Parts>,
    pub(super) instances: Instances,
    pub(super) patterns: Patterns,
}

/// What a snapshot is made of.
pub(super) struct Parts {
    pub(super) identities: Arc<Identities>,
    pub(super) services: Arc<Services>,
    pub(super) users: Arc<Users>,
    pub(super) plugins: Arc<Plugins>,
    pub(super) routes: Arc<[CompiledRoute]>,
    pub(super) router: Arc<Router>,
    pub(super) streams: Arc<Streams>,
    pub(super) asked: Arc<Asked>,
    pub(super) watched: Vec<Arc<MonitoredUpstream>>,
    pub(super) numbers: Arc<Numbers>,
}

/// Certificates, and what they were compiled from.
pub(super) struct Identities {
    pub(super) certificates: Arc<Certificates>,
    pub(super) of: (Vec<Arc<entity::Certificate>>, Vec<Arc<entity::Sni>>),
}

impl Identities {
    /// Whether what upstreams are shown is the same, whatever names clients may ask for.
    pub(super) fn have_the_certificates_of(&self, other: &Identities) -> bool {
        same(&self.of.0, &other.of.0)
    }
}

/// Plugins, and what they were compiled from beside users.
pub(super) struct Plugins {
    pub(super) scopes: Scopes,
    pub(super) definitions: &'static [Definition],
    /// Those of last time, as long as neither these nor any plugin changes.
    pub(super) instances: Arc<PluginInstances>,
    pub(super) of: (Vec<Arc<entity::Plugin>>, Vec<Arc<entity::CaCertificate>>),
    /// Those that cannot be built with their secrets: a line each.
    pub(super) unusable: Vec<String>,
}

impl Plugins {
    fn entity(&self, id: Uuid) -> Option<Arc<entity::Plugin>> {
        self.of.0.iter().find(|plugin| plugin.id == id).cloned()
    }
}

/// Whether these are the same entities.
pub(super) fn same<T>(a: &[Arc<T>], b: &[Arc<T>]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
}

impl LastParts {
    /// Makes a snapshot of the parts, which will be the last.
    pub(super) fn keep(&mut self, parts: Parts) -> Snapshot {
        let global = parts.plugins.scopes.chain(None, None);
        let handshake: Vec<_> = global.of_handshakes().cloned().collect();
        let handshake_of =
            handshake.iter().filter_map(|instance| parts.plugins.entity(instance.id)).collect();
        let snapshot = Snapshot {
            router: parts.router.clone(),
            routes: parts.routes.clone(),
            streams: parts.streams.clone(),
            consumers: parts.users.consumers.clone(),
            users: parts.users.clone(),
            upstreams: parts.services.balanced.clone(),
            handshake,
            handshake_of,
            handshake_generation: 0,
            global,
            certificates: parts.identities.certificates.clone(),
            asked: parts.asked.clone(),
            definitions: parts.plugins.definitions,
            instances: parts.plugins.instances.clone(),
            watched: parts.watched.clone(),
            numbers: parts.numbers.clone(),
            unusable: [parts.identities.certificates.unusable(), &parts.plugins.unusable].concat(),
        };
        self.parts = Some(parts);
        snapshot
    }

    pub(super) fn users(&self, document: &Document) -> Arc<Users> {
        let known = self.parts.as_ref().map(|parts| &parts.users).filter(|users| users.are_of(document));
        known.cloned().unwrap_or_else(|| Arc::new(Users::new(document)))
    }

    pub(super) fn identities(&self, document: &Document) -> Option<Arc<Identities>> {
        let known = &self.parts.as_ref()?.identities;
        let (certificates, snis) = &known.of;
        let unchanged = same(certificates, &document.certificates) && same(snis, &document.snis);
        unchanged.then(|| known.clone())
    }

    pub(super) fn services(
        &self,
        document: &Document,
        identities: &Arc<Identities>,
    ) -> Option<Arc<Services>> {
        let known = &self.parts.as_ref()?.services;
        known.are_of(document, identities).then(|| known.clone())
    }

    pub(super) fn plugins(&self, document: &Document, users: &Arc<Users>) -> Option<Arc<Plugins>> {
        let parts = self.parts.as_ref()?;
        let (plugins, authorities) = &parts.plugins.of;
        let unchanged = Arc::ptr_eq(&parts.users, users)
            && same(plugins, &document.plugins)
            && same(authorities, &document.ca_certificates);
        unchanged.then(|| parts.plugins.clone())
    }

    /// The router, where these routes ask for what those before them asked for.
    pub(super) fn router(&self, routes: &[&Arc<entity::Route>]) -> Option<Arc<Router>> {
        let parts = self.parts.as_ref()?;
        let alike = |(last, route): (&CompiledRoute, &&Arc<entity::Route>)| {
            Arc::ptr_eq(&last.entity, route) || are_alike(&last.entity, route)
        };
        let unchanged = parts.routes.len() == routes.len() && parts.routes.iter().zip(routes).all(alike);
        unchanged.then(|| parts.router.clone())
    }

    /// The router of streams, where these routes ask for what those before them asked for, of the same protocols.
    pub(super) fn stream_router(&self, routes: &[&Arc<entity::Route>]) -> Option<Arc<StreamRouter>> {
        let streams = &self.parts.as_ref()?.streams;
        let alike = |(last, route): (&Arc<StreamRoute>, &&Arc<entity::Route>)| {
            let last = &last.entity;
            Arc::ptr_eq(last, route) || (last.protocols == route.protocols && are_alike(last, route))
        };
        let unchanged = streams.routes.len() == routes.len() && streams.routes.iter().zip(routes).all(alike);
        unchanged.then(|| streams.router.clone())
    }

    /// The routes, where they have the same plugins.
    pub(super) fn routes(&self, plugins: &Arc<Plugins>) -> KnownRoutes<'_, CompiledRoute> {
        KnownRoutes(self.with_the_same(plugins).map_or(&[], |parts| &parts.routes))
    }

    /// The stream routes, likewise.
    pub(super) fn stream_routes(&self, plugins: &Arc<Plugins>) -> KnownRoutes<'_, Arc<StreamRoute>> {
        KnownRoutes(self.with_the_same(plugins).map_or(&[], |parts| &parts.streams.routes))
    }

    fn with_the_same(&self, plugins: &Arc<Plugins>) -> Option<&Parts> {
        self.parts.as_ref().filter(|parts| Arc::ptr_eq(&parts.plugins, plugins))
    }
}

/// A route, of whatever traffic.
pub(super) trait Leading {
    fn entity(&self) -> &Arc<entity::Route>;
    fn service(&self) -> Option<&Arc<CompiledService>>;
}

impl Leading for CompiledRoute {
    fn entity(&self) -> &Arc<entity::Route> {
        &self.view.entity
    }

    fn service(&self) -> Option<&Arc<CompiledService>> {
        self.service.as_ref()
    }
}

impl Leading for Arc<StreamRoute> {
    fn entity(&self) -> &Arc<entity::Route> {
        &self.view.entity
    }

    fn service(&self) -> Option<&Arc<CompiledService>> {
        self.service.as_ref()
    }
}

/// Routes that were compiled last, to be asked for in the order of ids: that of documents from a store.
pub(super) struct KnownRoutes<'l, R>(&'l [R]);

impl<R: Leading + Clone> KnownRoutes<'_, R> {
    /// The compiled route, if neither it nor its service has changed.
    pub(super) fn take(
        &mut self,
        route: &Arc<entity::Route>,
        service: Option<&Arc<CompiledService>>,
    ) -> Option<R> {
        while let [first, rest @ ..] = self.0
            && first.entity().id < route.id
        {
            self.0 = rest;
        }
        let known = self.0.first().filter(|known| Arc::ptr_eq(known.entity(), route))?;
        let unchanged = match (known.service(), service) {
            (Some(known), Some(service)) => Arc::ptr_eq(known, service),
            (known, service) => known.is_none() && service.is_none(),
        };
        unchanged.then(|| known.clone())
    }
}
