//! Certificates, and the names they serve.
use crate::rule;
use crate::schema::{FieldError, Record};
use uuid::Uuid;

/// A certificate and its key, both as PEM.
#[derive(Clone, PartialEq, Record)]
#[record(check = alternative_is_whole)]
pub struct Certificate {
    #[field(auto)]
    pub id: Uuid,
    /// The certificate, and any intermediates after it.
    #[field(referenceable, matches = certificates)]
    pub cert: String,
    #[field(secret, matches = private_key)]
    pub key: String,
    /// A certificate with another type of key, for clients that prefer it.
    #[field(referenceable, matches = certificates)]
    pub cert_alt: Option<String>,
    #[field(secret, matches = private_key)]
    pub key_alt: Option<String>,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    #[field(auto)]
    pub created_at: Option<i64>,
    #[field(auto)]
    pub updated_at: Option<i64>,
}

fn alternative_is_whole(certificate: &Certificate) -> Vec<FieldError> {
    match (&certificate.cert_alt, &certificate.key_alt) {
        (Some(_), None) => vec![FieldError::new("cert_alt", "needs `key_alt` beside it")],
        (None, Some(_)) => vec![FieldError::new("key_alt", "needs `cert_alt` beside it")],
        _ => Vec::new(),
    }
}

/// A server name that a certificate is presented for.
#[derive(Debug, Clone, PartialEq, Record)]
pub struct Sni {
    #[field(auto)]
    pub id: Uuid,
    /// A host name; one `*` may stand for its first or its last label.
    #[field(unique, check = server_name)]
    pub name: String,
    #[field(foreign = "certificates")]
    pub certificate: Uuid,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    #[field(auto)]
    pub created_at: Option<i64>,
    #[field(auto)]
    pub updated_at: Option<i64>,
}

fn server_name(text: &str) -> Result<(), String> {
    if text == "*" { Ok(()) } else { rule::wildcard_host(text) }
}

/// A certificate authority that upstreams or clients are verified by.
#[derive(Debug, Clone, PartialEq, Record)]
pub struct CaCertificate {
    #[field(auto)]
    pub id: Uuid,
    /// One certificate with CA:TRUE, as PEM.
    #[field(matches = ca_certificate)]
    pub cert: String,
    #[field(unique)]
    pub cert_digest: Option<String>,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    #[field(auto)]
    pub created_at: Option<i64>,
    #[field(auto)]
    pub updated_at: Option<i64>,
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Certificate({})", self.id)
    }
}
