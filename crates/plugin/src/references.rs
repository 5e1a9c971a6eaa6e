//! References to secrets that a vault keeps, in the place of the secrets: `{vault://env/redis-password}`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use weir_model::schema::{FieldSchema, Json, Kind, RecordSchema};

/// How references begin.
const OPENING: &str = "{vault://";

/// A reference to a secret: `{vault://VAULT/RESOURCE}`, `{vault://VAULT/RESOURCE/KEY?option=value#VERSION}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretReference {
    /// The vault's name.
    pub vault: String,
    /// What it is asked for.
    pub resource: String,
    /// The member of the JSON object that the vault has there.
    pub key: Option<String>,
    /// Further options for the vault.
    pub options: Vec<(String, String)>,
    /// Which of several versions of the secret.
    pub version: Option<u32>,
}

/// Why there is no secret. It names the reference, never a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretError {
    reference: String,
    why: Cow<'static, str>,
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be resolved: {}", self.reference, self.why)
    }
}

impl std::error::Error for SecretError {}

/// Where secrets are kept.
pub trait Vault: Send + Sync {
    /// The secret, or why there is none.
    fn get(&self, reference: &SecretReference) -> Result<String, Cow<'static, str>>;
}

/// The node's vaults by name. `env` is there from the beginning: the environment of the process.
pub struct Vaults(Mutex<HashMap<String, Arc<dyn Vault>>>);

impl Default for Vaults {
    fn default() -> Self {
        Self(Mutex::new(HashMap::from([("env".to_owned(), Arc::new(Environment) as Arc<dyn Vault>)])))
    }
}

impl Vaults {
    /// Has references to this name answered by this vault.
    pub fn add(&self, name: &str, vault: Arc<dyn Vault>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), vault);
    }

    /// The secret that a reference leads to.
    pub fn get(&self, reference: &str) -> Result<String, SecretError> {
        let found = SecretReference::parse(reference).ok_or(Cow::Borrowed("it is not a reference"));
        let secret = found.and_then(|parsed| {
            let vault = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&parsed.vault).cloned();
            let vault =
                vault.ok_or_else(|| Cow::Owned(format!("there is no vault named {}", parsed.vault)))?;
            parsed.member_of(vault.get(&parsed)?)
        });
        secret.map_err(|why| SecretError { reference: reference.to_owned(), why })
    }

    /// A configuration with the secrets in the place of the references to them. One that leads to none is left out, which
    /// the log says.
    pub(crate) fn resolve<'c>(&self, config: &'c Json, schema: &RecordSchema) -> Cow<'c, Json> {
        if !has_reference(config) {
            return Cow::Borrowed(config);
        }
        let mut config = config.clone();
        self.resolve_record(&mut config, schema);
        Cow::Owned(config)
    }

    fn resolve_record(&self, record: &mut Json, schema: &RecordSchema) {
        let Some(members) = record.as_object_mut() else { return };
        for field in schema.fields {
            if let Some(value) = members.get_mut(field.name) {
                self.resolve_value(value, &field.kind, field);
            }
        }
    }

    fn resolve_value(&self, value: &mut Json, kind: &Kind, field: &FieldSchema) {
        match (kind, &mut *value) {
            (Kind::Record(schema), value) => self.resolve_record(value, schema),
            (Kind::Array(kind), Json::Array(values)) => {
                values.iter_mut().for_each(|value| self.resolve_value(value, kind, field));
                values.retain(|value| !value.is_null());
            }
            (Kind::Map(kind), Json::Object(members)) => {
                members.values_mut().for_each(|value| self.resolve_value(value, kind, field));
                members.retain(|_, value| !value.is_null());
            }
            (_, Json::String(text)) if (field.secret || field.referenceable) && is_reference(text) => {
                match self.get(text) {
                    Ok(secret) => *text = secret,
                    Err(error) => {
                        tracing::warn!(field = field.name, "{error}");
                        *value = Json::Null;
                    }
                }
            }
            _ => {}
        }
    }
}

/// Whether a text refers to a secret.
pub fn is_reference(text: &str) -> bool {
    text.starts_with(OPENING) && text.ends_with('}')
}

fn has_reference(value: &Json) -> bool {
    match value {
        Json::String(text) => is_reference(text),
        Json::Array(values) => values.iter().any(has_reference),
        Json::Object(members) => members.values().any(has_reference),
        _ => false,
    }
}

impl SecretReference {
    /// Reads a reference, if the text is one.
    pub fn parse(text: &str) -> Option<Self> {
        let url = text.strip_prefix(OPENING)?.strip_suffix('}')?;
        let (url, version) = match url.split_once('#') {
            Some((url, version)) => (url, Some(version.parse().ok()?)),
            None => (url, None),
        };
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let (vault, path) = path.split_once('/')?;
        // The last part of several is a key, unless a slash follows it.
        let (resource, key) = match (path.strip_suffix('/'), path.rsplit_once('/')) {
            (Some(whole), _) => (whole, None),
            (None, Some((resource, key))) => (resource, Some(key.to_owned())),
            (None, None) => (path, None),
        };
        let options = query.split('&').filter_map(|pair| pair.split_once('='));
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let is_whole = !vault.is_empty() && !resource.is_empty();
        let (vault, resource) = (vault.to_owned(), resource.to_owned());
        is_whole.then_some(Self { vault, resource, key, options, version })
    }

    /// What is said by this option.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(option, _)| option == name).map(|(_, value)| value.as_str())
    }

    /// The member of what the vault has, where the reference names one.
    fn member_of(&self, secret: String) -> Result<String, Cow<'static, str>> {
        let Some(key) = &self.key else { return Ok(secret) };
        let members = serde_json::from_str::<Json>(&secret).ok();
        let member = members.as_ref().and_then(|members| members.get(key)?.as_str());
        member.map(str::to_owned).ok_or(Cow::Borrowed("the secret is no JSON object with a text of that key"))
    }
}

/// The vault `env`: `redis-password` is `REDIS_PASSWORD`, behind the option `prefix`.
struct Environment;

impl Vault for Environment {
    fn get(&self, reference: &SecretReference) -> Result<String, Cow<'static, str>> {
        let name = variable(reference);
        std::env::var(&name).map_err(|_| Cow::Owned(format!("the environment has no {name}")))
    }
}

/// Version 2 is the secret before the current one.
fn variable(reference: &SecretReference) -> String {
    let prefix = reference.option("prefix").unwrap_or_default();
    let previous = if reference.version == Some(2) { "_PREVIOUS" } else { "" };
    format!("{prefix}{}{previous}", reference.resource).replace('-', "_").to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_model::schema::{Record, Secret};

    /// Has the name of what it is asked for, in a JSON object.
    struct Fixed;

    impl Vault for Fixed {
        fn get(&self, reference: &SecretReference) -> Result<String, Cow<'static, str>> {
            match reference.resource.as_str() {
                "none" => Err("there is none".into()),
                resource => Ok(json!({ "name": resource }).to_string()),
            }
        }
    }

    #[derive(Debug, Clone, Record)]
    struct Inner {
        #[field(secret)]
        pub password: Option<Secret>,
    }

    #[derive(Debug, Clone, Record)]
    struct Config {
        pub redis: Inner,
        #[field(secret)]
        pub keys: Vec<String>,
        pub path: String,
    }

    fn parse(text: &str) -> Option<String> {
        let read = SecretReference::parse(text)?;
        Some(format!(
            "{} {} {:?} {:?} {:?}",
            read.vault,
            read.resource,
            read.key,
            read.version,
            read.option("prefix")
        ))
    }

    #[test]
    fn references_are_read_as_kong_reads_them() {
        let read = |text| parse(text).unwrap_or_default();
        assert_eq!(read("{vault://env/my-secret}"), "env my-secret None None None");
        assert_eq!(read("{vault://env/pg-creds/user}"), "env pg-creds Some(\"user\") None None");
        assert_eq!(read("{vault://hcv/a/b/c}"), "hcv a/b Some(\"c\") None None");
        assert_eq!(read("{vault://hcv/a/b/}"), "hcv a/b None None None");
        assert_eq!(read("{vault://env/x?prefix=A_&ttl=1#2}"), "env x None Some(2) Some(\"A_\")");
        for none in
            ["vault://env/x", "{vault://env}", "{vault:///x}", "{vault://env/}", "{vault://env/x#a}", "x"]
        {
            assert_eq!(parse(none), None, "{none}");
        }
    }

    #[test]
    fn names_in_the_environment_are_in_capitals() {
        let name = |text| variable(&SecretReference::parse(text).unwrap());
        assert_eq!(name("{vault://env/redis-password}"), "REDIS_PASSWORD");
        assert_eq!(name("{vault://env/password?prefix=my-app_#2}"), "MY_APP_PASSWORD_PREVIOUS");
        assert!(Vaults::default().get("{vault://env/path}").is_ok_and(|path| !path.is_empty()));
        let error = Vaults::default().get("{vault://env/weir-has-none}").unwrap_err().to_string();
        assert_eq!(
            error,
            "{vault://env/weir-has-none} cannot be resolved: the environment has no WEIR_HAS_NONE"
        );
    }

    #[test]
    fn secrets_of_a_configuration_are_resolved_and_nothing_else() {
        let vaults = Vaults::default();
        vaults.add("fixed", Arc::new(Fixed));
        let config = json!({
            "redis": { "password": "{vault://fixed/redis/name}" },
            "keys": ["plain", "{vault://fixed/key/name}", "{vault://fixed/none}", "{vault://other/x}"],
            "path": "{vault://fixed/path/name}",
        });
        let resolved = vaults.resolve(&config, Config::SCHEMA);
        assert_eq!(resolved["redis"]["password"], "redis");
        assert_eq!(resolved["keys"], json!(["plain", "key"]));
        assert_eq!(resolved["path"], "{vault://fixed/path/name}");
        let plain = json!({ "redis": {}, "keys": [], "path": "/" });
        assert!(matches!(vaults.resolve(&plain, Config::SCHEMA), Cow::Borrowed(_)));
    }
}
