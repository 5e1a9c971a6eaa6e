//! Authenticates requests by a JSON Web Token that is signed with the key of a consumer (RFC 7519).
//!
//! ```yaml
//! consumers:
//!   - username: alice
//!     jwt_secrets:
//!       - key: https://issuer.example.com
//!         algorithm: RS256
//!         rsa_public_key: |
//!           -----BEGIN PUBLIC KEY-----
//!           …
//! plugins:
//!   - name: jwt
//!     service: orders
//!     config:
//!       claims_to_verify: [exp, nbf]
//! ```
//!
//! `curl -H "Authorization: Bearer $TOKEN" http://localhost:8000/orders`
//!
//! The plugin looks for the token in the query arguments `uri_param_names`, the cookies `cookie_names` and, after
//! `Bearer`, the headers `header_names`; the same token in several places counts once. The claim `key_claim_name`, or
//! else the header member of that name, contains the `key` of a credential. The credential determines the algorithm and
//! the key that verify the signature; the token cannot choose them. The algorithms are HS256, HS384, HS512, RS256,
//! RS384, RS512, PS256, PS384, PS512 (with a salt of any length), ES256, ES384, ES512 and EdDSA (Ed25519). Expiry is checked only if
//! `claims_to_verify` has `exp`.
//!
//! ## Keys of an issuer
//!
//! `jwks_uri` is an extension of Weir's. If a token's header names one of the keys published there in `kid`, that key
//! verifies the token, and the claim `jwks_consumer_claim` names the consumer, by username or custom id. The keys are
//! fetched when they are first needed, and then every five minutes. A token with an unknown `kid` waits while the keys
//! are fetched again; if that brings nothing new, the next such fetch is ten seconds later. While the issuer cannot be
//! reached, the last keys stay in use for an hour.
//!
//! Keys whose `use`, `key_ops` or `alg` name another purpose are left out. Keys that others could sign with are left
//! out and logged: secrets (`oct`), keys that include their private part, RSA keys of less than 2048 bits, and those
//! with the ROCA weakness. If several keys have one `kid`, any of them that fits the algorithm may have signed the
//! token. `aud` is not checked: if an issuer also serves others, make sure that only your tokens name consumers of
//! yours.
//!
//! ```yaml
//! plugins:
//!   - name: jwt
//!     config:
//!       jwks_uri: https://issuer.example.com/.well-known/jwks.json
//!       claims_to_verify: [exp]
//! ```
//!
//! ## Speed
//!
//! Each worker caches a few thousand verified signatures by a keyed hash of the whole token, until credentials change;
//! `exp` and `nbf` are checked every time.
//!
//! ## To the upstream
//!
//! `X-Consumer-ID`, `X-Consumer-Username`, `X-Consumer-Custom-ID` and `X-Credential-Identifier` (the credential's
//! `key`) identify the consumer.
//!
//! ## Responses
//!
//! | status | message | when |
//! |---|---|---|
//! | 401 | `Unauthorized` | there is no token |
//! | 401 | `Multiple tokens provided` | there are several |
//! | 401 | `Unrecognizable token` | the query argument has no value |
//! | 401 | `Bad token; invalid …` | JSON, alg, crit, claims or signature cannot be parsed |
//! | 401 | `No mandatory 'iss' in claims`, `Invalid 'iss' in claims` | the token names no key |
//! | 401 | `No credentials found for given 'iss'` | no credential has this key |
//! | 401 | `No consumer found for given 'sub'` | an issuer's token names no known consumer |
//! | 401 | `Invalid algorithm` | the token's algorithm is not the credential's |
//! | 401 | `Invalid key/secret` | the credential's key cannot be used with its algorithm |
//! | 401 | `Invalid signature` | the signature is wrong |
//! | 401 | `{"exp":"token expired"}`, `{"nbf":"token not valid yet"}`, `{"exp":"must be a number"}`, `{"exp":"exceeds maximum allowed expiration"}` | by `claims_to_verify` and `maximum_expiration` |
//! | 500 | `anonymous consumer … is configured but doesn't exist` | `anonymous` names a consumer that does not exist |
//!
//! Responses with status 401 have `WWW-Authenticate: Bearer`, with the `realm` if one is set, and
//! `error="invalid_token"` if there was a token. With `anonymous`, such requests pass as that consumer instead.

mod cache;
pub(crate) mod claims;
mod credential;
pub(crate) mod jwk;
pub(crate) mod jwks;
pub(crate) mod key;
mod pss;
mod roca;
mod secrets;
pub(crate) mod token;
mod verify;

use crate::shared::authentication::{Consumers, Fallback};
use cache::{Signer, Verified};
use credential::JwtSecret;
use jwks::{KeySet, key_set};
use secrets::Secrets;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use token::Found;
use weir_plugin::{
    BuildContext, Credential, CustomEntity, CustomEntitySchema, Exchange, FieldError, Fingerprinter, Flow,
    Hooks, Json, LocalResponse, Method, Phases, Plugin, Record, Resume,
};

/// Where tokens are found, and what is verified.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
#[record(hint(
    "key",
    "secret",
    "algorithm",
    "rsa_public_key",
    "a consumer has it: write it in `jwt_secrets` of one of the `consumers`, or POST it to /consumers/NAME/jwt"
))]
pub(super) struct Config {
    /// The names of query arguments that may hold the token.
    #[field(set, nullable, default = ["jwt"])]
    pub uri_param_names: Vec<String>,
    /// The names of cookies that may hold the token.
    #[field(set, nullable, default = [])]
    pub cookie_names: Vec<String>,
    /// The names of headers that may hold the token, after `Bearer`.
    #[field(set, nullable, default = ["authorization"], matches = header_name)]
    pub header_names: Vec<String>,
    /// The claim, or else the member of the token's header, that names the credential.
    #[field(nullable, default = "iss")]
    pub key_claim_name: String,
    /// Whether the secrets of HS algorithms are base64.
    #[field(default = false)]
    pub secret_is_base64: bool,
    /// The claims that are checked against the clock.
    #[field(set, one_of = ["exp", "nbf"])]
    pub claims_to_verify: Option<Vec<String>>,
    /// The longest remaining validity of a token in seconds; 0 for any. Needs `exp` in `claims_to_verify`.
    #[field(nullable, default = 0, between = [0, 31_536_000])]
    pub maximum_expiration: f64,
    /// The id or username of the consumer that requests without a valid token pass as.
    pub anonymous: Option<String>,
    /// Requires a token for OPTIONS requests, too.
    #[field(default = true)]
    pub run_on_preflight: bool,
    /// The realm in `WWW-Authenticate`.
    pub realm: Option<String>,
    /// The URL of an issuer's keys (RFC 7517), for tokens that name one of them in `kid`. Kong has no such field.
    #[field(extension, matches = url)]
    pub jwks_uri: Option<String>,
    /// Whether to verify the certificate of the server at `jwks_uri` with `lua_ssl_trusted_certificate`.
    #[field(extension, default = true)]
    pub jwks_ssl_verify: bool,
    /// The claim that names the consumer, by username or custom id, in tokens signed with a key of `jwks_uri`.
    #[field(extension, default = "sub")]
    pub jwks_consumer_claim: String,
}

fn violations(config: &Config) -> Vec<FieldError> {
    if config.maximum_expiration > 0.0 && !config.verifies("exp") {
        let message = "must contain `exp` where `maximum_expiration` is set; write `claims_to_verify: [exp]`";
        return vec![FieldError::new("claims_to_verify", message)];
    }
    Vec::new()
}

impl Config {
    fn verifies(&self, claim: &str) -> bool {
        self.claims_to_verify.iter().flatten().any(|verified| verified == claim)
    }
}

/// One configured instance; requests that wait for keys keep it alive.
pub(super) struct Jwt(Arc<Instance>);

struct Instance {
    verifies_exp: bool,
    verifies_nbf: bool,
    config: Config,
    challenge: String,
    fallback: Fallback,
    secrets: Arc<Secrets>,
    /// The keys of an issuer, and the consumers that its tokens may name.
    issuer: Option<(Arc<KeySet>, Arc<Consumers>)>,
    /// Makes the cache keys of tokens that this instance has verified.
    fingerprinter: Fingerprinter,
}

impl Plugin for Jwt {
    const NAME: &'static str = "jwt";
    const PRIORITY: i32 = 1450;
    const FOR_CONSUMERS: bool = false;
    const ENTITIES: &'static [&'static CustomEntitySchema] = &[JwtSecret::ENTITY];
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let secrets = build.once(Secrets::new);
        let (realm, uri) = (config.realm.as_ref(), config.jwks_uri.as_ref());
        let issuer = uri.map(|uri| {
            let keys = key_set(uri, config.jwks_ssl_verify, build)?;
            Ok::<_, String>((keys, build.once(Consumers::new)))
        });
        Ok(Self(Arc::new(Instance {
            verifies_exp: config.verifies("exp"),
            verifies_nbf: config.verifies("nbf"),
            challenge: realm.map_or_else(|| "Bearer".to_owned(), |realm| format!("Bearer realm=\"{realm}\"")),
            fallback: Fallback::of(config.anonymous.as_deref(), build),
            fingerprinter: secrets.fingerprinter(&config),
            issuer: issuer.transpose()?,
            secrets,
            config,
        })))
    }
}

/// Why a request is refused.
enum Refusal {
    /// There is no token.
    NoToken,
    /// The token is invalid.
    Message(Cow<'static, str>),
    /// It names no credential, and a key that is not known.
    NoKey(Cow<'static, str>),
    /// Its `exp` or `nbf` is invalid.
    Claims { exp: Option<&'static str>, nbf: Option<&'static str> },
}

impl From<&'static str> for Refusal {
    fn from(message: &'static str) -> Self {
        Self::Message(message.into())
    }
}

impl Hooks for Jwt {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let preflight = exchange.request.method == Method::Options;
        if preflight && !self.0.config.run_on_preflight || self.0.fallback.is_settled(exchange) {
            return Flow::Continue;
        }
        let seen = self.0.issuer.as_ref().map_or(0, |(keys, _)| keys.generation());
        let refusal = match self.0.authenticate(exchange) {
            Ok(()) => return Flow::Continue,
            Err(refusal) => refusal,
        };
        // The key may be too new to be known here.
        let fetched = match (&refusal, &self.0.issuer) {
            (Refusal::NoKey(_), Some((keys, _))) => keys.again(seen),
            _ => None,
        };
        let Some(fetched) = fetched else { return self.0.refuse(exchange, refusal) };
        let instance = self.0.clone();
        Flow::Wait(Box::pin(async move {
            fetched.await;
            let again = move |exchange: &mut Exchange| match instance.authenticate(exchange) {
                Ok(()) => Flow::Continue,
                Err(refusal) => instance.refuse(exchange, refusal),
            };
            Box::new(again) as Resume
        }))
    }
}

impl Instance {
    fn refuse(&self, exchange: &mut Exchange, refusal: Refusal) -> Flow {
        self.fallback.unauthenticated(exchange, || self.answer(refusal))
    }

    fn answer(&self, refusal: Refusal) -> LocalResponse {
        let invalid = || format!("{} error=\"invalid_token\"", self.challenge);
        let (answer, challenge) = match refusal {
            Refusal::NoToken => (LocalResponse::message(401, "Unauthorized"), self.challenge.clone()),
            Refusal::Message(message) | Refusal::NoKey(message) => {
                (LocalResponse::message(401, &message), invalid())
            }
            Refusal::Claims { exp, nbf } => {
                let wrong =
                    [("exp", exp), ("nbf", nbf)].into_iter().filter_map(|(name, why)| Some((name, why?)));
                let body: serde_json::Map<_, _> =
                    wrong.map(|(name, why)| (name.to_owned(), why.into())).collect();
                let content_type = Some("application/json; charset=utf-8");
                (LocalResponse::raw(401, content_type, Json::Object(body).to_string()), invalid())
            }
        };
        answer.header("WWW-Authenticate", challenge)
    }

    fn authenticate(&self, exchange: &mut Exchange) -> Result<(), Refusal> {
        let verified = self.verified(exchange)?;
        self.check_claims(&verified)?;
        match verified.signer {
            Signer::Secret(place) => {
                let secret = self.secrets.at(place);
                let credential = Credential { id: secret.id(), identifier: Some(secret.key()) };
                exchange.authenticate(secret.consumer, credential);
            }
            Signer::Issuer(consumer, id) => {
                exchange.authenticate(consumer, Credential { id, identifier: None });
            }
        }
        Ok(())
    }

    /// Verifies the request's token, or finds it in the cache.
    fn verified(&self, exchange: &Exchange) -> Result<Verified, Refusal> {
        let token = match token::find(exchange, &self.config) {
            Found::Nothing => return Err(Refusal::NoToken),
            Found::Several => return Err("Multiple tokens provided".into()),
            Found::NoText => return Err("Unrecognizable token".into()),
            Found::Token(token) => token,
        };
        let keys = self.issuer.as_ref().map(|(keys, _)| keys.get());
        // Added even if there are none, so that a token that begins like another one's version is not taken for it.
        let version = keys.as_ref().map_or(0, |keys| keys.version);
        let fingerprint = self.fingerprinter.clone().with(&version.to_le_bytes()).of(&token);
        if let Some(verified) = cache::get(fingerprint) {
            return Ok(verified);
        }
        let verified = self.verify(&token, keys.as_deref().map(|keys| &**keys))?;
        cache::put(fingerprint, verified);
        Ok(verified)
    }

    fn check_claims(&self, verified: &Verified) -> Result<(), Refusal> {
        if !self.verifies_exp && !self.verifies_nbf {
            return Ok(());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()) as f64;
        let exp = match verified.exp {
            None => Some("must be a number"),
            Some(exp) if exp <= now => Some("token expired"),
            Some(exp) => self.is_too_far(exp - now).then_some("exceeds maximum allowed expiration"),
        };
        let nbf = match verified.nbf {
            None => Some("must be a number"),
            Some(nbf) => (nbf > now).then_some("token not valid yet"),
        };
        let (exp, nbf) = (exp.filter(|_| self.verifies_exp), nbf.filter(|_| self.verifies_nbf));
        if exp.is_none() && nbf.is_none() { Ok(()) } else { Err(Refusal::Claims { exp, nbf }) }
    }

    fn is_too_far(&self, seconds: f64) -> bool {
        self.config.maximum_expiration > 0.0 && seconds > self.config.maximum_expiration
    }
}

#[cfg(test)]
mod forgeries;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wycheproof;
