//! Certificates, and the server names they are for.
use super::schema::Ssl;
use super::{Entities, Invalid, Json, fill, references};
use serde_json::json;
use weir_model::entity::EntityKind;

/// The part of an object that is the certificate.
pub(super) const CERTIFICATE: &str = "certificate";

pub(super) fn translate(into: &mut Entities<'_>, value: &mut Json) -> Result<(), Invalid> {
    let ssl: Ssl = fill(value)?;
    let entity = references::translated(&json!({ "cert": ssl.cert, "key": value["key"] }))?;
    let certificate = into.add(EntityKind::Certificates, CERTIFICATE, entity)?;
    // Others are presented to upstreams.
    let is_for_clients = value["type"] != "client";
    for name in ssl.snis.iter().flatten().chain(&ssl.sni).filter(|_| is_for_clients) {
        let entity = json!({ "name": name, "certificate": { "id": certificate } });
        into.add(EntityKind::Snis, &format!("snis/{name}"), entity)?;
    }
    if ssl.status == 0 {
        // It is valid, and disabled.
        into.found.clear();
    }
    Ok(())
}
