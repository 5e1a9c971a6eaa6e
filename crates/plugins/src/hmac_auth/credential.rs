//! The entity `hmacauth_credentials`.
use std::fmt;
use weir_plugin::{CustomEntity, CustomEntitySchema, DerivedId, Record, Uuid};

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
    /// The secret; generated if not given.
    #[field(auto, secret, literal)]
    pub secret: String,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    #[field(auto)]
    pub created_at: Option<i64>,
}

impl CustomEntity for HmacAuthCredential {
    const ENTITY: &'static CustomEntitySchema = &CustomEntitySchema::of::<Self>("hmacauth_credentials")
        .with_paths("hmac-auths", "hmac-auth")
        .with_endpoint_key("username")
        .with_derived_id(DerivedId::CacheKey(&["username"]));
}

impl fmt::Debug for HmacAuthCredential {
    /// The id alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HmacAuthCredential({})", self.id)
    }
}
