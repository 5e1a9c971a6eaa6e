//! Vaults: where secrets are kept that configurations refer to. What vaults have is cached, and asked for again by
//! [`Vaults::rotate`]; no request waits for a vault.
mod cache;
mod document;
mod env;
mod file;
mod hcv;
#[cfg(test)]
mod tests;

pub use document::{ResolvedDocument, has_references};
pub use file::FileVault;
pub use hcv::{HcvVault, TokenFiles};

use cache::Cache;
use env::EnvVault;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use weir_model::SecretReference;
use weir_model::entity::{self, find_vault};
use weir_model::is_reference;
use weir_model::schema::{Json, JsonMap};

/// Why there is no secret. It names the reference, never a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretError {
    reference: String,
    reason: String,
}

impl SecretError {
    /// Why, in Kong's words.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unable to resolve reference {} ({})", self.reference, self.reason)
    }
}

impl std::error::Error for SecretError {}

/// Where secrets are kept.
pub trait Vault: Send + Sync {
    /// The secret of a reference, whose options include those of the vault's configuration, or why there is none. A secret
    /// of which a reference names a key is the JSON object with that key. Runs off the request path, on a thread of its
    /// own, and may block for some seconds.
    fn get(&self, reference: &SecretReference) -> Result<String, Cow<'static, str>>;

    /// Whether another machine has the secrets, which may take its time.
    fn is_remote(&self) -> bool {
        false
    }
}

/// The options that a reference may set. It may not set others, because a client of the Admin API could have the token of
/// the vault sent to another server.
const OPTIONS_OF_REFERENCES: [&str; 4] = ["prefix", "ttl", "neg_ttl", "resurrect_ttl"];

/// The vaults of a node by name, and what was read from them. `env`, `file` and `hcv` are there from the beginning.
pub struct Vaults {
    kinds: Mutex<HashMap<String, Kind>>,
    cache: Cache,
    resolved: document::ResolvedEntities,
    token_files: Mutex<Arc<TokenFiles>>,
}

/// A kind of vault.
#[derive(Clone)]
struct Kind {
    vault: Arc<dyn Vault>,
    /// The configuration for references by the kind's name.
    options: Vec<(String, String)>,
}

/// What to ask a vault for.
struct Request {
    vault: Arc<dyn Vault>,
    /// The reference with all options, and without a key.
    reference: SecretReference,
    key: Option<String>,
}

impl Default for Vaults {
    fn default() -> Self {
        let kinds: [(&str, Arc<dyn Vault>); 3] = [
            ("env", Arc::new(EnvVault)),
            ("file", Arc::new(FileVault::default())),
            ("hcv", Arc::new(HcvVault::default())),
        ];
        let vaults = Self {
            kinds: Mutex::default(),
            cache: Cache::default(),
            resolved: Default::default(),
            token_files: Mutex::default(),
        };
        kinds.into_iter().for_each(|(name, vault)| vaults.add(name, vault));
        vaults
    }
}

impl Vaults {
    /// Adds a vault, which is asked for references to this name.
    pub fn add(&self, name: &str, vault: Arc<dyn Vault>) {
        let kind = Kind { vault, options: defaults(name) };
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), kind);
    }

    /// Sets which files may prove to servers who the node is.
    pub fn set_token_files(&self, files: Arc<TokenFiles>) {
        *self.token_files.lock().unwrap_or_else(PoisonError::into_inner) = files;
    }

    /// The text of a file that proves to a server who the node is. `field` names the file in messages.
    pub fn token_file(&self, file: &str, field: &str) -> Result<String, Cow<'static, str>> {
        let files = self.token_files.lock().unwrap_or_else(PoisonError::into_inner).clone();
        files.read(file, field)
    }

    /// Configures a vault for references to its name.
    pub fn configure(&self, name: &str, mut options: Vec<(String, String)>) {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kind) = kinds.get_mut(name) {
            merge(&mut options, defaults(name));
            kind.options = options;
        }
    }

    /// Leaves out all vaults but these: references to others lead to no secret.
    pub fn retain(&self, is_enabled: impl Fn(&str) -> bool) {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner).retain(|name, _| is_enabled(name));
    }

    /// The secret that a reference leads to, through a vault of this name or one of these entities. Waits for the vault if
    /// the secret is not cached.
    pub fn get(&self, reference: &str, entities: &[Arc<entity::Vault>]) -> Result<String, SecretError> {
        let found = self.request(reference, entities).and_then(|request| {
            self.cache.pin(&request);
            self.cache.get(&request)
        });
        found.map_err(|reason| SecretError { reference: reference.to_owned(), reason })
    }

    /// Forgets secrets that a document which is active now does not refer to.
    pub fn keep_those_of(&self, document: &ResolvedDocument<'_>) {
        self.cache.keep(&document.used);
    }

    /// Whether no secret was asked for yet.
    pub fn are_unused(&self) -> bool {
        self.cache.is_empty()
    }

    /// Asks for secrets again whose time has come. Returns whether one has changed.
    pub fn rotate(&self) -> bool {
        self.cache.rotate()
    }

    /// What to ask which vault for. A name of a vault comes before the prefix of an entity.
    fn request(&self, reference: &str, entities: &[Arc<entity::Vault>]) -> Result<Request, String> {
        let mut parsed = SecretReference::parse(reference)?;
        parsed.options.retain(|(name, _)| OPTIONS_OF_REFERENCES.contains(&name.as_str()));
        let key = parsed.key.take();
        let not_found = |name: &str| format!("could not find vault ({name})");
        let (kind, options) =
            match (self.kind(&parsed.vault), entities.iter().find(|it| it.prefix == parsed.vault)) {
                (Some(kind), _) => (kind.clone(), kind.options),
                (None, Some(entity)) => {
                    let kind = self.kind(&entity.name).ok_or_else(|| not_found(&entity.name))?;
                    parsed.vault.clone_from(&entity.name);
                    (kind, self.options_of(entity)?)
                }
                (None, None) => return Err(not_found(&parsed.vault)),
            };
        merge(&mut parsed.options, options);
        parsed.options.sort_unstable();
        Ok(Request { vault: kind.vault, reference: parsed, key })
    }

    fn kind(&self, name: &str) -> Option<Kind> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// The configuration of an entity. What it refers to must be in a vault without an entity, so that there is no circle.
    fn options_of(&self, vault: &entity::Vault) -> Result<Vec<(String, String)>, String> {
        let members = vault.config.as_object().into_iter().flatten();
        let mut options = Vec::new();
        for (name, value) in members {
            match value {
                Json::Null => {}
                Json::String(text) if is_reference(text) => {
                    let secret = self.get(text, &[]).map_err(|error| error.to_string())?;
                    options.push((name.clone(), secret));
                }
                Json::String(text) => options.push((name.clone(), text.clone())),
                other => options.push((name.clone(), other.to_string())),
            }
        }
        Ok(options)
    }
}

/// Adds the options that are not given.
fn merge(options: &mut Vec<(String, String)>, others: Vec<(String, String)>) {
    for (name, value) in others {
        if !options.iter().any(|(given, _)| *given == name) {
            options.push((name, value));
        }
    }
}

/// The defaults of a vault's configuration.
fn defaults(name: &str) -> Vec<(String, String)> {
    let fields = find_vault(name).map(|vault| vault.config.fields).unwrap_or_default();
    let default = |field: &weir_model::schema::FieldSchema| match field.default?.to_json() {
        Json::String(text) => Some((field.name.to_owned(), text)),
        other => Some((field.name.to_owned(), other.to_string())),
    };
    fields.iter().filter_map(default).collect()
}

/// The member of a secret that a reference names; the whole secret where it names none.
fn member(secret: &str, key: Option<&str>) -> Result<String, String> {
    let Some(key) = key else { return Ok(secret.to_owned()) };
    let failed = |why: String| {
        format!("could not get value from external vault (could not get subfield value: {why})")
    };
    let Ok(members) = serde_json::from_str::<JsonMap>(secret) else {
        return Err(failed("unable to json decode value".to_owned()));
    };
    match members.get(key) {
        Some(Json::String(text)) => Ok(text.clone()),
        None => Err(failed(format!("subfield {key} not found in JSON secret"))),
        Some(_) => Err(failed(format!("unexpected value in JSON secret for subfield {key}; write a string"))),
    }
}
