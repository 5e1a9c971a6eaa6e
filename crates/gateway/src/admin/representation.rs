//! Entities as the Admin API shows them.
use super::collection::naming_fields;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;
use std::time::SystemTime;
use weir_model::Entities;
use weir_model::entity::{Entity, EntityKind};
use weir_model::schema::Json;

/// The fields of a route that need `router_flavor = expressions`.
pub(super) const EXPRESSION_FIELDS: [&str; 2] = ["expression", "priority"];

/// An entity, with the fields that come from other entities.
pub(super) struct Representation {
    entity: Entity,
    /// A certificate's server names.
    snis: Option<Vec<String>>,
}

impl Representation {
    /// The representation of an entity among these.
    pub(super) fn of(entity: &Entity, entities: &Entities) -> Representation {
        let is_certificate = entity.kind() == EntityKind::Certificates;
        Representation {
            entity: entity.clone(),
            snis: is_certificate.then(|| server_names(entity, entities)),
        }
    }

    /// The entity alone.
    pub(super) fn bare(entity: &Entity) -> Representation {
        Representation { entity: entity.clone(), snis: None }
    }

    /// Identifies this version of the entity. It stays the same while a `ttl` runs out.
    pub(super) fn etag(&self) -> String {
        etag(&self.stored().to_string())
    }

    /// Kong's JSON: every field, and other entities as `{"id": …}`. A `ttl` is the whole seconds that are left: the one in progress does not count.
    pub(super) fn to_json(&self) -> Json {
        let mut shown = self.stored();
        if let Entity::Custom(entity) = &self.entity
            && let (Some(ttl), Some(expires)) = (entity.kind().schema().ttl, entity.expires())
        {
            let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs().cast_signed();
            shown[ttl] = (expires - now - 1).max(0).into();
        }
        shown
    }

    fn stored(&self) -> Json {
        let mut shown = self.entity.to_value();
        for (field, _) in naming_fields(self.entity.kind()) {
            if let Some(id) = shown.get_mut(field).filter(|id| id.is_string()) {
                *id = serde_json::json!({ "id": id.take() });
            }
        }
        self.hide_unused_expression(&mut shown);
        if let Some(names) = &self.snis {
            shown["snis"] = names.as_slice().into();
        }
        shown
    }

    /// Kong has these fields in the flavor `expressions` alone.
    fn hide_unused_expression(&self, shown: &mut Json) {
        let Entity::Routes(route) = &self.entity else { return };
        if let Some(members) = shown.as_object_mut().filter(|_| route.expression.is_none()) {
            EXPRESSION_FIELDS.iter().for_each(|field| drop(members.remove(*field)));
        }
    }
}

fn server_names(certificate: &Entity, entities: &Entities) -> Vec<String> {
    let snis = entities.referencing((EntityKind::Certificates, certificate.id()), EntityKind::Snis, None);
    let mut names: Vec<String> = snis.filter_map(Entity::name).map(str::to_owned).collect();
    names.sort_unstable();
    names
}

/// Identifies a text, byte by byte.
fn etag(shown: &str) -> String {
    let mut hasher = SipHasher13::new();
    hasher.write(shown.as_bytes());
    format!("\"{:032x}\"", hasher.finish128().as_u128())
}
