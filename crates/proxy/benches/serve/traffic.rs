//! Requests, and the credentials that they carry.

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use rcgen::{KeyPair, PublicKeyData, SigningKey};
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// What requests carry beyond what all have.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Traffic {
    Plain,
    /// From a program that says at length what it is.
    Browser,
    /// From a page of another origin.
    Origin,
    /// A browser's question before it.
    Preflight,
    Key,
    Basic,
    Hmac,
    /// The same token again and again.
    Token,
    /// Tokens signed with this algorithm, more than are remembered.
    Tokens(Algorithm),
    /// A chat with a language model.
    Chat,
    /// A chat by a template.
    Template,
    /// An order as JSON.
    Order,
    /// A signed message of Standard Webhooks.
    Webhook,
    /// A call of gRPC-Web, in base64 or not.
    GrpcWeb {
        is_text: bool,
    },
    /// With the cookie of a session.
    Session,
    /// With an access token of OAuth 2.
    AccessToken,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Algorithm {
    Hs256,
    Rs256,
    Es256,
    EdDsa,
}

const BROWSER: &str =
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36";

const TOKENS: usize = 4096;

/// The plugins of a session. Requests without one are refused, so that it shows if the cookie is not accepted.
pub(crate) const SESSION: &str = "- {name: key-auth, config: {anonymous: c1}}\n\
    - {name: request-termination, consumer: c1, config: {status_code: 403}}\n\
    - {name: session, config: {secret: 'a secret of 32 bytes, no more...', idling_timeout: 0, cookie_secure: false}}\n";

pub(crate) const OAUTH2: &str = "- {name: oauth2, config: {enable_client_credentials: true, global_credentials: true, \
    token_expiration: 0, accept_http_if_already_terminated: true}}\n";

pub(crate) const SECRET: &str = "a secret of 32 bytes, no more...";

const CHAT: &str = "{\"messages\":[{\"role\":\"system\",\"content\":\"You are a teacher.\"},{\"role\":\"user\",\"content\":\
                    \"What is the capital of France, and which river flows through it?\"}],\"temperature\":0.5}";

const TEMPLATE: &str = "{\"messages\":\"{template://city}\",\"properties\":{\"country\":\"France\"}}";

const ORDER: &str =
    "{\"name\":\"A bicycle\",\"count\":3,\"tags\":[\"red\",\"fast\"],\"note\":\"to the garden\"}";

/// A frame with a message of 17 bytes.
const CALL: &str = "\0\0\0\0\x11\x0a\x0fa short message";
const CALL_AS_TEXT: &str = "AAAAABEKD2Egc2hvcnQgbWVzc2FnZQ==";

/// The key of an algorithm's signatures.
enum Signer {
    Secret(Box<hmac::Key>),
    /// Of RSA and Ed25519.
    Pair(KeyPair),
    /// rcgen's signatures are of another form than a token's.
    Ecdsa(KeyPair, EcdsaKeyPair),
}

static HS256: LazyLock<Signer> =
    LazyLock::new(|| Signer::Secret(Box::new(hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()))));
static RS256: LazyLock<Signer> = LazyLock::new(|| Signer::Pair(pair(&rcgen::PKCS_RSA_SHA256)));
static EDDSA: LazyLock<Signer> = LazyLock::new(|| Signer::Pair(pair(&rcgen::PKCS_ED25519)));
static ES256: LazyLock<Signer> = LazyLock::new(|| {
    let pair = pair(&rcgen::PKCS_ECDSA_P256_SHA256);
    let signing = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pair.serialize_der());
    Signer::Ecdsa(pair, signing.expect("a key"))
});

fn pair(algorithm: &'static rcgen::SignatureAlgorithm) -> KeyPair {
    KeyPair::generate_for(algorithm).expect("a pair of keys")
}

impl Algorithm {
    fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }

    fn signer(self) -> &'static Signer {
        match self {
            Self::Hs256 => &HS256,
            Self::Rs256 => &RS256,
            Self::Es256 => &ES256,
            Self::EdDsa => &EDDSA,
        }
    }

    /// The public key as PEM, if it has one.
    pub(crate) fn public_key(self) -> Option<String> {
        match self.signer() {
            Signer::Secret(_) => None,
            Signer::Pair(pair) | Signer::Ecdsa(pair, _) => Some(public_key(pair)),
        }
    }

    fn credential(self) -> String {
        let key = match self.public_key() {
            None => format!("secret: '{SECRET}'"),
            Some(key) => format!("rsa_public_key: {key:?}"),
        };
        format!("  jwt_secrets: [{{key: issuer, algorithm: {}, {key}}}]\n", self.name())
    }

    fn token(self, number: usize) -> String {
        let encode = |text: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(text);
        let header = format!("{{\"alg\":\"{}\",\"typ\":\"JWT\"}}", self.name());
        let claims = format!(
            "{{\"iss\":\"issuer\",\"sub\":\"user-{number}\",\"name\":\"A Name\",\"iat\":1700000000,\"exp\":4000000000}}"
        );
        let signed = format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()));
        let signature = self.signer().sign(signed.as_bytes());
        format!("{signed}.{}", encode(&signature))
    }
}

fn public_key(pair: &KeyPair) -> String {
    let der = BASE64_STANDARD.encode(pair.subject_public_key_info());
    format!("-----BEGIN PUBLIC KEY-----\n{der}\n-----END PUBLIC KEY-----\n")
}

impl Signer {
    fn sign(&self, text: &[u8]) -> Vec<u8> {
        match self {
            Self::Secret(key) => hmac::sign(key, text).as_ref().to_vec(),
            Self::Pair(pair) => pair.sign(text).expect("a signature"),
            Self::Ecdsa(_, key) => {
                key.sign(&SystemRandom::new(), text).expect("a signature").as_ref().to_vec()
            }
        }
    }
}

impl Traffic {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain requests",
            Self::Browser => "requests of a browser",
            Self::Origin => "requests with an origin",
            Self::Preflight => "preflights",
            Self::Key => "requests with a key",
            Self::Basic => "requests with a password",
            Self::Hmac => "signed requests",
            Self::Token => "requests with one token",
            Self::Tokens(Algorithm::Hs256) => "requests with many tokens",
            Self::Tokens(Algorithm::Rs256) => "requests with many tokens (RS256)",
            Self::Tokens(Algorithm::Es256) => "requests with many tokens (ES256)",
            Self::Tokens(Algorithm::EdDsa) => "requests with many tokens (EdDSA)",
            Self::Chat => "chats",
            Self::Template => "chats by a template",
            Self::Order => "orders as JSON",
            Self::Webhook => "signed webhooks",
            Self::GrpcWeb { is_text: false } => "calls of gRPC-Web",
            Self::GrpcWeb { is_text: true } => "calls of gRPC-Web as text",
            Self::Session => "requests with a cookie",
            Self::AccessToken => "requests with an access token",
        }
    }

    /// The credentials of a consumer, as a declarative file lists them.
    pub(crate) fn credentials(self, consumer: usize) -> String {
        match self {
            Self::Plain | Self::Browser | Self::Origin | Self::Preflight => String::new(),
            Self::Chat | Self::Template | Self::Order | Self::Webhook | Self::GrpcWeb { .. } => String::new(),
            Self::AccessToken => {
                let client = format!("name: a, client_id: client-{consumer}, client_secret: secret");
                format!("  oauth2_credentials: [{{{client}}}]\n")
            }
            Self::Key | Self::Session => format!("  keyauth_credentials: [{{key: key-{consumer}}}]\n"),
            Self::Basic => format!(
                "  basicauth_credentials: [{{username: user-{consumer}, password: pass-{consumer}}}]\n"
            ),
            Self::Hmac => {
                format!("  hmacauth_credentials: [{{username: user-{consumer}, secret: '{SECRET}'}}]\n")
            }
            Self::Token => Algorithm::Hs256.credential(),
            Self::Tokens(algorithm) => algorithm.credential(),
        }
    }

    /// The plugins that issue what requests carry, and the request for it.
    pub(crate) fn issuers(self) -> Vec<String> {
        match self {
            Self::Session => vec![SESSION.to_owned()],
            Self::AccessToken => vec![OAUTH2.to_owned()],
            _ => Vec::new(),
        }
    }

    pub(crate) fn login(self) -> Option<Vec<u8>> {
        const HOST: &str = "HTTP/1.1\r\nHost: gateway.test\r\n";
        let request = match self {
            Self::Session => format!("GET / {HOST}apikey: key-0\r\n\r\n"),
            Self::AccessToken => {
                let body = "grant_type=client_credentials&client_id=client-0&client_secret=secret";
                let kind = "Content-Type: application/x-www-form-urlencoded";
                let length = body.len();
                format!(
                    "POST /oauth2/token {HOST}X-Forwarded-Proto: https\r\n{kind}\r\nContent-Length: {length}\r\n\r\n{body}"
                )
            }
            _ => return None,
        };
        Some(request.into_bytes())
    }

    /// Requests that ask for every path and by every consumer, in an order that is no order, with what the response to the login
    /// has issued.
    pub(crate) fn requests(self, paths: usize, consumers: usize, issued: &str) -> Rc<[Vec<u8>]> {
        let many = if let Self::Tokens(_) = self { TOKENS } else { paths.max(consumers) };
        let request = |i: usize| {
            let (path, consumer) = (i * 7919 % paths, i * 6007 % consumers);
            let (method, body) = match self.body() {
                Some(body) => ("POST", body),
                None if self == Self::Preflight => ("OPTIONS", ""),
                None => ("GET", ""),
            };
            let path = format!("/p{path}/x");
            let headers = self.headers(&path, consumer, i, issued);
            let agent = if self == Self::Browser { BROWSER } else { "benchmark" };
            format!(
                "{method} {path} HTTP/1.1\r\nHost: gateway.test\r\nUser-Agent: {agent}\r\nAccept: */*\r\n{headers}\r\n{body}"
            )
            .into_bytes()
        };
        (0..many).map(request).collect()
    }

    fn body(self) -> Option<&'static str> {
        match self {
            Self::Chat => Some(CHAT),
            Self::Template => Some(TEMPLATE),
            Self::Order | Self::Webhook => Some(ORDER),
            Self::GrpcWeb { is_text: false } => Some(CALL),
            Self::GrpcWeb { is_text: true } => Some(CALL_AS_TEXT),
            _ => None,
        }
    }

    fn headers(self, path: &str, consumer: usize, number: usize, issued: &str) -> String {
        const ORIGIN: &str = "Origin: https://shop.example.com\r\n";
        let bearer = |token: String| format!("Authorization: Bearer {token}\r\n");
        match self {
            Self::Plain | Self::Browser => String::new(),
            Self::Origin => ORIGIN.to_owned(),
            Self::Preflight => format!("{ORIGIN}Access-Control-Request-Method: PUT\r\n"),
            Self::Key => format!("apikey: key-{consumer}\r\n"),
            Self::Basic => {
                let pair = format!("user-{consumer}:pass-{consumer}");
                format!("Authorization: Basic {}\r\n", BASE64_STANDARD.encode(pair))
            }
            Self::Hmac => signed(path, consumer),
            Self::Token => bearer(Algorithm::Hs256.token(0)),
            Self::Tokens(algorithm) => bearer(algorithm.token(number)),
            Self::Chat | Self::Template | Self::Order => json_of(self.body().unwrap_or_default()),
            Self::Webhook => format!("{}{}", json_of(ORDER), webhook(number)),
            Self::GrpcWeb { is_text: false } => body_of("application/grpc-web+proto", CALL),
            Self::GrpcWeb { is_text: true } => body_of("application/grpc-web-text", CALL_AS_TEXT),
            Self::Session => format!("Cookie: {}\r\n", between(issued, "Set-Cookie: ", ";")),
            Self::AccessToken => bearer(between(issued, "\"access_token\":\"", "\"").to_owned()),
        }
    }
}

fn json_of(body: &str) -> String {
    body_of("application/json", body)
}

fn body_of(content_type: &str, body: &str) -> String {
    format!("Content-Type: {content_type}\r\nContent-Length: {}\r\n", body.len())
}

/// The text between two others.
fn between<'t>(text: &'t str, before: &str, after: &str) -> &'t str {
    let found = text.split_once(before).and_then(|(_, rest)| rest.split_once(after));
    found.unwrap_or_else(|| panic!("the login has not worked: {text}")).0
}

/// The headers of a signed message.
fn webhook(number: usize) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    let signature = HS256.sign(format!("msg_{number}.{now}.{ORDER}").as_bytes());
    let signature = BASE64_STANDARD.encode(signature);
    format!("webhook-id: msg_{number}\r\nwebhook-timestamp: {now}\r\nwebhook-signature: v1,{signature}\r\n")
}

/// A signature of the request's line and date.
fn signed(path: &str, consumer: usize) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    let date = httpdate::fmt_http_date(UNIX_EPOCH + std::time::Duration::from_secs(now));
    let text = format!("date: {date}\n@request-target: get {path}");
    let signature = BASE64_STANDARD.encode(HS256.sign(text.as_bytes()));
    format!(
        "Date: {date}\r\nAuthorization: hmac username=\"user-{consumer}\", algorithm=\"hmac-sha256\", \
         headers=\"date @request-target\", signature=\"{signature}\"\r\n"
    )
}
