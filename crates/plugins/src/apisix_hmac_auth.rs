//! Authenticates requests by an HMAC of their headers, as APISIX's plugin hmac-auth. Kong's is [hmac-auth](hmac-auth.md);
//! APISIX's objects call this one `hmac-auth`.
//!
//! ```yaml
//! consumers:
//!   - username: alice
//!     hmacauth_credentials:
//!       - username: alice-key
//!         secret: alice-secret
//! plugins:
//!   - name: apisix-hmac-auth
//!     service: orders
//!     config:
//!       signed_headers: [date]
//! ```
//!
//! The username of a credential is APISIX's `key_id`. A client signs it, and a line for each name in `headers`, as here:
//!
//! ```sh
//! date=$(date -u '+%a, %d %b %Y %H:%M:%S GMT')
//! signature=$(printf 'alice-key\nGET /orders\ndate: %s\n' "$date" |
//!   openssl dgst -sha256 -hmac alice-secret -binary | base64)
//! curl -H "Date: $date" -H 'Authorization: Signature keyId="alice-key",algorithm="hmac-sha256",
//!   headers="@request-target date",signature="'"$signature"'"' http://localhost:8000/orders
//! ```
//!
//! `@request-target` is the method, and the path with its query. A header that the request does not have has no line. The
//! `Date` must be within `clock_skew`; only if it is signed, which `signed_headers` can demand, does it protect from
//! replays. With `validate_request_body`, `Digest` must be that of the body, as `SHA-256=` and base64.
//!
//! ## Responses
//!
//! | status | message | when |
//! |---|---|---|
//! | 401 | `client request can't be validated: missing Authorization header` | there is none |
//! | 401 | `client request can't be validated: Authorization header does not start with 'Signature'` | it is for another scheme |
//! | 401 | `client request can't be validated` | key, algorithm, date, signed headers, signature or digest are wrong |
//!
//! They have `WWW-Authenticate: hmac realm="hmac"`, with the `realm`. With `anonymous_consumer`, such requests pass as that
//! consumer instead.

use crate::hmac_auth::{User, Users, signed};
use crate::shared::authentication::Fallback;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_plugin::{
    BuildContext, Credential, Exchange, Flow, Hooks, Known, LocalResponse, Phases, Plugin, Record, WantsBody,
};

/// How requests are to be signed.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// The algorithms that clients may use.
    #[field(
        default = ["hmac-sha1", "hmac-sha256", "hmac-sha512"],
        one_of = ["hmac-sha1", "hmac-sha256", "hmac-sha512"],
        len_min = 1,
    )]
    pub allowed_algorithms: Vec<String>,
    /// How many seconds the request's date may be off.
    #[field(default = 300, between = [1, 2147483646])]
    pub clock_skew: u32,
    /// The headers that must be signed.
    pub signed_headers: Option<Vec<String>>,
    /// Compares the body with the request's `Digest`. The body is buffered for this.
    #[field(default = false)]
    pub validate_request_body: bool,
    /// Removes `Authorization` before the upstream is asked.
    #[field(default = false)]
    pub hide_credentials: bool,
    /// The realm in `WWW-Authenticate`.
    #[field(default = "hmac")]
    pub realm: String,
    /// The username of the consumer that requests without a valid signature pass as.
    pub anonymous_consumer: Option<String>,
}

/// One configured instance.
pub(super) struct ApisixHmacAuth {
    config: Config,
    challenge: String,
    fallback: Fallback,
    users: Arc<Users>,
}

const INVALID: &str = "client request can't be validated";
const MISSING: &str = "client request can't be validated: missing Authorization header";
const OTHER_SCHEME: &str =
    "client request can't be validated: Authorization header does not start with 'Signature'";

impl Plugin for ApisixHmacAuth {
    const NAME: &'static str = "apisix-hmac-auth";
    const PRIORITY: i32 = 1445;
    const FOR_CONSUMERS: bool = false;
    const EXTENSION: bool = true;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self {
            challenge: format!("hmac realm=\"{}\"", config.realm),
            fallback: Fallback::of(config.anonymous_consumer.as_deref(), build),
            users: build.once(Users::new),
            config,
        })
    }
}

impl Hooks for ApisixHmacAuth {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        if self.fallback.is_settled(exchange) {
            return Flow::Continue;
        }
        let user = match self.authenticate(exchange) {
            Ok(user) => user,
            Err(message) => {
                return self.fallback.unauthenticated(exchange, || {
                    LocalResponse::message(401, message).header("WWW-Authenticate", &self.challenge)
                });
            }
        };
        exchange.authenticate(user.consumer, Credential { id: user.entity.id, identifier: None });
        if self.config.hide_credentials {
            exchange.request.headers.remove_known(Known::Authorization);
        }
        Flow::Continue
    }

    fn wants_body(&self) -> WantsBody {
        if self.config.validate_request_body { WantsBody::Yes } else { WantsBody::No }
    }
}

/// The parts of the header.
#[derive(Default)]
struct Parameters<'a> {
    key_id: &'a [u8],
    algorithm: &'a [u8],
    headers: &'a [u8],
    /// In base64.
    signature: &'a [u8],
}

impl<'a> Parameters<'a> {
    /// Parses what follows the scheme: `name="value"`, in any order.
    fn parse(mut text: &'a [u8]) -> Self {
        let mut parameters = Self::default();
        while let Some(at) = memchr::memmem::find(text, b"=\"") {
            let (before, rest) = (&text[..at], &text[at + 2..]);
            let Some(end) = memchr::memchr(b'"', rest) else { break };
            let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
            let start = before.iter().rposition(|byte| !is_word(byte)).map_or(0, |at| at + 1);
            let value = &rest[..end];
            match &before[start..] {
                b"keyId" => parameters.key_id = value,
                b"algorithm" => parameters.algorithm = value,
                b"headers" => parameters.headers = value,
                b"signature" => parameters.signature = value,
                _ => {}
            }
            text = &rest[end + 1..];
        }
        parameters
    }

    /// The names of the signed headers, in order.
    fn names(&self) -> impl Iterator<Item = &'a [u8]> {
        self.headers.split(|byte| *byte == b' ').filter(|name| !name.is_empty())
    }
}

impl ApisixHmacAuth {
    fn authenticate(&self, exchange: &Exchange) -> Result<&User, &'static str> {
        let header = exchange.header(Known::Authorization).ok_or(MISSING)?;
        let parameters = Parameters::parse(header.strip_prefix(b"Signature").ok_or(OTHER_SCHEME)?);
        self.verify(exchange, &parameters).ok_or(INVALID)
    }

    /// The user who has signed the request.
    fn verify(&self, exchange: &Exchange, parameters: &Parameters<'_>) -> Option<&User> {
        let user = self.users.find(parameters.key_id)?;
        let mut allowed = self.config.allowed_algorithms.iter();
        let algorithm = allowed.find(|name| name.as_bytes() == parameters.algorithm)?;
        let is_signed =
            |name: &String| parameters.names().any(|signed| signed.eq_ignore_ascii_case(name.as_bytes()));
        let is_valid = self.is_timely(exchange)
            && self.config.signed_headers.iter().flatten().all(is_signed)
            && signed::is_by(
                &user.entity.secret,
                algorithm,
                &signed_text(exchange, parameters)?,
                parameters.signature,
            )
            && (!self.config.validate_request_body || has_digest(exchange));
        is_valid.then_some(user)
    }

    /// Whether the request's date is within the allowed skew.
    fn is_timely(&self, exchange: &Exchange) -> bool {
        let date = exchange.request.headers.get("Date").and_then(|date| std::str::from_utf8(date).ok());
        let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        date.and_then(|date| httpdate::parse_http_date(date).ok()).is_some_and(|date| {
            seconds(SystemTime::now()).abs_diff(seconds(date)) <= self.config.clock_skew.into()
        })
    }
}

fn has_digest(exchange: &Exchange) -> bool {
    exchange.request.headers.get("Digest").is_some() && signed::digest_is_of_body(exchange)
}

/// The signed text; none if it is too long, or if a header in it occurs more than once.
fn signed_text(exchange: &Exchange, parameters: &Parameters<'_>) -> Option<Vec<u8>> {
    let mut text = [parameters.key_id, b"\n"].concat();
    for name in parameters.names() {
        let values = std::str::from_utf8(name).ok().map(|name| exchange.request.headers.get_all(name));
        let mut values = values.into_iter().flatten();
        match values.next() {
            // The upstream gets all of them, and only one is signed.
            Some(_) if values.next().is_some() => return None,
            Some(value) => text.extend([name, b": ", value, b"\n"].concat()),
            None if name == b"@request-target" => {
                let line = format!("{} {}\n", exchange.request.method_str(), signed::target(exchange));
                text.extend(line.bytes());
            }
            None => {}
        }
        if text.len() > signed::MAX_SIGNED_LEN {
            return None;
        }
    }
    Some(text)
}
