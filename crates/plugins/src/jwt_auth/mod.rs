//! Authenticates requests by a JSON Web Token that names a consumer's key in its claim `key`. Like APISIX's plugin of
//! this name; Kong's is [jwt](jwt.md).
//!
//! ```yaml
//! consumers:
//!   - username: alice
//!     jwt_auth_credentials:
//!       - key: alice-key
//!         secret: "a secret of at least 32 characters"
//! plugins:
//!   - name: jwt-auth
//!     service: orders
//! ```
//!
//! The token is looked for in the `header`, with or without `Bearer`, then in the query argument `query`, then in the
//! cookie `cookie`. The claim `key_claim_name` contains the `key` of a credential, which determines the algorithm and the
//! key that verify the signature. `exp` and `nbf` are checked if the token has them.
//!
//! ## Responses
//!
//! | status | message | when |
//! |---|---|---|
//! | 401 | `Missing JWT token in request` | there is no token |
//! | 401 | `JWT token invalid` | it cannot be parsed |
//! | 401 | `missing user key in JWT token` | the claim is missing |
//! | 401 | `Invalid user key in JWT token` | no credential has this key |
//! | 401 | `failed to verify jwt` | algorithm, signature, `exp` or `nbf` are wrong |
//!
//! They have `WWW-Authenticate: Bearer realm="jwt"`, with the `realm`. With `anonymous_consumer`, such requests pass as
//! that consumer instead.

mod credential;

use crate::jwt::claims::{Claim, Members};
use crate::jwt::key::Verifier;
use crate::jwt::token::Token;
use crate::shared::authentication::Fallback;
use crate::shared::variables::cookie;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use credential::JwtAuthCredential;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_plugin::{
    BuildContext, ConsumerIndex, Credential, CustomEntity, CustomEntitySchema, Exchange, Flow, Hooks,
    LocalResponse, Phases, Plugin, Record, Uuid, is_same_header,
};

/// Where tokens are found.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// The header that may hold the token.
    #[field(default = "authorization", matches = header_name)]
    pub header: String,
    /// The query argument that may hold the token.
    #[field(default = "jwt")]
    pub query: String,
    /// The cookie that may hold the token.
    #[field(default = "jwt")]
    pub cookie: String,
    /// Removes the header, the argument or the cookie before the upstream is asked.
    #[field(default = false)]
    pub hide_credentials: bool,
    /// The claim that names the credential.
    #[field(default = "key")]
    pub key_claim_name: String,
    /// The realm in `WWW-Authenticate`.
    #[field(default = "jwt")]
    pub realm: String,
    /// The username of the consumer that requests without a valid token pass as.
    pub anonymous_consumer: Option<String>,
}

/// One configured instance.
pub(super) struct JwtAuth {
    config: Config,
    challenge: String,
    fallback: Fallback,
    keys: Arc<Keys>,
}

/// Every credential, by its key.
struct Keys(HashMap<String, Key>);

struct Key {
    consumer: ConsumerIndex,
    id: Uuid,
    algorithm: String,
    verifier: Option<Verifier>,
    grace: f64,
}

impl Keys {
    fn new(build: &BuildContext<'_>) -> Self {
        let key = |credential: &JwtAuthCredential| {
            let key = Key {
                consumer: build.consumer(credential.consumer)?,
                id: credential.id,
                verifier: verifier(credential),
                algorithm: credential.algorithm.clone(),
                grace: credential.lifetime_grace_period.into(),
            };
            Some((credential.key.clone(), key))
        };
        Self(build.entities().filter_map(key).collect())
    }
}

/// The verifier; none if the credential's key cannot be used.
fn verifier(credential: &JwtAuthCredential) -> Option<Verifier> {
    let JwtAuthCredential { algorithm, secret, public_key, base64_secret, .. } = credential;
    if !algorithm.starts_with("HS") {
        return Verifier::of_public_key(algorithm, public_key.as_ref()?.as_bytes());
    }
    let secret = secret.as_ref()?;
    let secret = if *base64_secret { STANDARD.decode(secret).ok()? } else { secret.clone().into_bytes() };
    Verifier::of_secret(algorithm, &secret)
}

impl Plugin for JwtAuth {
    const NAME: &'static str = "jwt-auth";
    const PRIORITY: i32 = 1440;
    const FOR_CONSUMERS: bool = false;
    const ENTITIES: &'static [&'static CustomEntitySchema] = &[JwtAuthCredential::ENTITY];
    const EXTENSION: bool = true;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self {
            challenge: format!("Bearer realm=\"{}\"", config.realm),
            fallback: Fallback::of(config.anonymous_consumer.as_deref(), build),
            keys: build.once(Keys::new),
            config,
        })
    }
}

impl Hooks for JwtAuth {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn owns_request_header(&self, name: &[u8]) -> bool {
        self.config.hide_credentials && is_same_header(self.config.header.as_bytes(), name)
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        if self.fallback.is_settled(exchange) {
            return Flow::Continue;
        }
        let Err(message) = self.authenticate(exchange) else { return Flow::Continue };
        self.fallback.unauthenticated(exchange, || {
            LocalResponse::message(401, message).header("WWW-Authenticate", &self.challenge)
        })
    }
}

/// Where a token was found.
#[derive(Clone, Copy)]
enum Place {
    Header,
    Query,
    Cookie,
}

impl JwtAuth {
    fn authenticate(&self, exchange: &mut Exchange) -> Result<(), &'static str> {
        let (place, token) = self.token(exchange).ok_or("Missing JWT token in request")?;
        let key = self.verify(&token)?;
        exchange.authenticate(key.consumer, Credential { id: key.id, identifier: None });
        if self.config.hide_credentials {
            self.hide(exchange, place);
        }
        Ok(())
    }

    fn token<'e>(&'e self, exchange: &'e Exchange) -> Option<(Place, Cow<'e, [u8]>)> {
        if let Some(value) = exchange.request.headers.get(&self.config.header) {
            let bare = match value.get(..7) {
                Some(scheme) if scheme.eq_ignore_ascii_case(b"bearer ") => &value[7..],
                _ => value,
            };
            return Some((Place::Header, bare.trim_ascii().into()));
        }
        let argument = exchange.query_arg(&self.config.query).and_then(|pair| pair.value);
        let argument = argument.map(|value| (Place::Query, value));
        argument.or_else(|| Some((Place::Cookie, cookie(exchange, &self.config.cookie)?)))
    }

    fn verify(&self, token: &[u8]) -> Result<&Key, &'static str> {
        const INVALID: &str = "JWT token invalid";
        let token = Token::decode(token).map_err(|_| INVALID)?;
        let header = Members::read(&token.header, "").map_err(|_| INVALID)?;
        let claims = Members::read(&token.claims, &self.config.key_claim_name).map_err(|_| INVALID)?;
        let Claim::Text(algorithm) = &header.alg else { return Err(INVALID) };
        let Claim::Text(name) = &claims.named else { return Err("missing user key in JWT token") };
        let key = self.keys.0.get(&**name).ok_or("Invalid user key in JWT token")?;
        let signature = token.signature.as_deref().ok_or(INVALID)?;
        let is_signed = key.algorithm == **algorithm
            && !header.has_critical
            && key.verifier.as_ref().is_some_and(|key| key.verifies(token.signed, signature));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()) as f64;
        // A claim that is no number holds at no time.
        let until = |claim: &Claim<'_>| match claim {
            Claim::Absent => None,
            claim => Some(claim.number().map_or(f64::NAN, |at| at - now)),
        };
        let is_timely = until(&claims.exp).is_none_or(|left| left + key.grace > 0.0)
            && until(&claims.nbf).is_none_or(|left| left - key.grace <= 0.0);
        if is_signed && is_timely { Ok(key) } else { Err("failed to verify jwt") }
    }

    fn hide(&self, exchange: &mut Exchange, place: Place) {
        match place {
            Place::Header => {
                exchange.request.headers.remove(&self.config.header);
            }
            Place::Query => exchange.clear_query_arg(&self.config.query),
            Place::Cookie => without_cookie(exchange, &self.config.cookie),
        }
    }
}

/// Removes a cookie, and leaves the others.
fn without_cookie(exchange: &mut Exchange, name: &str) {
    let lines = exchange.request.headers.get_all("cookie");
    let pairs = lines.flat_map(|line| line.split(|byte| *byte == b';')).map(<[u8]>::trim_ascii);
    let is_named =
        |pair: &&[u8]| pair.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="));
    let left: Vec<_> = pairs.filter(|pair| !is_named(pair)).map(<[u8]>::to_vec).collect();
    exchange.request.headers.remove("Cookie");
    if !left.is_empty() {
        exchange.request.headers.append("Cookie", &left.join(&b"; "[..]));
    }
}
