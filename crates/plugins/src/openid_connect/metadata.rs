//! What a provider says of itself (OpenID Connect Discovery 1.0).

use crate::shared::fetched::Document;
use serde::Deserialize;
use weir_plugin::{Bytes, rule};

/// The discovery document, as far as the plugin reads it.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Metadata {
    pub(super) issuer: String,
    pub(super) authorization_endpoint: Option<String>,
    pub(super) token_endpoint: Option<String>,
    pub(super) userinfo_endpoint: Option<String>,
    pub(super) introspection_endpoint: Option<String>,
    pub(super) revocation_endpoint: Option<String>,
    pub(super) end_session_endpoint: Option<String>,
    pub(super) jwks_uri: Option<String>,
    /// Whether it names itself when it sends a browser back (RFC 9207).
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

impl Metadata {
    fn endpoints(&self) -> [Option<&String>; 7] {
        [
            self.authorization_endpoint.as_ref(),
            self.token_endpoint.as_ref(),
            self.userinfo_endpoint.as_ref(),
            self.introspection_endpoint.as_ref(),
            self.revocation_endpoint.as_ref(),
            self.end_session_endpoint.as_ref(),
            self.jwks_uri.as_ref(),
        ]
    }
}

impl Document for Metadata {
    const NAME: &'static str = "discovery document";

    /// A client that reads this document over TLS must not be sent to endpoints in clear, where secrets could be read.
    fn read(text: Bytes, uri: &str) -> Result<Self, String> {
        let read: Self =
            serde_json::from_slice(&text).map_err(|error| format!("it is no discovery document: {error}"))?;
        if read.issuer.is_empty() {
            return Err("its issuer is empty".to_owned());
        }
        let is_tls = uri.starts_with("https://");
        for endpoint in read.endpoints().into_iter().flatten() {
            rule::url(endpoint)?;
            if is_tls && !endpoint.starts_with("https://") {
                return Err(format!("its endpoint {endpoint:?} is without TLS"));
            }
        }
        Ok(read)
    }

    fn is_fetched(&self) -> bool {
        !self.issuer.is_empty()
    }

    fn is_same_as(&self, other: &Self) -> bool {
        self == other
    }

    fn log(&self, uri: &str) {
        tracing::info!("{uri} is the discovery document of {:?}", self.issuer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(document: &Value, uri: &str) -> Result<Metadata, String> {
        Metadata::read(document.to_string().into(), uri)
    }

    #[test]
    fn endpoints_are_urls_and_as_safe_as_the_document() {
        let clear = json!({ "issuer": "http://a.test", "token_endpoint": "http://a.test/token" });
        assert!(read(&clear, "http://a.test/d").unwrap().is_fetched());
        assert!(read(&clear, "https://a.test/d").unwrap_err().contains("without TLS"));
        for wrong in [
            json!({ "issuer": "" }),
            json!({ "token_endpoint": "https://a.test/token" }),
            json!({ "issuer": "a", "jwks_uri": "file:///etc/passwd" }),
            json!({ "issuer": "a", "userinfo_endpoint": 1 }),
            json!([]),
        ] {
            assert!(read(&wrong, "https://a.test/d").is_err(), "{wrong}");
        }
        assert!(!Metadata::default().is_fetched());
    }
}
