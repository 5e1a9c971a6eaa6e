//! Authenticates requests by the user name and password of a consumer (RFC 7617).
//!
//! ```yaml
//! consumers:
//!   - username: alice
//!     basicauth_credentials:
//!       - username: alice
//!         password: correct horse
//! plugins:
//!   - name: basic-auth
//!     service: orders
//! ```
//!
//! `curl -u 'alice:correct horse' http://localhost:8000/orders`
//!
//! The plugin reads `Proxy-Authorization` first, then `Authorization`. Passwords are stored as Kong stores them:
//! `hex(sha1(password .. consumer id))`. A password is hashed when it is first seen; later requests with the same one
//! are recognised by a keyed hash, until the configuration changes. An unknown user takes as long as a wrong password.
//! Because the hash depends on the consumer, a `PATCH` that moves a credential to another consumer must send `password`
//! too.
//!
//! ## To the upstream
//!
//! `X-Consumer-ID`, `X-Consumer-Username`, `X-Consumer-Custom-ID` and `X-Credential-Identifier` (the user name)
//! identify the consumer. `hide_credentials` removes the headers that carried the credentials.
//!
//! ## Responses
//!
//! | status | message | when |
//! |---|---|---|
//! | 401 | `Unauthorized` | there are no credentials, or wrong ones |
//! | 500 | `anonymous consumer … is configured but doesn't exist` | `anonymous` names a consumer that does not exist |
//!
//! Responses with status 401 have `WWW-Authenticate: Basic realm="service"`. With `anonymous`, such requests pass as
//! that consumer instead, with `X-Anonymous-Consumer: true`; and a request that another authentication plugin has
//! authenticated needs no password.

mod credential;

use crate::shared::authentication::Fallback;
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use credential::BasicAuthCredential;
use sha1::{Digest, Sha1};
use std::sync::{Arc, OnceLock};
use weir_plugin::{
    BuildContext, ConsumerIndex, Credential, CustomEntity, CustomEntitySchema, Exchange, Fingerprint,
    FingerprintMap, Fingerprinter, Flow, Hooks, Known, LocalResponse, Phases, Plugin, Record, Uuid,
};

/// What happens to requests without valid credentials.
#[derive(Debug, Clone, Record)]
#[record(hint(
    "username",
    "password",
    "users",
    "a consumer has it: write `username` and `password` in `basicauth_credentials` of one of the `consumers`, or POST \
     them to /consumers/NAME/basic-auth"
))]
pub(super) struct Config {
    /// The id or username of the consumer that requests without valid credentials pass as.
    pub anonymous: Option<String>,
    /// Removes the credentials from the request before it goes to the upstream.
    #[field(default = false)]
    pub hide_credentials: bool,
    /// The realm in `WWW-Authenticate`.
    #[field(default = "service")]
    pub realm: String,
}

/// One configured instance.
pub(super) struct BasicAuth {
    hide_credentials: bool,
    challenge: String,
    fallback: Fallback,
    users: Arc<Users>,
}

impl Plugin for BasicAuth {
    const NAME: &'static str = "basic-auth";
    const PRIORITY: i32 = 1100;
    const FOR_CONSUMERS: bool = false;
    const ENTITIES: &'static [&'static CustomEntitySchema] = &[BasicAuthCredential::ENTITY];
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self {
            hide_credentials: config.hide_credentials,
            challenge: format!("Basic realm=\"{}\"", config.realm),
            fallback: Fallback::of(config.anonymous.as_deref(), build),
            users: build.once(Users::new),
        })
    }
}

impl Hooks for BasicAuth {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        if self.fallback.is_settled(exchange) {
            return Flow::Continue;
        }
        match self.authenticate(exchange) {
            Some(user) => {
                let credential = Credential { id: user.id, identifier: Some(&user.name) };
                exchange.authenticate(user.consumer, credential);
                Flow::Continue
            }
            None => self.fallback.unauthenticated(exchange, || {
                LocalResponse::error(401, "Unauthorized").header("WWW-Authenticate", &self.challenge)
            }),
        }
    }
}

impl BasicAuth {
    /// The user whose name and password the request carries. The second header counts only if the first names no
    /// known user.
    fn authenticate(&self, exchange: &mut Exchange) -> Option<&User> {
        let mut decoded = Decoded::default();
        let mut user = None;
        for known in [Known::ProxyAuthorization, Known::Authorization] {
            if let Some(value) = exchange.header(known) {
                decoded.read(value);
                user = decoded.pair().and_then(|(name, _)| self.users.find(name));
                if self.hide_credentials {
                    exchange.request.headers.remove_known(known);
                }
                if user.is_some() {
                    break;
                }
            }
        }
        let (_, password) = decoded.pair()?;
        match user {
            Some(user) => self.users.verify(user, password).then_some(user),
            None => {
                // Hash anyway, so that the response time does not reveal whether the user exists.
                std::hint::black_box(stored_form(password, &Uuid::nil().to_string()));
                None
            }
        }
    }
}

/// The users of the configuration, by their names' fingerprints.
struct Users {
    fingerprinter: Fingerprinter,
    users: FingerprintMap<User>,
}

struct User {
    name: Box<str>,
    id: Uuid,
    consumer: ConsumerIndex,
    consumer_id: Box<str>,
    /// The SHA-1 hash; none if the stored value is not a hexadecimal SHA-1, and then no password is right.
    stored: Option<[u8; 20]>,
    /// The fingerprint of the right password, once it was seen. One per user, so the memory is bounded.
    verified: OnceLock<Fingerprint>,
}

impl Users {
    fn new(build: &BuildContext<'_>) -> Self {
        let fingerprinter = Fingerprinter::with_random_key();
        let user = |credential: &BasicAuthCredential| {
            let user = User {
                name: credential.username.as_str().into(),
                id: credential.id,
                consumer: build.consumer(credential.consumer)?,
                consumer_id: credential.consumer.to_string().into(),
                stored: from_hexadecimal(&credential.password),
                verified: OnceLock::new(),
            };
            Some((fingerprinter.of(credential.username.as_bytes()), user))
        };
        let users = build.entities().filter_map(user).collect();
        Self { fingerprinter, users }
    }

    fn find(&self, name: &[u8]) -> Option<&User> {
        self.users.get(&self.fingerprinter.of(name))
    }

    fn verify(&self, user: &User, password: &[u8]) -> bool {
        let fingerprint = self.fingerprinter.of(password);
        if user.verified.get() == Some(&fingerprint) {
            return true;
        }
        let given = stored_form(password, &user.consumer_id);
        let right = user.stored.as_ref().is_some_and(|stored| equal(stored, &given));
        if right {
            user.verified.get_or_init(|| fingerprint);
        }
        right
    }
}

/// `sha1(password .. consumer id)`, as Kong stores passwords.
fn stored_form(password: &[u8], consumer_id: &str) -> [u8; 20] {
    Sha1::new().chain_update(password).chain_update(consumer_id).finalize().into()
}

fn from_hexadecimal(text: &str) -> Option<[u8; 20]> {
    let mut bytes = [0; 20];
    let fits = text.len() == 40 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    for (index, byte) in bytes.iter_mut().enumerate().filter(|_| fits) {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    fits.then_some(bytes)
}

/// Compares in constant time.
fn equal(one: &[u8; 20], other: &[u8; 20]) -> bool {
    std::hint::black_box(one.iter().zip(other).fold(0, |difference, (a, b)| difference | (a ^ b))) == 0
}

/// The name and password of one header, on the stack unless they are long.
struct Decoded {
    short: [u8; 128],
    long: Vec<u8>,
    len: usize,
}

impl Default for Decoded {
    fn default() -> Self {
        Self { short: [0; 128], long: Vec::new(), len: 0 }
    }
}

/// Base64 as clients write it, with padding or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

impl Decoded {
    /// Reads `Basic …`; anything else leaves nothing.
    fn read(&mut self, header: &[u8]) {
        let token = token(header).unwrap_or_default();
        self.len = 0;
        let needed = base64::decoded_len_estimate(token.len());
        self.long.resize(if needed > self.short.len() { needed } else { 0 }, 0);
        self.len = BASE64.decode_slice(token, self.buffer()).unwrap_or_default();
    }

    fn buffer(&mut self) -> &mut [u8] {
        if self.long.is_empty() { &mut self.short } else { &mut self.long }
    }

    /// The text before the first colon, and the text after it.
    fn pair(&self) -> Option<(&[u8], &[u8])> {
        let text = if self.long.is_empty() { &self.short[..self.len] } else { &self.long[..self.len] };
        let colon = text.iter().position(|byte| *byte == b':').filter(|at| *at > 0)?;
        Some((&text[..colon], &text[colon + 1..]))
    }
}

/// What follows the word `Basic`.
fn token(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.trim_ascii().split_at_checked(5)?;
    scheme.eq_ignore_ascii_case(b"basic").then(|| token.trim_ascii_start())
}

#[cfg(test)]
mod tests;
