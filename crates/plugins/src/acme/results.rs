//! Where certificates go: to the node's database as entities, or to the storage where a node has no database.

use super::certificate::Issued;
use super::error::AcmeError;
use super::storage::{CERTIFICATES, Storage};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use weir_plugin::entity::EntityKind;
use weir_plugin::schema::JsonMap;
use weir_plugin::{
    EntityAccess, EntityDatabase, EntityError, EntityKey, EntityVerb, EntityWrite, Json, Secret, Uuid,
};

/// The tag of the entities that the plugin writes.
const TAG: &str = "managed-by-acme";

/// How long to wait for the entities of a node that has just started.
const START_TIMEOUT: Duration = Duration::from_secs(10);
const START_PAUSE: Duration = Duration::from_millis(10);

/// The node's entities, if they can be written: then certificates are among them.
pub(super) async fn writable(database: &EntityDatabase) -> Result<Option<Arc<dyn EntityAccess>>, AcmeError> {
    let known = async {
        loop {
            if let Some(entities) = database.access() {
                return (entities.strategy() != "off").then(|| entities.clone());
            }
            tokio::time::sleep(START_PAUSE).await;
        }
    };
    let known = tokio::time::timeout(START_TIMEOUT, known).await;
    known.map_err(|_| AcmeError::Storage("the node is starting".to_owned()))
}

/// The certificate of a host.
pub(super) async fn load(
    database: &EntityDatabase,
    storage: &Storage,
    host: &str,
) -> Result<Option<Issued>, AcmeError> {
    match writable(database).await? {
        Some(entities) => Ok(of_entities(&*entities, host)),
        None => {
            let text = storage.get(&format!("{CERTIFICATES}{host}")).await?;
            text.map(|text| of_text(&text, host)).transpose()
        }
    }
}

/// Keeps a certificate in the storage as the one of a host.
pub(super) async fn keep(storage: &Storage, host: &str, issued: &Issued) -> Result<(), AcmeError> {
    let text = json!({ "key": issued.key.expose(), "cert": issued.chain }).to_string();
    storage.set(&format!("{CERTIFICATES}{host}"), &text, None).await
}

pub(super) fn of_text(text: &str, host: &str) -> Result<Issued, AcmeError> {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    issued(&value).ok_or_else(|| {
        AcmeError::Storage(format!("{CERTIFICATES}{host} holds no certificate and key: delete it"))
    })
}

/// From the members that an entity has too.
fn issued(value: &Json) -> Option<Issued> {
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    Some(Issued { chain: text("cert")?, key: Secret::from(text("key")?) })
}

fn sni(entities: &dyn EntityAccess, host: &str) -> Option<Json> {
    entities.find(EntityKind::Snis, &EntityKey::Fields(vec![("name", host.into())]))
}

/// The certificate that an entity `snis` refers to.
fn certificate_of(entities: &dyn EntityAccess, sni: &Json) -> Option<(Uuid, Json)> {
    let id: Uuid = sni["certificate"]["id"].as_str()?.parse().ok()?;
    Some((id, entities.find(EntityKind::Certificates, &EntityKey::Id(id))?))
}

fn of_entities(entities: &dyn EntityAccess, host: &str) -> Option<Issued> {
    issued(&certificate_of(entities, &sni(entities, host)?)?.1)
}

/// Writes a certificate, has the host's SNI refer to it, and deletes the one before if it was the plugin's own.
pub(super) async fn replace(
    entities: &dyn EntityAccess,
    host: &str,
    issued: &Issued,
) -> Result<(), AcmeError> {
    let before = sni(entities, host).and_then(|sni| certificate_of(entities, &sni));
    let members = json!({ "cert": issued.chain, "key": issued.key.expose(), "tags": [TAG] });
    let written = write(entities, (EntityVerb::Insert, EntityKind::Certificates), None, members).await?;
    let id = written.as_ref().and_then(|entity| entity["id"].as_str()).and_then(|id| id.parse().ok());
    let id: Uuid =
        id.ok_or_else(|| AcmeError::Entities("the database returned no certificate".to_owned()))?;
    let key = EntityKey::Fields(vec![("name", host.into())]);
    let members = json!({ "name": host, "certificate": { "id": id.to_string() }, "tags": [TAG] });
    let named = write(entities, (EntityVerb::Upsert, EntityKind::Snis), Some(key), members).await;
    if let Err(error) = named {
        delete(entities, id).await;
        return Err(error);
    }
    if let Some((before, entity)) = before
        && has_tag(&entity)
    {
        delete(entities, before).await;
    }
    Ok(())
}

fn has_tag(entity: &Json) -> bool {
    entity["tags"].as_array().is_some_and(|tags| tags.iter().any(|tag| tag == TAG))
}

async fn delete(entities: &dyn EntityAccess, id: Uuid) {
    let deletion = (EntityVerb::Delete, EntityKind::Certificates);
    if let Err(error) = write(entities, deletion, Some(EntityKey::Id(id)), Json::Null).await {
        tracing::warn!("acme: the certificate {id}, which nothing uses, was not deleted: {error}");
    }
}

async fn write(
    entities: &dyn EntityAccess,
    (verb, kind): (EntityVerb, EntityKind),
    key: Option<EntityKey>,
    members: Json,
) -> Result<Option<Json>, AcmeError> {
    let members = match members {
        Json::Object(members) => members,
        _ => JsonMap::new(),
    };
    let written = entities.write(EntityWrite { verb, kind, key, members }).await;
    written.map_err(|EntityError { name, message, .. }| AcmeError::Entities(format!("{name}: {message}")))
}
