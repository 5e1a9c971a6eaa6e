//! Entities that plugins declare: credentials of consumers, as Kong's plugins have them.
#![allow(missing_docs, dead_code)]
use weir_model::Uuid;
use weir_model::entity::{CustomEntity, CustomEntitySchema, DerivedId};
use weir_model::rule;
use weir_model::schema::{FieldError, Record};

/// A key of a consumer, for key-auth.
#[derive(Clone, PartialEq, Record)]
#[record(hint("apikey", "api_key", "write `key`"))]
pub(crate) struct KeyAuthCredential {
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

/// A name and a password, for basic-auth. `password` is always Kong's stored form here: hex(sha1(password ..
/// consumer id)).
#[derive(Clone, PartialEq, Record)]
#[record(hint("user", "name", "write `username`"))]
#[record(hint("pass", "secret", "write `password`"))]
pub(crate) struct BasicAuthCredential {
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
pub(crate) struct HmacAuthCredential {
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
pub(crate) struct JwtSecret {
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
        Some(key) => rule::public_key_fits(key, algorithm),
    };
    message.err().map(|message| FieldError::new("rsa_public_key", message)).into_iter().collect()
}

/// A group that a consumer is in, for acl.
#[derive(Clone, PartialEq, Record)]
#[record(hint("name", "group_name", "write `group`"))]
pub(crate) struct Acl {
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

impl CustomEntity for KeyAuthCredential {
    const ENTITY: &'static CustomEntitySchema = &CustomEntitySchema::of::<Self>("keyauth_credentials")
        .with_paths("key-auths", "key-auth")
        .with_endpoint_key("key")
        .with_derived_id(DerivedId::Field("key"))
        .with_ttl("ttl")
        .with_other_names(&["api_keys"])
        .with_parent_hints(&[(
            &["key", "apikey", "api_key"],
            "write it in a list: `keyauth_credentials: [{key: …}]`",
        )]);
}

impl CustomEntity for BasicAuthCredential {
    const ENTITY: &'static CustomEntitySchema = &CustomEntitySchema::of::<Self>("basicauth_credentials")
        .with_endpoint_key("username")
        .with_derived_id(DerivedId::CacheKey(&["username"]))
        .with_hashed("password")
        .with_parent_hints(&[(
            &["password"],
            "write it in a list: `basicauth_credentials: [{username: …, password: …}]`",
        )]);

    /// Not a hash that protects anything: for a test it is enough that it depends on both.
    fn hash_secrets(&mut self) {
        self.password = format!("hash of {} for {}", self.password, self.consumer);
    }
}

impl CustomEntity for HmacAuthCredential {
    const ENTITY: &'static CustomEntitySchema = &CustomEntitySchema::of::<Self>("hmacauth_credentials")
        .with_endpoint_key("username")
        .with_derived_id(DerivedId::CacheKey(&["username"]));
}

impl CustomEntity for JwtSecret {
    const ENTITY: &'static CustomEntitySchema = &CustomEntitySchema::of::<Self>("jwt_secrets")
        .with_endpoint_key("key")
        .with_derived_id(DerivedId::Field("key"))
        .with_other_names(&["jwt_credentials"])
        .with_parent_hints(&[(&["secret"], "write it in a list: `jwt_secrets: [{key: …, secret: …}]`")]);
}

impl CustomEntity for Acl {
    const ENTITY: &'static CustomEntitySchema = &CustomEntitySchema::of::<Self>("acls")
        .with_endpoint_key("group")
        .with_unique_together(&["consumer", "group"])
        .with_derived_id(DerivedId::CacheKey(&["consumer", "group"]))
        .with_parent_hints(&[(
            &["group"],
            "write `acls: [{group: …}]` for the plugin acl, or `groups: [{name: …}]`",
        )]);
}
