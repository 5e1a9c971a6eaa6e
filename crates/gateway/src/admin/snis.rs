//! `snis` of a certificate: server names that are entities of their own, written and shown with it.
use super::edit::Writer;
use super::response::ApiError;
use super::violations::Violation;
use crate::registry::Op;
use std::collections::BTreeSet;
use weir_model::entity::{Entity, EntityKind};
use weir_model::rule::wildcard_host as server_name;
use weir_model::schema::{Json, JsonMap};
use weir_model::{Entities, Uuid};

/// Takes the names out of the members of a certificate; none if it has no `snis`.
pub(super) fn taken(kind: EntityKind, written: &mut JsonMap) -> Result<Option<BTreeSet<String>>, ApiError> {
    if kind != EntityKind::Certificates {
        return Ok(None);
    }
    let names = match written.remove("snis") {
        None => return Ok(None),
        Some(Json::Null) => Vec::new(),
        Some(Json::Array(names)) => names,
        Some(single) => vec![single],
    };
    let mut taken = BTreeSet::new();
    for name in names {
        let Some(name) = name.as_str() else { return Err(wrong("expected a list of server names")) };
        if !taken.insert(name.to_owned()) {
            return Err(wrong(format!("{name} is duplicated")));
        }
    }
    Ok(Some(taken))
}

/// Refuses what is no list of server names.
pub(super) fn check(kind: EntityKind, written: &mut JsonMap) -> Result<(), ApiError> {
    let names = taken(kind, written)?.unwrap_or_default();
    let found = names.iter().find_map(|name| server_name(name).err());
    found.map_or(Ok(()), |message| Err(wrong(message)))
}

fn wrong(message: impl Into<String>) -> ApiError {
    ApiError::violation("snis", message)
}

/// The changes that make exactly these names present a certificate.
pub(super) fn ops(
    certificate: Uuid,
    names: &BTreeSet<String>,
    writer: &Writer<'_>,
    entities: &Entities,
) -> Result<Vec<Op>, ApiError> {
    let there = entities.referencing((EntityKind::Certificates, certificate), EntityKind::Snis, None);
    let superfluous = there.filter(|sni| sni.name().is_some_and(|name| !names.contains(name)));
    let mut ops: Vec<Op> = superfluous.map(|sni| Op::Delete(EntityKind::Snis, sni.id())).collect();
    for name in names {
        match entities.by_value(EntityKind::Snis, "name", name) {
            Some(Entity::Snis(sni)) if sni.certificate == certificate => {}
            Some(Entity::Snis(sni)) => {
                let other = sni.certificate;
                return Err(wrong(format!("{name} already associated with existing certificate '{other}'")));
            }
            _ => ops.push(Op::Put(new(certificate, name, writer, entities)?)),
        }
    }
    Ok(ops)
}

fn new(certificate: Uuid, name: &str, writer: &Writer<'_>, entities: &Entities) -> Result<Entity, ApiError> {
    let mut written = JsonMap::new();
    written.insert("name".to_owned(), name.into());
    written.insert("certificate".to_owned(), certificate.to_string().into());
    writer.entity(EntityKind::Snis, written, entities).map_err(|denied| match denied {
        ApiError::Schema(violations) => {
            let at_snis = |violation| Violation { path: "snis".to_owned(), ..violation };
            ApiError::Schema(violations.into_iter().map(at_snis).collect())
        }
        other => other,
    })
}
