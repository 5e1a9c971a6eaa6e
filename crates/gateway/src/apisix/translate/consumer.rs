//! Consumers, and what they show to prove who they are.
use super::schema::{Consumer, Plugins};
use super::{Entities, Invalid, Json, fill, plugins};
use serde_json::json;
use weir_model::Uuid;
use weir_model::entity::EntityKind;
use weir_model::schema::Record;

/// What a consumer is known by to key-auth.
#[derive(Clone, Record)]
struct KeyAuth {
    #[field(secret)]
    key: String,
}

/// What a consumer is known by to basic-auth.
#[derive(Clone, Record)]
struct BasicAuth {
    username: String,
    #[field(secret)]
    password: String,
}

pub(super) fn translate(into: &mut Entities<'_>, value: &mut Json) -> Result<(), Invalid> {
    let consumer: Consumer = fill(value)?;
    let id = into.add(EntityKind::Consumers, "consumer", json!({ "username": consumer.username }))?;
    let mut set = consumer.plugins.unwrap_or_default();
    credentials(into, &mut set, id)?;
    plugins::check(&set, value, into.plugins)?;
    plugins::translate(into, "", &set, &[("consumer", id)])
}

/// Takes the credentials out of a consumer's plugins.
fn credentials(into: &mut Entities<'_>, set: &mut Plugins, consumer: Uuid) -> Result<(), Invalid> {
    if let Some(written) = set.remove("key-auth") {
        let KeyAuth { key } = plugins::read("key-auth", &written)?;
        let entity = json!({ "key": key, "consumer": consumer });
        into.add(EntityKind::KeyauthCredentials, "key-auth", entity)?;
    }
    if let Some(written) = set.remove("basic-auth") {
        let BasicAuth { username, password } = plugins::read("basic-auth", &written)?;
        let entity = json!({ "username": username, "password": password, "consumer": consumer });
        into.add(EntityKind::BasicauthCredentials, "basic-auth", entity)?;
    }
    Ok(())
}
