//! Limits of services that have no effect, because the upstream has its own.
use crate::document::Document;
use crate::entity::EntityKind;
use crate::entity_error::{EntityError, EntityWarning};
use crate::schema::quoted;
use crate::tags::limits;
use std::collections::HashSet;

/// Warnings about tags that limit requests on services whose host names an upstream entity: the tags of that hold.
pub(crate) fn limits_of_services(document: &Document) -> Vec<EntityWarning> {
    let upstreams: HashSet<&str> = document.upstreams.iter().map(|upstream| upstream.name.as_str()).collect();
    let balanced = document.services.iter().enumerate();
    let balanced = balanced.filter(|(_, service)| upstreams.contains(service.host.as_str()));
    let found = balanced.flat_map(|(index, service)| {
        limits(&service.tags).map(move |tag| {
            let message = format!(
                "the tag `{}` has no effect, because the service leads to the upstream `{}`; move it to that",
                quoted(tag),
                quoted(&service.host)
            );
            EntityError::new((EntityKind::Services, index), "tags", message)
        })
    });
    found.collect()
}
