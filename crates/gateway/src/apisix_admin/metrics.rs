//! The metrics as APISIX names them: routes, services and consumers by the ids that its clients gave them.
use crate::apisix::object::{Key, Kind};
use crate::control::Control;
use std::collections::HashMap;
use weir_model::{Document, Uuid};
use weir_plugins::prometheus::apisix_exposition;

/// Everything there is to scrape. Takes long where there are many routes.
pub(super) fn render(control: &Control) -> String {
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    control.scrape(|retained, node| apisix_exposition(retained, node, hostname.trim(), names(node.document)))
}

/// The names that clients of APISIX gave their objects. The service of a route's own upstream has none.
fn names(document: &Document) -> HashMap<Uuid, String> {
    let routes = document.routes.iter().map(|route| (route.id, &route.tags));
    let services = document.services.iter().map(|service| (service.id, &service.tags));
    let named = |(id, tags): (Uuid, &Option<Vec<String>>), kind: Kind| {
        let key = tags.iter().flatten().find_map(|tag| Key::from_tag(tag))?;
        Some((id, if key.kind == kind { key.id } else { String::new() }))
    };
    let routes = routes.filter_map(|route| named(route, Kind::Routes));
    routes.chain(services.filter_map(|service| named(service, Kind::Services))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_model::ReadOptions;
    use weir_model::entity::{Entity, EntityKind};

    #[test]
    fn what_apisixs_clients_made_has_their_names() {
        let mut document = Document::default();
        let mut add = |kind, number: u128, tag: &str, mut entity: serde_json::Value| {
            entity["tags"] = json!([tag]);
            let reading = ReadOptions { plugins: &[], references: &(), hash_passwords: false };
            let id = Uuid::from_u128(number);
            document.push(Entity::read(kind, &entity, &[("id", id)], reading).unwrap());
            id
        };
        let route = add(EntityKind::Routes, 1, "apisix:routes:r", json!({ "paths": ["/"] }));
        let kongs = add(EntityKind::Routes, 2, "other", json!({ "paths": ["/"] }));
        let service = add(EntityKind::Services, 3, "apisix:services:s", json!({ "host": "a" }));
        let inline = add(EntityKind::Services, 4, "apisix:routes:r", json!({ "host": "a" }));
        let names = names(&document);
        let of = |id| names.get(&id).map(String::as_str);
        assert_eq!([route, kongs, service, inline].map(of), [Some("r"), None, Some("s"), Some("")]);
    }
}
