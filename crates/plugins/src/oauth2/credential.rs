//! The entity `oauth2_credentials`.
use super::secret;
use std::fmt;
use weir_plugin::{CustomEntity, CustomEntitySchema, DerivedId, Record, Uuid};

/// A client of a consumer, for oauth2.
#[derive(Clone, PartialEq, Record)]
#[record(hint("redirect_uri", "write `redirect_uris`, a list"))]
#[record(hint("id_of_client", "clientid", "write `client_id`"))]
pub(super) struct OAuth2Credential {
    #[field(auto)]
    pub id: Uuid,
    #[field(foreign = "consumers")]
    pub consumer: Uuid,
    /// The application's name.
    pub name: String,
    /// The client's id; generated if not given.
    #[field(auto, unique)]
    pub client_id: String,
    /// Its secret; generated if not given.
    #[field(auto, secret, literal)]
    pub client_secret: String,
    /// Stores the secret as its hash.
    #[field(default = false)]
    pub hash_secret: bool,
    /// Where users may be sent to with a code or a token; the first one where the client asks for none.
    #[field(check = redirect_uri)]
    pub redirect_uris: Option<Vec<String>>,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    /// Whether the client can keep a secret.
    #[field(default = "confidential", one_of = ["confidential", "public"])]
    pub client_type: String,
    #[field(auto)]
    pub created_at: Option<i64>,
}

fn redirect_uri(uri: &str) -> Result<(), String> {
    let (scheme, rest) = uri.split_once("://").unwrap_or_default();
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    if !is_scheme || rest.split(['/', '?', '#']).next().is_none_or(str::is_empty) {
        return Err(format!("cannot parse '{uri}'; write it with scheme and host"));
    }
    match uri.contains('#') {
        true => Err(format!("fragment not allowed in '{uri}'; leave out what follows `#`")),
        false => Ok(()),
    }
}

impl CustomEntity for OAuth2Credential {
    const ENTITY: &'static CustomEntitySchema = &CustomEntitySchema::of::<Self>("oauth2_credentials")
        .with_paths("oauth2", "oauth2")
        .with_endpoint_key("client_id")
        .with_derived_id(DerivedId::Field("client_id"))
        .with_hashed("client_secret")
        .with_parent_hints(&[(
            &["client_id", "client_secret", "redirect_uris"],
            "write it in a list: `oauth2_credentials: [{name: …, client_id: …}]`",
        )]);

    fn hash_secrets(&mut self) {
        if self.hash_secret && !secret::is_hash(&self.client_secret) {
            // The same file leads to the same hash, so that loading it again changes nothing.
            self.client_secret =
                secret::hash(&self.client_secret, &format!("{} {}", self.id, self.client_id));
        }
    }
}

impl fmt::Debug for OAuth2Credential {
    /// The id alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OAuth2Credential({})", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirect_uris_have_a_host_and_no_fragment() {
        for good in ["https://a.test", "https://a.test/b?c=d", "com.example.app://callback"] {
            assert_eq!(redirect_uri(good), Ok(()), "{good}");
        }
        for wrong in ["", "a.test", "/callback", "https:///x", "://a", "1a://b", "https://a.test/#b"] {
            assert!(redirect_uri(wrong).is_err(), "{wrong}");
        }
    }
}
