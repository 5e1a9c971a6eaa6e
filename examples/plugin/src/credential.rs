//! The entity `api_tokens`: in declarative files below a consumer, in the Admin API at `/api-tokens` and
//! `/consumers/NAME/api-tokens`.
use std::fmt;
use weir_plugin::{CustomEntity, CustomEntitySchema, DerivedId, Record, Uuid};

/// A token of a consumer.
#[derive(Clone, PartialEq, Record)]
pub struct Token {
    #[field(auto)]
    pub id: Uuid,
    #[field(foreign = "consumers")]
    pub consumer: Uuid,
    /// The token; random unless set.
    #[field(auto, unique, secret)]
    pub token: String,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    #[field(auto)]
    pub created_at: Option<i64>,
}

impl CustomEntity for Token {
    const ENTITY: &'static CustomEntitySchema = &CustomEntitySchema::of::<Self>("api_tokens")
        .with_paths("api-tokens", "api-tokens")
        .with_endpoint_key("token")
        .with_derived_id(DerivedId::Field("token"));
}

impl fmt::Debug for Token {
    /// The id alone, because logs must not show a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.id)
    }
}
