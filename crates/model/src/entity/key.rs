//! Keys of JWK or PEM form, and sets of them.
use crate::rule;
use crate::schema::{FieldError, Json, Record};
use crate::secret_reference::is_reference;
use uuid::Uuid;

/// Keys that belong together.
#[derive(Debug, Clone, PartialEq, Record)]
pub struct KeySet {
    #[field(auto)]
    pub id: Uuid,
    /// The name.
    #[field(unique)]
    pub name: Option<String>,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    #[field(auto)]
    pub created_at: Option<i64>,
    #[field(auto)]
    pub updated_at: Option<i64>,
}

/// A key, as JWK or as PEM.
#[derive(Clone, PartialEq, Record)]
#[record(check = one_form)]
#[record(check = jwk_is_a_key)]
pub struct Key {
    #[field(auto)]
    pub id: Uuid,
    /// The set that it belongs to.
    #[field(foreign = "key_sets")]
    pub set: Option<Uuid>,
    /// The name.
    #[field(unique)]
    pub name: Option<String>,
    /// The id by which tokens call it, unique within the set.
    pub kid: String,
    /// The key as a JSON Web Key, written as a string.
    #[field(secret)]
    pub jwk: Option<String>,
    /// The key as PEM.
    pub pem: Option<PemPair>,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    #[field(auto)]
    pub created_at: Option<i64>,
    #[field(auto)]
    pub updated_at: Option<i64>,
}

/// The two halves of a key.
#[derive(Clone, PartialEq, Record)]
#[record(check = one_half)]
pub struct PemPair {
    /// The private key.
    #[field(secret, check = private_key)]
    pub private_key: Option<String>,
    /// The public key.
    #[field(referenceable, check = public_key)]
    pub public_key: Option<String>,
}

/// Leaves out the key itself.
impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({} {})", self.kid, self.id)
    }
}

fn private_key(text: &str) -> Result<(), String> {
    rule::private_key(text).map_err(|why| format!("could not load private key: {why}"))
}

fn public_key(text: &str) -> Result<(), String> {
    rule::public_key(text).map_err(|why| format!("could not load public key: {why}"))
}

fn one_half(pem: &PemPair) -> Vec<FieldError> {
    match (&pem.private_key, &pem.public_key) {
        (None, None) => {
            vec![FieldError::new("", "need to supply a PEM formatted public and/or private key.")]
        }
        _ => Vec::new(),
    }
}

fn one_form(key: &Key) -> Vec<FieldError> {
    let message = match (&key.jwk, &key.pem) {
        (None, None) => "at least one of these fields must be non-empty: 'jwk', 'pem'",
        (Some(_), Some(_)) => "only one or none of these fields must be set: 'jwk', 'pem'",
        _ => return Vec::new(),
    };
    vec![FieldError::new("", message)]
}

fn jwk_is_a_key(key: &Key) -> Vec<FieldError> {
    let Some(jwk) = key.jwk.as_deref().filter(|jwk| !is_reference(jwk)) else { return Vec::new() };
    let message = match serde_json::from_str::<Json>(jwk) {
        Err(_) => "could not json decode jwk string",
        Ok(members) if members.get("kid").and_then(Json::as_str) != Some(&key.kid) => {
            "kid in jwk.kid must be equal to keys.kid"
        }
        Ok(members) if !has_key_material(&members) => "could not load JWK, likely not a valid key",
        Ok(_) => return Vec::new(),
    };
    vec![FieldError::new("", message)]
}

/// Whether the members that RFC 7518 and RFC 8037 require of the type of key are there.
fn has_key_material(jwk: &Json) -> bool {
    let required: &[&str] = match jwk.get("kty").and_then(Json::as_str) {
        Some("RSA") => &["n", "e"],
        Some("EC") => &["crv", "x", "y"],
        Some("OKP") => &["crv", "x"],
        Some("oct") => &["k"],
        _ => return false,
    };
    required.iter().all(|member| jwk.get(member).is_some_and(Json::is_string))
}
