//! The stream routes of a document.

use super::compile::Compilation;
use super::last::{LastParts, Plugins};
use super::numbers::route_number;
use super::services::Services;
use super::{StreamRoute, Streams};
use crate::recording::Recording;
use std::sync::Arc;
use weir_model::entity::Route;
use weir_plugin as plugin;

impl Compilation<'_> {
    /// With what is unchanged of the last.
    pub(super) fn streams(
        &self,
        last: &mut LastParts,
        services: &Services,
        plugins: &Arc<Plugins>,
    ) -> Option<Streams> {
        let served: Vec<&Arc<Route>> = self.served(services).filter(|route| is_stream(route)).collect();
        let router = match last.stream_router(&served) {
            Some(router) => router,
            None => Arc::new(self.stream_router(&served, &mut last.patterns)?),
        };
        let recording = self.compiler.retained.get::<Recording>();
        let mut known = last.stream_routes(plugins);
        let compiled = served.into_iter().map(|route| {
            let service = route.service.and_then(|id| services.get(id));
            known.take(route, service).unwrap_or_else(|| {
                let view = plugin::Route::new(route.clone(), service.map(|service| service.view.clone()));
                Arc::new(StreamRoute {
                    number: recording.entities().map_or(0, |entities| route_number(entities, &view)),
                    view: Arc::new(view),
                    service: service.cloned(),
                    chain: plugins.scopes.chain(Some(route.id), route.service),
                })
            })
        });
        let routes: Vec<Arc<StreamRoute>> = compiled.collect();
        let any_passthrough = routes.iter().any(|route| route.is_passthrough());
        Some(Streams { router, routes, any_passthrough })
    }
}

/// Protocols of one route come from one family.
pub(super) fn is_stream(route: &Route) -> bool {
    route.protocols.iter().any(|protocol| protocol.is_stream())
}
