//! Credentials of consumers. Their `Debug` shows the id alone.
use crate::pem;
use crate::schema::{FieldError, Record};
use uuid::Uuid;

/// A key of a consumer, for key-auth.
#[derive(Clone, PartialEq, Record)]
#[record(hint("apikey", "api_key", "write `key`"))]
pub struct KeyAuthCredential {
    #[field(auto)]
    pub id: Uuid,
    #[field(foreign = "consumers")]
    pub consumer: Uuid,
    /// The key; made up when not given.
    #[field(auto, unique, secret)]
    pub key: String,
    /// Seconds that the key is valid for.
    #[field(between = [0, 100_000_000])]
    pub ttl: Option<i64>,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    #[field(auto)]
    pub created_at: Option<i64>,
}

impl KeyAuthCredential {
    /// When it ends, in seconds since 1970; none where it lasts, or where it is unknown when it began.
    pub fn expires(&self) -> Option<i64> {
        let ttl = self.ttl.filter(|ttl| *ttl > 0)?;
        Some(self.created_at?.saturating_add(ttl))
    }
}

/// A name and a password, for basic-auth. `password` is always Kong's stored form here: hex(sha1(password ..
/// consumer id)).
#[derive(Clone, PartialEq, Record)]
#[record(hint("user", "name", "write `username`"))]
#[record(hint("pass", "secret", "write `password`"))]
pub struct BasicAuthCredential {
    #[field(auto)]
    pub id: Uuid,
    #[field(foreign = "consumers")]
    pub consumer: Uuid,
    #[field(unique)]
    pub username: String,
    #[field(secret)]
    pub password: String,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    #[field(auto)]
    pub created_at: Option<i64>,
}

/// A name and a secret, for hmac-auth.
#[derive(Clone, PartialEq, Record)]
#[record(hint("user", "name", "write `username`"))]
#[record(hint("key", "password", "write `secret`"))]
pub struct HmacAuthCredential {
    #[field(auto)]
    pub id: Uuid,
    #[field(foreign = "consumers")]
    pub consumer: Uuid,
    #[field(unique)]
    pub username: String,
    /// The secret; made up when not given.
    #[field(auto, secret)]
    pub secret: String,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    #[field(auto)]
    pub created_at: Option<i64>,
}

/// A key that tokens are signed with, for jwt.
#[derive(Clone, PartialEq, Record)]
#[record(check = public_key_fits)]
#[record(hint("iss", "issuer", "write `key`"))]
#[record(hint("alg", "algo", "write `algorithm`"))]
#[record(hint("public_key", "write `rsa_public_key`, for keys of other algorithms too"))]
pub struct JwtSecret {
    #[field(auto)]
    pub id: Uuid,
    #[field(foreign = "consumers")]
    pub consumer: Uuid,
    /// What a token's `iss` claim names; made up when not given.
    #[field(auto, unique)]
    pub key: String,
    /// The secret of an HS algorithm; made up when not given.
    #[field(auto, secret)]
    pub secret: Option<String>,
    #[field(default = "HS256", one_of = [
        "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384",
        "PS512", "EdDSA",
    ])]
    pub algorithm: String,
    /// The public key of any other algorithm, as PEM.
    #[field(matches = public_key)]
    pub rsa_public_key: Option<String>,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    #[field(auto)]
    pub created_at: Option<i64>,
}

fn public_key_fits(secret: &JwtSecret) -> Vec<FieldError> {
    let algorithm = &secret.algorithm;
    let message = match &secret.rsa_public_key {
        _ if algorithm.starts_with("HS") => return Vec::new(),
        None => Err(format!("required with algorithm {algorithm}: set the public key as PEM")),
        Some(key) => pem::public_key_fits(key, algorithm),
    };
    message.err().map(|message| FieldError::new("rsa_public_key", message)).into_iter().collect()
}

/// A group that a consumer is in, for acl.
#[derive(Clone, PartialEq, Record)]
#[record(hint("name", "group_name", "write `group`"))]
pub struct Acl {
    #[field(auto)]
    pub id: Uuid,
    #[field(foreign = "consumers")]
    pub consumer: Uuid,
    pub group: String,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    #[field(auto)]
    pub created_at: Option<i64>,
}

macro_rules! debug_by_id {
    ($($credential:ident),*) => {$(
        impl std::fmt::Debug for $credential {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($credential), "({})"), self.id)
            }
        }
    )*};
}
debug_by_id!(KeyAuthCredential, BasicAuthCredential, HmacAuthCredential, JwtSecret, Acl);
