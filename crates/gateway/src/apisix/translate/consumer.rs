//! Consumers and their credentials.
use super::schema::{Consumer, Credential, PluginSet, Plugins};
use super::{Entities, Invalid, Json, Key, Kind, Objects, fill, named, plugins, references};
use serde_json::json;
use weir_model::Uuid;
use weir_model::entity::EntityKind;
use weir_model::schema::Record;

/// The part of a consumer that is the consumer itself.
const CONSUMER: &str = "consumer";
/// The part of a consumer group that is the group itself.
const GROUP: &str = "group";

/// A consumer's credential for key-auth.
#[derive(Clone, Record)]
pub(super) struct KeyAuth {
    #[field(secret)]
    key: String,
}

/// A consumer's credential for basic-auth.
#[derive(Clone, Record)]
pub(super) struct BasicAuth {
    username: String,
    #[field(secret)]
    password: String,
}

/// A consumer's credential for hmac-auth.
#[derive(Clone, Record)]
pub(super) struct HmacAuth {
    key_id: String,
    #[field(secret)]
    secret_key: String,
}

/// A consumer's credential for jwt-auth.
#[derive(Clone, Record)]
pub(super) struct JwtAuth {
    key: String,
    #[field(secret)]
    secret: Option<String>,
    public_key: Option<String>,
    #[field(default = "HS256", one_of = [
        "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384",
        "PS512", "EdDSA",
    ])]
    algorithm: String,
    /// For how many seconds tokens last that APISIX signs; it signs none any more.
    #[field(default = 86400, between = [1, 2147483646])]
    exp: u32,
    #[field(default = false)]
    base64_secret: bool,
    #[field(default = 0, between = [0, 86400])]
    lifetime_grace_period: u32,
}

pub(super) fn translate(
    into: &mut Entities<'_>,
    value: &mut Json,
    objects: &dyn Objects,
) -> Result<(), Invalid> {
    let consumer: Consumer = fill(value)?;
    let id = into.add(EntityKind::Consumers, CONSUMER, json!({ "username": consumer.username }))?;
    let mut own = consumer.plugins.unwrap_or_default();
    credentials(into, &mut own, id)?;
    plugins::check(into, &own, value)?;
    if let Some(group) = &consumer.group_id {
        let group = named(objects, Kind::ConsumerGroups, group)?.0.uuid(GROUP);
        let member = json!({ "consumer": id, "consumer_group": group });
        into.add(EntityKind::ConsumerGroupConsumers, "member", member)?;
    }
    plugins::translate(into, "", &own, &[("consumer", id)])
}

pub(super) fn translate_group(into: &mut Entities<'_>, value: &mut Json) -> Result<(), Invalid> {
    let set: PluginSet = fill(value)?;
    plugins::check(into, &set.plugins, value)?;
    let id = into.add(EntityKind::ConsumerGroups, GROUP, json!({ "name": into.key.tag() }))?;
    plugins::translate(into, "", &set.plugins, &[("consumer_group", id)])
}

/// A credential that is an object of its own.
pub(super) fn translate_credential(into: &mut Entities<'_>, value: &mut Json) -> Result<(), Invalid> {
    let credential: Credential = fill(value)?;
    let owner = into.key.owner.clone().unwrap_or_default();
    let consumer = Key::new(Kind::Consumers, owner)?.uuid(CONSUMER);
    let mut set = credential.plugins.unwrap_or_default();
    credentials(into, &mut set, consumer)?;
    if set.is_empty() {
        return Ok(());
    }
    Err(Invalid("only supports auth type plugins in consumer credential".to_owned()))
}

/// Takes the credentials out of a consumer's plugins.
fn credentials(into: &mut Entities<'_>, set: &mut Plugins, consumer: Uuid) -> Result<(), Invalid> {
    for name in ["key-auth", "basic-auth", "hmac-auth", "jwt-auth"] {
        set.get(name).map_or(Ok(()), references::none_in)?;
    }
    if let Some(written) = set.remove("key-auth") {
        let KeyAuth { key } = plugins::read("key-auth", &written)?;
        let entity = json!({ "key": key, "consumer": consumer });
        into.add_of_plugin("keyauth_credentials", "key-auth", entity)?;
    }
    if let Some(written) = set.remove("basic-auth") {
        let BasicAuth { username, password } = plugins::read("basic-auth", &written)?;
        let entity = json!({ "username": username, "password": password, "consumer": consumer });
        into.add_of_plugin("basicauth_credentials", "basic-auth", entity)?;
    }
    if let Some(written) = set.remove("hmac-auth") {
        let HmacAuth { key_id, secret_key } = plugins::read("hmac-auth", &written)?;
        let entity = json!({ "username": key_id, "secret": secret_key, "consumer": consumer });
        into.add_of_plugin("hmacauth_credentials", "hmac-auth", entity)?;
    }
    if let Some(written) = set.remove("jwt-auth") {
        let credential: JwtAuth = plugins::read("jwt-auth", &written)?;
        let entity = json!({
            "key": credential.key,
            "secret": credential.secret,
            "base64_secret": credential.base64_secret,
            "public_key": credential.public_key,
            "algorithm": credential.algorithm,
            "lifetime_grace_period": credential.lifetime_grace_period,
            "consumer": consumer,
        });
        into.add_of_plugin("jwt_auth_credentials", "jwt-auth", entity)?;
    }
    Ok(())
}
