//! The gateway as the provider's client: what it asks the token, introspection and revocation endpoints for.

use super::config::Config;
use super::error::ProviderError;
use super::metadata::Metadata;
use super::provider::Provider;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value as Json};
use std::sync::Arc;
use weir_plugin::form::encode;

/// How the client proves who it is.
#[derive(Clone)]
pub(super) enum ClientAuth {
    /// By `Authorization`.
    Basic(HeaderValue),
    /// Among the parameters, with the secret if there is one.
    Parameters(String, Option<String>),
}

/// The client.
pub(super) struct Client {
    pub(super) provider: Arc<Provider>,
    token_auth: ClientAuth,
    introspection_auth: ClientAuth,
    introspection_endpoint: Option<String>,
}

/// What the token endpoint answers (RFC 6749, 5.1).
#[derive(Deserialize)]
pub(super) struct TokenResponse {
    pub(super) access_token: String,
    pub(super) token_type: Option<String>,
    pub(super) expires_in: Option<Json>,
    pub(super) refresh_token: Option<String>,
    pub(super) id_token: Option<String>,
    pub(super) scope: Option<String>,
}

impl TokenResponse {
    /// For how many seconds the access token is valid. Some providers write a text.
    pub(super) fn lifetime(&self) -> Option<u64> {
        match self.expires_in.as_ref()? {
            Json::String(text) => text.parse().ok(),
            number => number.as_f64().filter(|seconds| *seconds >= 0.0).map(|seconds| seconds as u64),
        }
    }
}

/// A form, without the client's parameters.
pub(super) fn form<'p>(parameters: impl IntoIterator<Item = (&'p str, &'p str)>) -> String {
    let mut form = String::new();
    for (name, value) in parameters {
        if !form.is_empty() {
            form.push('&');
        }
        encode(name.as_bytes(), &mut form);
        form.push('=');
        encode(value.as_bytes(), &mut form);
    }
    form
}

impl ClientAuth {
    fn new(config: &Config, method: &str) -> Self {
        let id = &config.client_id;
        let Some(secret) = &config.client_secret else { return Self::Parameters(id.clone(), None) };
        if method == "client_secret_post" {
            return Self::Parameters(id.clone(), Some(secret.expose().to_owned()));
        }
        // Both are encoded as in a form (RFC 6749, 2.3.1).
        let mut pair = String::new();
        encode(id.as_bytes(), &mut pair);
        pair.push(':');
        encode(secret.expose().as_bytes(), &mut pair);
        let value = format!("Basic {}", STANDARD.encode(pair));
        // Base64 can always be in a header.
        let mut value = HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static(""));
        value.set_sensitive(true);
        Self::Basic(value)
    }

    /// A form with what proves who the client is.
    fn add_to<'a>(&'a self, mut parameters: Vec<(&'a str, &'a str)>) -> (String, Option<HeaderValue>) {
        match self {
            Self::Basic(value) => (form(parameters), Some(value.clone())),
            Self::Parameters(id, secret) => {
                parameters.push(("client_id", id));
                parameters.extend(secret.as_ref().map(|secret| ("client_secret", &**secret)));
                (form(parameters), None)
            }
        }
    }
}

impl Client {
    pub(super) fn new(config: &Config, provider: Arc<Provider>) -> Self {
        Self {
            provider,
            token_auth: ClientAuth::new(config, &config.token_endpoint_auth_method),
            introspection_auth: ClientAuth::new(config, &config.introspection_endpoint_auth_method),
            introspection_endpoint: config.introspection_endpoint.clone(),
        }
    }

    /// Gets tokens for a code or for a refresh token.
    pub(super) async fn tokens(
        &self,
        metadata: &Metadata,
        parameters: Vec<(&str, &str)>,
    ) -> Result<TokenResponse, ProviderError> {
        let uri = endpoint(metadata.token_endpoint.as_ref(), "token_endpoint")?;
        let response: TokenResponse =
            self.provider.post(uri, self.token_auth.add_to(parameters), HeaderMap::new()).await?;
        let is_bearer = response.token_type.as_ref().is_none_or(|kind| kind.eq_ignore_ascii_case("bearer"));
        if !is_bearer || response.access_token.is_empty() {
            return Err(ProviderError::Invalid("there is no bearer token in it".into()));
        }
        Ok(response)
    }

    /// What the provider says of an access token. `more` is sent with the question.
    pub(super) async fn introspect(
        &self,
        token: &str,
        more: HeaderMap,
    ) -> Result<Map<String, Json>, ProviderError> {
        let metadata;
        let uri = match &self.introspection_endpoint {
            Some(uri) => uri,
            None => {
                metadata = self.provider.fetched_metadata().await?;
                endpoint(metadata.introspection_endpoint.as_ref(), "introspection_endpoint")?
            }
        };
        let parameters = vec![("token", token), ("token_type_hint", "access_token")];
        self.provider.post(uri, self.introspection_auth.add_to(parameters), more).await
    }

    /// Has the provider revoke tokens, as far as it can (RFC 7009).
    pub(super) async fn revoke(&self, metadata: &Metadata, tokens: &[(&str, String)]) {
        let Some(uri) = &metadata.revocation_endpoint else { return };
        for (hint, token) in tokens {
            let parameters = vec![("token", &**token), ("token_type_hint", *hint)];
            let (form, authorization) = self.token_auth.add_to(parameters);
            let answer = self.provider.post_form(uri, form, authorization, HeaderMap::new()).await;
            match answer.map(|answer| answer.status()) {
                Ok(status) if status.is_success() => {}
                Ok(status) => tracing::warn!("openid-connect: a token was not revoked: status {status}"),
                Err(error) => tracing::warn!("openid-connect: a token was not revoked: {error}"),
            }
        }
    }
}

pub(super) fn endpoint<'m>(uri: Option<&'m String>, name: &str) -> Result<&'m String, ProviderError> {
    uri.ok_or_else(|| ProviderError::Misconfigured(format!("the discovery document has no {name}").into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn forms_are_encoded() {
        assert_eq!(form([("a b", "1&2=3"), ("c", "")]), "a%20b=1%262%3D3&c=");
    }

    #[test]
    fn the_client_proves_itself_in_the_header_or_the_form() {
        let value = STANDARD.encode("a%3Ab:hunter2%2B");
        let parameters = ClientAuth::Parameters("a:b".to_owned(), Some("hunter2+".to_owned()));
        let (form, header) = parameters.add_to(vec![("x", "y")]);
        assert_eq!((&*form, header), ("x=y&client_id=a%3Ab&client_secret=hunter2%2B", None));
        let basic = ClientAuth::Basic(format!("Basic {value}").parse().unwrap());
        let (form, header) = basic.add_to(vec![("x", "y")]);
        assert_eq!((&*form, header.unwrap().to_str().unwrap()), ("x=y", &*format!("Basic {value}")));
    }

    #[test]
    fn lifetimes_are_numbers_or_texts() {
        let of = |expires: Json| {
            serde_json::from_value::<TokenResponse>(json!({ "access_token": "a", "expires_in": expires }))
                .unwrap()
                .lifetime()
        };
        assert_eq!(
            [of(json!(60)), of(json!("60")), of(json!(1.5)), of(json!(-1)), of(json!("x")), of(Json::Null)],
            [Some(60), Some(60), Some(1), None, None, None]
        );
    }
}
