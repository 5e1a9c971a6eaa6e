//! The entity `basicauth_credentials`.
use super::stored_form;
use std::fmt;
use weir_plugin::{CustomEntity, CustomEntitySchema, DerivedId, Record, Uuid};

/// A name and a password, for basic-auth. `password` is always Kong's stored form here: hex(sha1(password ..
/// consumer id)).
#[derive(Clone, PartialEq, Record)]
#[record(hint("user", "name", "write `username`"))]
#[record(hint("pass", "secret", "write `password`"))]
pub(super) struct BasicAuthCredential {
    #[field(auto)]
    pub id: Uuid,
    #[field(foreign = "consumers")]
    pub consumer: Uuid,
    #[field(unique)]
    pub username: String,
    #[field(secret, literal)]
    pub password: String,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    #[field(auto)]
    pub created_at: Option<i64>,
}

impl CustomEntity for BasicAuthCredential {
    const ENTITY: &'static CustomEntitySchema = &CustomEntitySchema::of::<Self>("basicauth_credentials")
        .with_paths("basic-auths", "basic-auth")
        .with_endpoint_key("username")
        .with_derived_id(DerivedId::CacheKey(&["username"]))
        .with_hashed("password")
        .with_parent_hints(&[(
            &["password"],
            "write it in a list: `basicauth_credentials: [{username: …, password: …}]`",
        )]);

    fn hash_secrets(&mut self) {
        let hash = stored_form(self.password.as_bytes(), &self.consumer.to_string());
        self.password = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    }
}

impl fmt::Debug for BasicAuthCredential {
    /// The id alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BasicAuthCredential({})", self.id)
    }
}
