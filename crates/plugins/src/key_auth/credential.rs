//! The entity `keyauth_credentials`.
use std::fmt;
use weir_plugin::{CustomEntity, CustomEntitySchema, DerivedId, Record, Uuid};

/// A key of a consumer, for key-auth.
#[derive(Clone, PartialEq, Record)]
#[record(hint("apikey", "api_key", "write `key`"))]
pub(super) struct KeyAuthCredential {
    #[field(auto)]
    pub id: Uuid,
    #[field(foreign = "consumers")]
    pub consumer: Uuid,
    /// The key; generated if not given.
    #[field(auto, unique, secret, literal)]
    pub key: String,
    /// For how many seconds the key is valid.
    #[field(between = [0, 100_000_000])]
    pub ttl: Option<i64>,
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

impl fmt::Debug for KeyAuthCredential {
    /// The id alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyAuthCredential({})", self.id)
    }
}
