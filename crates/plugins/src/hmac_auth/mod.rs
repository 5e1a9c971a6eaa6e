//! Authenticates requests that are signed with the secret of a consumer.
//!
//! ```yaml
//! consumers:
//!   - username: alice
//!     hmacauth_credentials:
//!       - username: alice
//!         secret: correct horse
//! plugins:
//!   - name: hmac-auth
//!     service: orders
//!     config:
//!       enforce_headers: [date, "@request-target"]
//! ```
//!
//! ```sh
//! date="$(LC_ALL=C date -u '+%a, %d %b %Y %H:%M:%S GMT')"
//! signature="$(printf 'date: %s\n@request-target: get /orders' "$date" |
//!   openssl dgst -sha256 -hmac 'correct horse' -binary | base64)"
//! curl -H "Date: $date" -H 'Authorization: hmac username="alice", algorithm="hmac-sha256",
//!   headers="date @request-target", signature="'"$signature"'"' http://localhost:8000/orders
//! ```
//!
//! The plugin reads `Proxy-Authorization` first, then `Authorization`. The signed text has a line for each name in
//! `headers`, joined by line feeds: the name as it is written there, a colon, a space and the value. If the request has
//! no such header, the line is the name and the colon. For `@request-target` the value is the method in lower case, a
//! space, path and query. For `request-line` the line is the request line itself, without a name. Path and query are as
//! the client sent them. A signed header that a request has twice cannot be verified, because the upstream gets both.
//!
//! `X-Date` or `Date` must be within `clock_skew` of the node's clock; if a request has both, a signed one counts. A
//! signature can be replayed within that time, so sign `@request-target`. With `validate_request_body`, sign `digest`
//! too: the plugin compares it with the body (`Digest: SHA-256=…` in base64). A body of more than 1 MiB is refused,
//! because it is not buffered to be compared. A signed text of more than 256 KiB is refused, too.
//!
//! ## To the upstream
//!
//! `X-Consumer-ID`, `X-Consumer-Username`, `X-Consumer-Custom-ID` and `X-Credential-Identifier` (the user name)
//! identify the consumer. `hide_credentials` removes the header that carried the credentials.
//!
//! ## Responses
//!
//! | status | message | when |
//! |---|---|---|
//! | 401 | `Unauthorized` | there are no credentials |
//! | 401 | `HMAC signature cannot be verified, a valid date or x-date header is required for HMAC Authentication` | the date is missing, malformed, or too far off |
//! | 401 | `HMAC signature cannot be verified` | the header is malformed, the algorithm is not in `algorithms`, one of `enforce_headers` is not signed, or the user is unknown |
//! | 401 | `HMAC signature does not match` | the signature is wrong, or the digest is not the body's |
//! | 500 | `anonymous consumer … is configured but doesn't exist` | `anonymous` names a consumer that does not exist |
//!
//! Responses with status 401 have `WWW-Authenticate: hmac`, with the `realm` if one is set. With `anonymous`, such
//! requests pass as that consumer instead, with `X-Anonymous-Consumer: true`; and a request that another authentication
//! plugin has authenticated needs no signature.

mod credential;
mod parameters;
pub(crate) mod signed;

use crate::shared::authentication::Fallback;
use credential::HmacAuthCredential;
use parameters::Parameters;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_plugin::{
    BuildContext, ConsumerIndex, Credential, CustomEntity, CustomEntitySchema, Exchange, FingerprintMap,
    Fingerprinter, Flow, Hooks, Known, LocalResponse, Phases, Plugin, Record, WantsBody,
};

/// How requests are to be signed.
#[derive(Debug, Clone, Record)]
#[record(hint(
    "username",
    "secret",
    "a consumer has it: write `username` and `secret` in `hmacauth_credentials` of one of the `consumers`, or POST \
     them to /consumers/NAME/hmac-auth"
))]
pub(super) struct Config {
    /// Removes the credentials from the request before it goes to the upstream.
    #[field(default = false)]
    pub hide_credentials: bool,
    /// How many seconds the request's date may be off.
    #[field(nullable, default = 300, gt = 0)]
    pub clock_skew: f64,
    /// The id or username of the consumer that requests without a valid signature pass as.
    pub anonymous: Option<String>,
    /// Compares the body with the request's `Digest`. The body is buffered for this.
    #[field(default = false)]
    pub validate_request_body: bool,
    /// The headers that must be signed, as clients write them in `headers`.
    #[field(nullable, default = [])]
    pub enforce_headers: Vec<String>,
    /// The algorithms that clients may use.
    #[field(
        nullable, default = ["hmac-sha1", "hmac-sha256", "hmac-sha384", "hmac-sha512"],
        one_of = ["hmac-sha1", "hmac-sha256", "hmac-sha384", "hmac-sha512"],
    )]
    pub algorithms: Vec<String>,
    /// The realm in `WWW-Authenticate`.
    pub realm: Option<String>,
}

/// One configured instance.
pub(super) struct HmacAuth {
    config: Config,
    challenge: String,
    fallback: Fallback,
    users: Arc<Users>,
}

impl Plugin for HmacAuth {
    const NAME: &'static str = "hmac-auth";
    const PRIORITY: i32 = 1030;
    const FOR_CONSUMERS: bool = false;
    const ENTITIES: &'static [&'static CustomEntitySchema] = &[HmacAuthCredential::ENTITY];
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let realm = config.realm.as_ref();
        Ok(Self {
            challenge: realm.map_or_else(|| "hmac".to_owned(), |realm| format!("hmac realm=\"{realm}\"")),
            fallback: Fallback::of(config.anonymous.as_deref(), build),
            users: build.once(Users::new),
            config,
        })
    }
}

/// The users of the configuration, by their names' fingerprints.
pub(crate) struct Users {
    fingerprinter: Fingerprinter,
    users: FingerprintMap<User>,
}

/// A user, and what is known of it.
pub(crate) struct User {
    pub(crate) consumer: ConsumerIndex,
    pub(crate) entity: Arc<HmacAuthCredential>,
}

impl Users {
    pub(crate) fn new(build: &BuildContext<'_>) -> Self {
        let fingerprinter = Fingerprinter::with_random_key();
        let user = |entity: Arc<HmacAuthCredential>| {
            let fingerprint = fingerprinter.of(entity.username.as_bytes());
            Some((fingerprint, User { consumer: build.consumer(entity.consumer)?, entity }))
        };
        let users = build.shared_entities().filter_map(user).collect();
        Self { fingerprinter, users }
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<&User> {
        self.users.get(&self.fingerprinter.of(name))
    }
}

/// Headers that may carry the date of a request.
const DATES: [&str; 2] = ["X-Date", "Date"];

const NO_DATE: &str =
    "HMAC signature cannot be verified, a valid date or x-date header is required for HMAC Authentication";
const NOT_VALID: &str = "HMAC signature cannot be verified";
const NOT_SAME: &str = "HMAC signature does not match";

impl Hooks for HmacAuth {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        if self.fallback.is_settled(exchange) {
            return Flow::Continue;
        }
        match self.authenticate(exchange) {
            Ok(user) => {
                let credential = Credential { id: user.entity.id, identifier: Some(&user.entity.username) };
                exchange.authenticate(user.consumer, credential);
                Flow::Continue
            }
            Err(message) => self.fallback.unauthenticated(exchange, || {
                LocalResponse::error(401, message).header("WWW-Authenticate", &self.challenge)
            }),
        }
    }

    fn wants_body(&self) -> WantsBody {
        if self.config.validate_request_body { WantsBody::Yes } else { WantsBody::No }
    }
}

impl HmacAuth {
    fn authenticate(&self, exchange: &mut Exchange) -> Result<&User, &'static str> {
        let headers = &exchange.request.headers;
        if ![Known::Authorization, Known::ProxyAuthorization]
            .iter()
            .any(|known| headers.contains_known(*known))
        {
            return Err("Unauthorized");
        }
        if !DATES.iter().any(|name| self.is_timely(exchange, name)) {
            return Err(NO_DATE);
        }
        let of = |known| Parameters::parse(headers.get_known(known)?);
        let (used, parameters) = match of(Known::ProxyAuthorization) {
            Some(parameters) => (Known::ProxyAuthorization, Some(parameters)),
            None => (Known::Authorization, of(Known::Authorization)),
        };
        let verified = parameters.ok_or(NOT_VALID).and_then(|parameters| self.verify(exchange, &parameters));
        if self.config.hide_credentials {
            exchange.request.headers.remove_known(used);
        }
        verified
    }

    fn verify(&self, exchange: &Exchange, parameters: &Parameters<'_>) -> Result<&User, &'static str> {
        let enforced = self.config.enforce_headers.iter();
        let all_signed =
            enforced.clone().all(|name| parameters.headers().any(|signed| signed == name.as_bytes()));
        let mut allowed = self.config.algorithms.iter();
        let algorithm = allowed.find(|name| name.as_bytes() == parameters.algorithm).ok_or(NOT_VALID)?;
        let user = self.users.find(parameters.username).filter(|_| all_signed).ok_or(NOT_VALID)?;
        // A client that replays a request must not replace the date with a fresh one.
        let is_signed =
            |date: &&&str| parameters.headers().any(|name| name.eq_ignore_ascii_case(date.as_bytes()));
        let mut dates = DATES.iter().filter(is_signed).peekable();
        if dates.peek().is_some() && !dates.any(|name| self.is_timely(exchange, name)) {
            return Err(NO_DATE);
        }
        let text = signed::text(exchange, parameters.headers()).ok_or(NOT_VALID)?;
        let same = signed::is_by(&user.entity.secret, algorithm, &text, parameters.signature);
        let body_is_same = || !self.config.validate_request_body || signed::digest_is_of_body(exchange);
        if same && body_is_same() { Ok(user) } else { Err(NOT_SAME) }
    }

    /// Whether the request has this date header, and its date is within the allowed skew.
    fn is_timely(&self, exchange: &Exchange, name: &str) -> bool {
        let date = exchange.request.headers.get(name).and_then(|date| std::str::from_utf8(date).ok());
        let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
        let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        date.is_some_and(|date| {
            seconds(SystemTime::now()).abs_diff(seconds(date)) as f64 <= self.config.clock_skew
        })
    }
}

#[cfg(test)]
mod tests;
