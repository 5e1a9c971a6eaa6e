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

impl Metadata {
    /// The warning of a document whose issuer is not the one that the URL names. It is used all the same, because many providers
    /// are reached by an internal name.
    fn of_another_issuer(&self, uri: &str) -> Option<String> {
        let (issuer, named) = (&self.issuer, named_by(uri)?);
        let own = issuer.trim_end_matches('/');
        (own != named.trim_end_matches('/')).then(|| {
            format!(
                "the discovery document at {uri} has the issuer {issuer:?}, and its URL is that of the issuer {named:?}: they must \
                 be the same (OpenID Connect Discovery 1.0, 4.3), and tokens of {issuer:?} are accepted; set config.discovery to \
                 {own}/.well-known/openid-configuration, or the provider's issuer to {named:?}"
            )
        })
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
        match self.of_another_issuer(uri) {
            Some(warning) => tracing::warn!("openid-connect: {warning}"),
            None => tracing::info!("{uri} is the discovery document of {:?}", self.issuer),
        }
    }
}

/// The issuer whose document a URL is (OpenID Connect Discovery 1.0, 4.1), if it is that of one.
fn named_by(uri: &str) -> Option<&str> {
    let end = uri.find(['?', '#']).unwrap_or(uri.len());
    uri[..end].strip_suffix("/.well-known/openid-configuration")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(document: &Value, uri: &str) -> Result<Metadata, String> {
        Metadata::read(document.to_string().into(), uri)
    }

    #[test]
    fn the_url_names_the_issuer_or_the_log_warns() {
        let warning =
            |issuer: &str, uri: &str| read(&json!({ "issuer": issuer }), uri).unwrap().of_another_issuer(uri);
        let path = ".well-known/openid-configuration";
        for (issuer, uri) in [
            ("https://a.test/x", format!("https://a.test/x/{path}")),
            ("https://a.test/", format!("https://a.test/{path}?p=policy")),
            ("https://b.test", "https://a.test/document".to_owned()),
        ] {
            assert_eq!(warning(issuer, &uri), None);
        }
        let text = warning("https://b.test", &format!("https://a.test/{path}")).unwrap();
        assert!(text.contains("the issuer \"https://a.test\": they must be the same"), "{text}");
        assert!(text.contains("set config.discovery to https://b.test/.well-known"), "{text}");
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
