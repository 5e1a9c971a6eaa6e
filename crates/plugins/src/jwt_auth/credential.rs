//! The entity `jwt_auth_credentials`.

use std::fmt;
use weir_plugin::rule;
use weir_plugin::{CustomEntity, CustomEntitySchema, DerivedId, FieldError, Record, Uuid};

/// A key that tokens are signed with, for jwt-auth.
#[derive(Clone, PartialEq, Record)]
#[record(check = key_fits)]
pub(super) struct JwtAuthCredential {
    #[field(auto)]
    pub id: Uuid,
    #[field(foreign = "consumers")]
    pub consumer: Uuid,
    /// What a token's claim `key` names.
    #[field(unique)]
    pub key: String,
    /// The secret of an HS algorithm.
    #[field(secret, literal)]
    pub secret: Option<String>,
    /// Whether `secret` is base64.
    #[field(default = false)]
    pub base64_secret: bool,
    /// The public key of any other algorithm, as PEM.
    #[field(matches = public_key)]
    pub public_key: Option<String>,
    #[field(default = "HS256", one_of = [
        "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384",
        "PS512", "EdDSA",
    ])]
    pub algorithm: String,
    /// By how many seconds the clocks of the gateway and of those who sign may differ.
    #[field(default = 0, between = [0, 86400])]
    pub lifetime_grace_period: u32,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    #[field(auto)]
    pub created_at: Option<i64>,
}

impl CustomEntity for JwtAuthCredential {
    const ENTITY: &'static CustomEntitySchema = &CustomEntitySchema::of::<Self>("jwt_auth_credentials")
        .with_paths("jwt-auths", "jwt-auth")
        .with_endpoint_key("key")
        .with_derived_id(DerivedId::Field("key"));
}

impl fmt::Debug for JwtAuthCredential {
    /// The id alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JwtAuthCredential({})", self.id)
    }
}

fn key_fits(credential: &JwtAuthCredential) -> Vec<FieldError> {
    let algorithm = &credential.algorithm;
    let error = match &credential.public_key {
        _ if algorithm.starts_with("HS") && credential.secret.is_none() => {
            Some(("secret", format!("required with algorithm {algorithm}")))
        }
        _ if algorithm.starts_with("HS") => None,
        None => {
            Some(("public_key", format!("required with algorithm {algorithm}: set the public key as PEM")))
        }
        Some(key) => rule::public_key_fits(key, algorithm).err().map(|message| ("public_key", message)),
    };
    error.map(|(field, message)| FieldError::new(field, message)).into_iter().collect()
}
