//! The numbers of a snapshot's entities in analytics.

use super::CompiledRoute;
use super::last::LastParts;
use super::users::Users;
use crate::recording::Recording;
use std::collections::HashMap;
use std::sync::Arc;
use weir_analytics::entities::{Entities, Kind, NONE};
use weir_plugin::{ConsumerIndex, Definition, Route};

/// The numbers of routes and consumers by their places in the snapshot, and of plugins by their names. Empty if nothing
/// is recorded.
#[derive(Default)]
pub(crate) struct Numbers {
    routes: Box<[u32]>,
    consumers: Arc<[u32]>,
    plugins: HashMap<&'static str, u16>,
}

impl Numbers {
    /// Interns what the last snapshot did not have at the same place.
    pub(super) fn new(
        recording: &Recording,
        last: &LastParts,
        (routes, users): (&[CompiledRoute], &Arc<Users>),
        plugins: &[Definition],
    ) -> Self {
        let Some(entities) = recording.entities() else { return Self::default() };
        let parts = last.parts.as_ref();
        let known = parts.map_or(&[][..], |parts| &parts.routes);
        let number = |(at, route): (usize, &CompiledRoute)| match known.get(at).zip(parts) {
            Some((known, parts)) if Arc::ptr_eq(&known.view, &route.view) => parts.numbers.routes[at],
            _ => route_number(entities, &route.view),
        };
        let same_users = parts.filter(|parts| Arc::ptr_eq(&parts.users, users));
        let consumer = |id: &str| entities.intern(Kind::Consumer, id);
        let plugin = |name| (name, entities.intern(Kind::Plugin, name) as u16);
        Self {
            routes: routes.iter().enumerate().map(number).collect(),
            consumers: same_users.map_or_else(
                || users.consumers.iter().map(|it| consumer(&it.id_text)).collect(),
                |parts| parts.numbers.consumers.clone(),
            ),
            plugins: plugins.iter().map(|definition| plugin(definition.name)).collect(),
        }
    }

    /// The number of the route at this place.
    #[inline]
    pub(crate) fn route(&self, index: Option<u32>) -> u32 {
        index.and_then(|index| self.routes.get(index as usize)).copied().unwrap_or(NONE)
    }

    /// The number of the consumer at this place.
    #[inline]
    pub(crate) fn consumer(&self, index: Option<ConsumerIndex>) -> u32 {
        index.and_then(|ConsumerIndex(index)| self.consumers.get(index as usize)).copied().unwrap_or(NONE)
    }

    /// The number of the plugin of this name.
    pub(crate) fn plugin(&self, name: &str) -> u16 {
        self.plugins.get(name).copied().unwrap_or_default()
    }
}

/// The number of a route, which counts for its service too.
pub(super) fn route_number(entities: &Entities, route: &Route) -> u32 {
    let service = route.service.as_ref().map_or(NONE, |it| entities.intern(Kind::Service, &it.id_text));
    entities.intern_route(&route.id_text, service)
}
