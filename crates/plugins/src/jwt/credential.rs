//! The entity `jwt_secrets`.
use std::fmt;
use weir_plugin::rule;
use weir_plugin::{CustomEntity, CustomEntitySchema, DerivedId, FieldError, Record, Uuid};

/// A key that tokens are signed with, for jwt.
#[derive(Clone, PartialEq, Record)]
#[record(check = public_key_fits)]
#[record(hint("iss", "issuer", "write `key`"))]
#[record(hint("alg", "algo", "write `algorithm`"))]
#[record(hint("public_key", "write `rsa_public_key`, for keys of other algorithms too"))]
pub(super) struct JwtSecret {
    #[field(auto)]
    pub id: Uuid,
    #[field(foreign = "consumers")]
    pub consumer: Uuid,
    /// What a token's `iss` claim names; generated if not given.
    #[field(auto, unique)]
    pub key: String,
    /// The secret of an HS algorithm; generated if not given.
    #[field(auto, secret, literal)]
    pub secret: Option<String>,
    #[field(nullable, default = "HS256", one_of = [
        "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384",
        "PS512", "EdDSA",
    ])]
    pub algorithm: String,
    /// The public key of any other algorithm, as PEM.
    #[field(depends_on = "algorithm")]
    pub rsa_public_key: Option<String>,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    #[field(auto)]
    pub created_at: Option<i64>,
}

impl CustomEntity for JwtSecret {
    const ENTITY: &'static CustomEntitySchema = &CustomEntitySchema::of::<Self>("jwt_secrets")
        .with_paths("jwts", "jwt")
        .with_endpoint_key("key")
        .with_derived_id(DerivedId::Field("key"))
        .with_other_names(&["jwt_credentials"])
        .with_parent_hints(&[(&["secret"], "write it in a list: `jwt_secrets: [{key: …, secret: …}]`")]);
}

impl fmt::Debug for JwtSecret {
    /// The id alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JwtSecret({})", self.id)
    }
}

fn public_key_fits(secret: &JwtSecret) -> Vec<FieldError> {
    let algorithm = &secret.algorithm;
    let message = match &secret.rsa_public_key {
        _ if algorithm.starts_with("HS") => return Vec::new(),
        None => Err(format!("required with algorithm {algorithm}: set the public key as PEM")),
        Some(key) => rule::public_key(key).and_then(|()| rule::public_key_fits(key, algorithm)),
    };
    message.err().map(|message| FieldError::new("rsa_public_key", message)).into_iter().collect()
}
