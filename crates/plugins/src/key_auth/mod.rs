//! Authenticates requests by the key of a consumer.
//!
//! ```yaml
//! consumers:
//!   - username: alice
//!     keyauth_credentials:
//!       - key: correct-horse-battery
//! plugins:
//!   - name: key-auth
//!     service: orders
//!     config:
//!       key_names: [apikey]
//! ```
//!
//! `curl -H 'apikey: correct-horse-battery' http://localhost:8000/orders`
//!
//! For each of `key_names` in turn, the plugin looks for the key in the headers, the query string and, with
//! `key_in_body`, the fields of an urlencoded, multipart or JSON body. A name with underscores also means the header
//! that has hyphens in their place. A credential's `ttl` counts from its
//! `created_at`, or from when the configuration was loaded if it has none.
//!
//! ## To the upstream
//!
//! `X-Consumer-ID`, `X-Consumer-Username`, `X-Consumer-Custom-ID` and `X-Credential-Identifier` (the credential's id)
//! identify the consumer. `hide_credentials` removes the key from headers, query string and body.
//!
//! ## Responses
//!
//! | status | message | when |
//! |---|---|---|
//! | 401 | `No API key found in request` | there is no key |
//! | 401 | `Duplicate API key found` | the headers, the query string or the body have several |
//! | 401 | `Unauthorized` | the key is unknown, or has expired |
//! | 500 | `anonymous consumer … is configured but doesn't exist` | `anonymous` names a consumer that does not exist |
//!
//! Responses with status 401 have `WWW-Authenticate: Key`, with the `realm` if one is set. With `anonymous`, such
//! requests pass as that consumer instead, with `X-Anonymous-Consumer: true`; and a request that another authentication
//! plugin has authenticated needs no key.

mod body;
mod credential;

use crate::shared::authentication::Fallback;
use credential::KeyAuthCredential;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_plugin::form;
use weir_plugin::{
    BuildContext, ConsumerIndex, Credential, CustomEntity, CustomEntitySchema, Exchange, FingerprintMap,
    Fingerprinter, Flow, Hooks, LocalResponse, Method, Phases, Plugin, Record, Uuid, WantsBody,
    is_same_header,
};

/// Where keys are found, and what happens to requests without one.
#[derive(Debug, Clone, Record)]
#[record(hint(
    "key",
    "keys",
    "api_key",
    "apikey",
    "ttl",
    "a consumer has it: write `key` in `keyauth_credentials` of one of the `consumers`, or POST it to \
     /consumers/NAME/key-auth"
))]
pub(super) struct Config {
    /// The names of headers, query arguments and body fields that may hold the key.
    #[field(default = ["apikey"], matches = header_name, len_min = 1)]
    pub key_names: Vec<String>,
    /// Removes the key from the request before it goes to the upstream.
    #[field(default = false)]
    pub hide_credentials: bool,
    /// The id or username of the consumer that requests without a valid key pass as.
    pub anonymous: Option<String>,
    /// Looks for the key in headers.
    #[field(default = true)]
    pub key_in_header: bool,
    /// Looks for the key in the query string.
    #[field(default = true)]
    pub key_in_query: bool,
    /// Looks for the key in the body, which is buffered for this.
    #[field(default = false)]
    pub key_in_body: bool,
    /// Requires a key for OPTIONS requests, too.
    #[field(default = true)]
    pub run_on_preflight: bool,
    /// The realm in `WWW-Authenticate`.
    pub realm: Option<String>,
}

/// A name that may hold the key.
struct KeyName {
    name: String,
    /// The header that it means besides, with hyphens in the place of underscores.
    hyphenated: Option<String>,
}

impl KeyName {
    fn new(name: &str) -> Self {
        let hyphenated = name.contains('_').then(|| name.replace('_', "-"));
        Self { name: name.to_owned(), hyphenated }
    }

    /// The names of headers that it means.
    fn headers(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.name).chain(self.hyphenated.as_deref())
    }
}

/// One configured instance.
pub(super) struct KeyAuth {
    config: Config,
    names: Vec<KeyName>,
    challenge: String,
    fallback: Fallback,
    keys: Arc<Keys>,
}

impl Plugin for KeyAuth {
    const NAME: &'static str = "key-auth";
    const PRIORITY: i32 = 1250;
    const FOR_CONSUMERS: bool = false;
    const ENTITIES: &'static [&'static CustomEntitySchema] = &[KeyAuthCredential::ENTITY];
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let challenge =
            config.realm.as_ref().map_or_else(|| "Key".to_owned(), |realm| format!("Key realm=\"{realm}\""));
        let fallback = Fallback::of(config.anonymous.as_deref(), build);
        let names = config.key_names.iter().map(|name| KeyName::new(name)).collect();
        Ok(Self { challenge, fallback, keys: build.once(Keys::new), names, config })
    }
}

/// Every key of the configuration, by its fingerprint. The keys themselves are not stored.
struct Keys {
    fingerprinter: Fingerprinter,
    owners: FingerprintMap<Owner>,
}

struct Owner {
    consumer: ConsumerIndex,
    id: Uuid,
    id_text: Box<str>,
    /// In seconds since 1970.
    expires: Option<u64>,
}

impl Keys {
    fn new(build: &BuildContext<'_>) -> Self {
        let (fingerprinter, loaded) = (Fingerprinter::with_random_key(), now());
        let owner = |credential: &KeyAuthCredential| {
            let from = credential.created_at.and_then(|created| created.try_into().ok()).unwrap_or(loaded);
            let ttl = credential.ttl.and_then(|ttl| u64::try_from(ttl).ok()).filter(|ttl| *ttl > 0);
            let owner = Owner {
                consumer: build.consumer(credential.consumer)?,
                id: credential.id,
                id_text: credential.id.to_string().into(),
                expires: ttl.map(|ttl| from.saturating_add(ttl)),
            };
            Some((fingerprinter.of(credential.key.as_bytes()), owner))
        };
        let owners = build.entities().filter_map(owner).collect();
        Self { fingerprinter, owners }
    }

    fn owner(&self, key: &[u8]) -> Option<&Owner> {
        let owner = self.owners.get(&self.fingerprinter.of(key))?;
        owner.expires.is_none_or(|expires| now() < expires).then_some(owner)
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Hooks for KeyAuth {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn owns_request_header(&self, name: &[u8]) -> bool {
        let mut names = self.names.iter().flat_map(KeyName::headers);
        self.config.hide_credentials
            && self.config.key_in_header
            && names.any(|own| is_same_header(own.as_bytes(), name))
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let preflight = exchange.request.method == Method::Options;
        if preflight && !self.config.run_on_preflight || self.fallback.is_settled(exchange) {
            return Flow::Continue;
        }
        match self.authenticate(exchange) {
            Ok(()) => Flow::Continue,
            Err(message) => self.fallback.unauthenticated(exchange, || {
                LocalResponse::error(401, message).header("WWW-Authenticate", &self.challenge)
            }),
        }
    }

    fn wants_body(&self) -> WantsBody {
        if self.config.key_in_body { WantsBody::Yes } else { WantsBody::No }
    }
}

/// What a request has under a name.
enum Found<'a> {
    Nothing,
    Key(Cow<'a, [u8]>),
    /// Something that is not a key, such as a query argument without a value.
    Other,
    Several,
}

impl<'a> Found<'a> {
    fn of(mut values: impl Iterator<Item = Option<Cow<'a, [u8]>>>) -> Self {
        match (values.next(), values.next()) {
            (None, _) => Found::Nothing,
            (Some(Some(key)), None) => Found::Key(key),
            (Some(None), None) => Found::Other,
            (Some(_), Some(_)) => Found::Several,
        }
    }

    fn or_else(self, next: impl FnOnce() -> Self) -> Self {
        if matches!(self, Found::Nothing) { next() } else { self }
    }
}

impl KeyAuth {
    fn authenticate(&self, exchange: &mut Exchange) -> Result<(), &'static str> {
        for name in &self.names {
            match self.find(exchange, name) {
                Found::Key(key) => {
                    let owner = (!key.is_empty()).then(|| self.keys.owner(&key));
                    if self.config.hide_credentials {
                        self.hide(exchange, name);
                    }
                    let owner = owner.ok_or(NO_KEY)?.ok_or("Unauthorized")?;
                    let credential = Credential { id: owner.id, identifier: Some(&owner.id_text) };
                    exchange.authenticate(owner.consumer, credential);
                    return Ok(());
                }
                Found::Several => return Err("Duplicate API key found"),
                Found::Nothing | Found::Other => {}
            }
        }
        Err(NO_KEY)
    }

    fn find<'a>(&self, exchange: &'a Exchange, key_name: &'a KeyName) -> Found<'a> {
        let name = &*key_name.name;
        let in_header =
            |name| Found::of(exchange.request.headers.get_all(name).map(|value| Some(value.into())));
        let in_headers =
            || key_name.headers().fold(Found::Nothing, |found, name| found.or_else(|| in_header(name)));
        let in_query = || in_form(exchange.query().unwrap_or_default(), name);
        let found = if self.config.key_in_header { in_headers() } else { Found::Nothing };
        let found = if self.config.key_in_query { found.or_else(in_query) } else { found };
        if self.config.key_in_body { found.or_else(|| body::find(exchange, name)) } else { found }
    }

    fn hide(&self, exchange: &mut Exchange, key_name: &KeyName) {
        for header in key_name.headers() {
            exchange.request.headers.remove(header);
        }
        let name = &*key_name.name;
        let shorter =
            exchange.query().filter(|query| holds(query, name)).map(|query| form::without(query, name));
        if let Some(query) = shorter {
            exchange.set_query(query);
        }
        if self.config.key_in_body
            && let Some(body) = body::without(exchange, name)
        {
            exchange.set_body(body);
        }
    }
}

const NO_KEY: &str = "No API key found in request";

fn in_form<'a>(form: &'a str, name: &'a str) -> Found<'a> {
    Found::of(form::pairs(form).filter(|pair| *pair.name == *name.as_bytes()).map(|pair| pair.value))
}

fn holds(form: &str, name: &str) -> bool {
    form::pairs(form).any(|pair| *pair.name == *name.as_bytes())
}

#[cfg(test)]
mod tests;
