//! Managers of secrets. That of HashiCorp Vault is a vault entity; what refers to it, `$secret://vault/ID/PATH/KEY`, is
//! translated in `references.rs`.
use super::schema::Secrets;
use super::{Entities, Invalid, Json, Key, fill, references};
use serde_json::json;
use weir_model::entity::EntityKind;

/// The manager that is available here.
const VAULT: &str = "vault";
/// The part of an object that is the vault.
const PART: &str = "vault";

pub(super) fn translate(into: &mut Entities<'_>, value: &mut Json) -> Result<(), Invalid> {
    let manager = into.key.owner.as_deref().unwrap_or_default();
    if manager != VAULT {
        return Err(Invalid::configuration(format!(
            "the secret manager {manager:?} is not available here; there are vault, and $env:// for the environment"
        )));
    }
    let secrets: Secrets = fill(value)?;
    let (protocol, host, port) = server(&secrets.uri)?;
    let config = json!({
        "protocol": protocol,
        "host": host,
        "port": port,
        "mount": secrets.prefix,
        "token": secrets.token.expose(),
        "namespace": secrets.namespace,
    });
    let entity =
        json!({ "prefix": prefix(into.key), "name": "hcv", "config": references::translated(&config)? });
    into.add(EntityKind::Vaults, PART, entity).map(drop)
}

/// The name by which references call the vault of an object.
fn prefix(key: &Key) -> String {
    format!("apisix-{}", key.uuid(PART).simple())
}

/// The reference of Weir's for `vault/ID/PATH/KEY`; none if that is no path of a secret.
pub(super) fn reference(path: &str) -> Option<String> {
    let (id, path) = path.strip_prefix("vault/")?.split_once('/')?;
    let key = Key::secret(VAULT, id).ok()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let has_key = path.split_once('/').is_some_and(|(path, key)| !path.is_empty() && !key.is_empty());
    (has_key && path.bytes().all(is_plain)).then(|| format!("{{vault://{}/{path}}}", prefix(&key)))
}

/// Protocol, host and port of a URL.
fn server(uri: &str) -> Result<(&str, &str, u16), Invalid> {
    let wrong = || {
        Invalid::configuration(format!(
            "property \"uri\" validation failed: expected a URL such as http://127.0.0.1:8200, got {uri:?}"
        ))
    };
    let (protocol, rest) = uri.split_once("://").ok_or_else(wrong)?;
    let authority = rest.trim_end_matches('/');
    let default = match protocol {
        "http" => 80,
        "https" => 443,
        _ => return Err(wrong()),
    };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !authority.ends_with(']') => (host, port.parse().map_err(|_| wrong())?),
        _ => (authority, default),
    };
    if host.is_empty() || host.contains(['/', '?', '#', '@']) {
        Err(wrong())
    } else {
        Ok((protocol, host, port))
    }
}
