//! The provider: its documents, shared by all plugins that name the same, and the requests to its endpoints.

use super::config::Config;
use super::error::{ProviderError, error_code};
use super::metadata::Metadata;
use crate::jwt::jwks::KeySet;
use crate::shared::fetched::{FetchError, Fetched};
use arc_swap::ArcSwapOption;
use http::{HeaderValue, Request, Response, header};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use weir_plugin::{Background, BuildContext, Bytes, HttpClient};

/// The longest response: more than any token or set of keys takes.
const MAX_RESPONSE_LEN: usize = 256 * 1024;

/// How long connections to the provider are kept.
const IDLE: Duration = Duration::from_secs(60);

/// One provider.
pub(super) struct Provider {
    metadata: Arc<Fetched<Metadata>>,
    /// The keys, once the metadata says where they are.
    keys: ArcSwapOption<KeySet>,
    client: HttpClient,
    timeout: Duration,
    background: Arc<Background>,
}

/// What differs between providers, or in how they are asked.
type Key = (String, bool, Duration, String);

/// The providers in use, shared across configurations.
#[derive(Default)]
struct Providers(Mutex<HashMap<Key, Weak<Provider>>>);

impl Provider {
    /// The provider of a configuration; nothing is fetched yet.
    pub(super) fn of(config: &Config, build: &BuildContext<'_>) -> Result<Arc<Self>, String> {
        let proxies = config.proxies()?;
        let key = (config.discovery.clone(), config.ssl_verify, config.timeout(), format!("{proxies:?}"));
        let providers = build.retained.get::<Providers>();
        let mut providers = providers.0.lock().unwrap_or_else(PoisonError::into_inner);
        providers.retain(|_, provider| provider.strong_count() > 0);
        if let Some(known) = providers.get(&key).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let dialer = build.tls_dialer(config.ssl_verify, "config.ssl_verify: false")?;
        let client = HttpClient::through(proxies, dialer, IDLE).with_max_body_len(MAX_RESPONSE_LEN);
        let (timeout, background) = (config.timeout(), build.background());
        let made = Arc::new(Self {
            metadata: Fetched::new(key.0.clone(), client.clone(), timeout, background.clone()),
            keys: ArcSwapOption::empty(),
            client,
            timeout,
            background,
        });
        providers.insert(key, Arc::downgrade(&made));
        Ok(made)
    }

    pub(super) fn background(&self) -> &Background {
        &self.background
    }

    /// What the provider says of itself, if it was fetched.
    pub(super) fn metadata(&self) -> Option<Arc<Metadata>> {
        let metadata = self.metadata.get();
        (!metadata.issuer.is_empty()).then(|| Arc::clone(&metadata))
    }

    /// The same; waits for it.
    pub(super) async fn fetched_metadata(&self) -> Result<Arc<Metadata>, ProviderError> {
        let seen = self.metadata.generation();
        if let Some(metadata) = self.metadata() {
            return Ok(metadata);
        }
        if let Some(fetched) = self.metadata.again(seen) {
            fetched.await;
        }
        self.metadata().ok_or_else(|| self.no_metadata())
    }

    /// Why there is no discovery document.
    pub(super) fn no_metadata(&self) -> ProviderError {
        match self.metadata.failure() {
            Some(FetchError::Invalid(why)) => {
                ProviderError::Invalid(format!("the discovery document cannot be used: {why}").into())
            }
            _ => ProviderError::Unreachable("there is no discovery document".to_owned()),
        }
    }

    /// The set of its keys, if it is known where they are.
    pub(super) fn key_set(&self) -> Option<Arc<KeySet>> {
        let metadata = self.metadata.get();
        let uri = metadata.jwks_uri.as_deref()?;
        if let Some(known) = self.keys.load_full().filter(|keys| keys.uri() == uri) {
            return Some(known);
        }
        let made = KeySet::new(uri.to_owned(), self.client.clone(), self.timeout, self.background.clone());
        self.keys.store(Some(made.clone()));
        Some(made)
    }

    /// Which keys are known, for [`Provider::fetch_missing`].
    pub(super) fn key_generation(&self) -> u64 {
        self.key_set().map_or(0, |keys| keys.generation())
    }

    /// Waits for the documents that a token could not be verified without: none is known yet, or the key is not among those of this
    /// generation. An issuer is asked at most every ten seconds for keys that it does not have.
    pub(super) async fn fetch_missing(&self, seen: u64) {
        if self.fetched_metadata().await.is_err() {
            return;
        }
        if let Some(fetched) = self.key_set().and_then(|keys| keys.again(seen)) {
            fetched.await;
        }
    }

    /// Posts a form to an endpoint, which answers in JSON.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        uri: &str,
        (form, authorization): (String, Option<HeaderValue>),
        more: http::HeaderMap,
    ) -> Result<T, ProviderError> {
        json(self.post_form(uri, form, authorization, more).await?)
    }

    /// Posts a form to an endpoint.
    pub(super) async fn post_form(
        &self,
        uri: &str,
        form: String,
        authorization: Option<HeaderValue>,
        more: http::HeaderMap,
    ) -> Result<Response<Bytes>, ProviderError> {
        let mut request = Request::post(uri)
            .body(Bytes::from(form))
            .map_err(|error| ProviderError::Misconfigured(error.to_string().into()))?;
        let headers = request.headers_mut();
        *headers = more;
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        authorization.into_iter().for_each(|value| drop(headers.insert(header::AUTHORIZATION, value)));
        Ok(self.client.send(request, self.timeout).await?)
    }

    /// Asks an endpoint with an access token.
    pub(super) async fn get<T: DeserializeOwned>(&self, uri: &str, token: &str) -> Result<T, ProviderError> {
        let invalid = |_| ProviderError::Invalid("the access token cannot be in a header".into());
        let mut authorization = HeaderValue::from_str(&format!("Bearer {token}")).map_err(invalid)?;
        authorization.set_sensitive(true);
        let request = Request::get(uri)
            .header(header::AUTHORIZATION, authorization)
            .header(header::ACCEPT, "application/json")
            .body(Bytes::new())
            .map_err(|error| ProviderError::Misconfigured(error.to_string().into()))?;
        json(self.client.send(request, self.timeout).await?)
    }
}

/// The JSON of a response, or the error that it is (RFC 6749, 5.2).
fn json<T: DeserializeOwned>(response: Response<Bytes>) -> Result<T, ProviderError> {
    let status = response.status().as_u16();
    if status == 429 || (500..600).contains(&status) {
        return Err(ProviderError::Unreachable(format!("its status is {status}")));
    }
    if status != 200 {
        return Err(refusal(status, response.body()));
    }
    // What it says may hold tokens, so the error of the parser is not shown.
    serde_json::from_slice(response.body())
        .map_err(|_| ProviderError::Invalid("it is not the JSON that was expected".into()))
}

/// Errors that the configuration causes; others concern the user or the token.
const OF_THE_CLIENT: [&str; 5] =
    ["invalid_client", "invalid_request", "invalid_scope", "unauthorized_client", "unsupported_grant_type"];

fn refusal(status: u16, body: &[u8]) -> ProviderError {
    let error =
        serde_json::from_slice::<Json>(body).ok().and_then(|body| Some(body["error"].as_str()?.to_owned()));
    match error.as_deref().map(error_code) {
        Some(error) if !OF_THE_CLIENT.contains(&&*error) => ProviderError::Refused(error),
        Some(error) => ProviderError::Misconfigured(
            format!("the provider answered {status}, {error}: look at the client's id and secret, and how it is configured there").into(),
        ),
        None if matches!(status, 401 | 403) => ProviderError::Misconfigured(
            format!("the provider answered {status}: look at the client's id and secret").into(),
        ),
        None => ProviderError::Invalid(format!("its status is {status}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, body: &'static str) -> Result<Json, ProviderError> {
        json(Response::builder().status(status).body(Bytes::from_static(body.as_bytes())).unwrap())
    }

    #[test]
    fn answers_are_json_or_errors() {
        assert_eq!(answered(200, "{\"a\":1}").unwrap()["a"], 1);
        let refused = answered(400, "{\"error\":\"invalid_grant\"}");
        assert_eq!(refused, Err(ProviderError::Refused("invalid_grant".to_owned())));
        let client = answered(401, "{\"error\":\"invalid_client\"}").unwrap_err();
        assert!(
            matches!(&client, ProviderError::Misconfigured(_))
                && client.to_string().contains("invalid_client")
        );
        assert!(matches!(answered(500, "{}"), Err(ProviderError::Unreachable(_))));
        assert!(matches!(answered(302, ""), Err(ProviderError::Invalid(_))));
        assert!(matches!(answered(403, "no"), Err(ProviderError::Misconfigured(_))));
        let rubbish = answered(200, "{\"access_token\":\"hunter2").unwrap_err();
        assert!(!rubbish.to_string().contains("hunter2"));
        let script = answered(400, "{\"error\":\"<script>\"}").unwrap_err();
        assert!(!script.to_string().contains("script"));
    }
}
