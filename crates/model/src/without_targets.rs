//! Services whose upstream has no target that gets requests.
use crate::document::Document;
use crate::entity::EntityKind;
use crate::entity_error::{EntityError, EntityWarning};
use crate::schema::quoted;
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

/// Warnings about services that no request gets through, because their upstream has no targets, or none with a weight.
pub(crate) fn without_targets(document: &Document) -> Vec<EntityWarning> {
    let of_targets = |least: u16| -> HashSet<Uuid> {
        let targets = document.targets.iter().filter(|target| target.weight >= least);
        targets.map(|target| target.upstream).collect()
    };
    let (with_any, with_weight) = (of_targets(0), of_targets(1));
    let empty = document.upstreams.iter().filter(|upstream| !with_weight.contains(&upstream.id));
    let empty: HashMap<&str, bool> =
        empty.map(|upstream| (upstream.name.as_str(), with_any.contains(&upstream.id))).collect();
    let mut found = Vec::new();
    for (index, service) in document.services.iter().enumerate() {
        let Some(has_some) = empty.get(service.host.as_str()) else { continue };
        let name = quoted(&service.host);
        let message = match has_some {
            true => format!(
                "all targets of the upstream `{name}` have the weight 0, so that no request gets there; give one a greater \
                 `weight`"
            ),
            false => format!(
                "the upstream `{name}` has no targets, so that no request gets there; add one with POST \
                 /upstreams/{name}/targets, in `targets` of a file, or in `nodes` of APISIX"
            ),
        };
        found.push(EntityError::new((EntityKind::Services, index), "host", message));
    }
    found
}
