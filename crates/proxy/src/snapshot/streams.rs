//! The stream routes of a document.

use super::CompiledService;
use super::compile::Compilation;
use super::scopes::Scopes;
use crate::stream::{StreamRoute, StreamRouter, Streams};
use std::collections::HashMap;
use std::sync::Arc;
use weir_model::Uuid;
use weir_model::entity::Route;

impl Compilation<'_> {
    pub(super) fn streams(
        &self,
        services: &HashMap<Uuid, Arc<CompiledService>>,
        plugins: &Scopes,
    ) -> Streams {
        let routes: Vec<&Arc<Route>> = self.served().filter(|route| is_stream(route)).collect();
        let bare: Vec<&Route> = routes.iter().map(|route| &***route).collect();
        let compiled = routes.iter().map(|route| {
            Arc::new(StreamRoute {
                entity: (*route).clone(),
                service: route.service.and_then(|id| services.get(&id).cloned()),
                chain: plugins.chain(Some(route.id), route.service),
            })
        });
        let routes: Vec<Arc<StreamRoute>> = compiled.collect();
        let any_passthrough = routes.iter().any(|route| route.is_passthrough());
        Streams { router: StreamRouter::build(&bare), routes, any_passthrough }
    }
}

/// Protocols of one route come from one family.
fn is_stream(route: &Route) -> bool {
    route.protocols.iter().any(|protocol| protocol.is_stream())
}
