//! Requests to the CA (RFC 8555): its directory, nonces, and the account.

use super::account::AccountKey;
use super::error::AcmeError;
use super::jws::{Binding, Signer, signed};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, LOCATION, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Response, StatusCode, Uri};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;
use weir_plugin::{Bytes, HttpClient, host_and_port};

/// How long the CA may take for one response.
const TIMEOUT: Duration = Duration::from_secs(20);

/// How often a request is sent again because its nonce was not taken.
const MAX_NONCES: usize = 5;

/// How long to wait before looking again whether the CA has done something, if it does not say.
const PAUSE: Duration = Duration::from_secs(1);
const MIN_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(15);

const NONCE: HeaderName = HeaderName::from_static("replay-nonce");

/// Where the CA takes requests.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Directory {
    new_nonce: String,
    new_account: String,
    new_order: String,
    #[serde(default)]
    meta: Meta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    #[serde(default)]
    external_account_required: bool,
}

/// Why the CA refuses something (RFC 9457).
#[derive(Default, Deserialize)]
pub(super) struct Problem {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    pub(super) detail: String,
}

/// Who asks the CA for an account.
pub(super) struct Applicant<'a> {
    pub(super) email: &'a str,
    pub(super) tos_accepted: bool,
    pub(super) binding: Option<&'a Binding>,
}

/// The CA, and the account there.
pub(super) struct Ca<'a> {
    http: &'a HttpClient,
    pub(super) key: AccountKey,
    directory: Directory,
    /// The account's URL.
    account: String,
    nonce: Option<String>,
}

impl<'a> Ca<'a> {
    /// Finds the CA's URLs, and the account, which is created if the CA does not know its key.
    pub(super) async fn enter(
        http: &'a HttpClient,
        api_uri: &str,
        key: AccountKey,
        applicant: &Applicant<'_>,
    ) -> Result<Self, AcmeError> {
        let directory = directory(http, api_uri).await?;
        let mut ca = Self { http, key, directory, account: String::new(), nonce: None };
        ca.account = ca.find_account(applicant).await?;
        Ok(ca)
    }

    async fn find_account(&mut self, applicant: &Applicant<'_>) -> Result<String, AcmeError> {
        let mut asked = json!({
            "contact": [format!("mailto:{}", applicant.email)],
            "termsOfServiceAgreed": applicant.tos_accepted,
        });
        let url = self.directory.new_account.clone();
        match applicant.binding {
            Some(binding) => asked["externalAccountBinding"] = binding.bind(&self.key, &url),
            None if self.directory.meta.external_account_required => {
                let detail = "it requires an external account binding: set eab_kid and eab_hmac_key";
                return Err(AcmeError::refused("the account", 403, detail));
            }
            None => {}
        }
        let response = self.post(&url, Some(&asked), "the account").await?;
        location(&response).ok_or(AcmeError::Malformed("the account has no URL"))
    }

    /// Orders something; returns the order's URL and the order.
    pub(super) async fn order<T: DeserializeOwned>(
        &mut self,
        asked: &Value,
    ) -> Result<(String, T), AcmeError> {
        let url = self.directory.new_order.clone();
        let response = self.post(&url, Some(asked), "the order").await?;
        let url = location(&response).ok_or(AcmeError::Malformed("the order has no URL"))?;
        Ok((url, read(response.body())?))
    }

    /// Looks at something until it is `done`, as long as the caller waits.
    pub(super) async fn wait<T: DeserializeOwned>(
        &mut self,
        url: &str,
        what: &'static str,
        done: impl Fn(&T) -> bool,
    ) -> Result<T, AcmeError> {
        loop {
            let response = self.post(url, None, what).await?;
            let seen: T = read(response.body())?;
            if done(&seen) {
                return Ok(seen);
            }
            let named =
                response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            tokio::time::sleep(named.map_or(PAUSE, Duration::from_secs).clamp(MIN_PAUSE, MAX_PAUSE)).await;
        }
    }

    /// Sends a signed request, again with a new nonce where the CA does not take the first.
    pub(super) async fn post(
        &mut self,
        url: &str,
        payload: Option<&Value>,
        what: &'static str,
    ) -> Result<Response<Bytes>, AcmeError> {
        let mut refused = AcmeError::Malformed("no nonce is taken");
        for _ in 0..MAX_NONCES {
            let response = self.post_once(url, payload).await?;
            let status = response.status();
            if status.is_success() {
                return Ok(response);
            }
            let problem: Problem = serde_json::from_slice(response.body()).unwrap_or_default();
            refused = AcmeError::refused(what, status.as_u16(), &problem.detail);
            if problem.kind != "urn:ietf:params:acme:error:badNonce" {
                break;
            }
        }
        Err(refused)
    }

    async fn post_once(&mut self, url: &str, payload: Option<&Value>) -> Result<Response<Bytes>, AcmeError> {
        let nonce = match self.nonce.take() {
            Some(nonce) => nonce,
            None => self.new_nonce().await?,
        };
        let signer = match &*self.account {
            "" => Signer::Key,
            account => Signer::Account(account),
        };
        let body = signed(&self.key, &signer, (url, &nonce), payload)?;
        let response = send(self.http, Method::POST, url, body).await?;
        self.nonce = nonce_of(&response);
        Ok(response)
    }

    async fn new_nonce(&self) -> Result<String, AcmeError> {
        let response = send(self.http, Method::HEAD, &self.directory.new_nonce, String::new()).await?;
        nonce_of(&response).ok_or(AcmeError::Malformed("there is no nonce"))
    }
}

/// The CA's directory: at the URL, or, as in Kong, below it.
async fn directory(http: &HttpClient, api_uri: &str) -> Result<Directory, AcmeError> {
    let response = send(http, Method::GET, api_uri, String::new()).await?;
    match read(response.body()) {
        Ok(directory) => Ok(directory),
        Err(error) if api_uri.ends_with("/directory") => Err(error),
        Err(_) => {
            let below = format!("{}/directory", api_uri.trim_end_matches('/'));
            read(send(http, Method::GET, &below, String::new()).await?.body())
        }
    }
}

async fn send(
    http: &HttpClient,
    method: Method,
    url: &str,
    body: String,
) -> Result<Response<Bytes>, AcmeError> {
    let uri: Uri = url.parse().map_err(|_| AcmeError::Malformed("a URL cannot be read"))?;
    let host = host_and_port(&uri).to_owned();
    let request = Request::builder().method(method).uri(uri).header(USER_AGENT, "weir");
    let request = request.header(ACCEPT, "application/json, application/pem-certificate-chain");
    let request = request.header(CONTENT_TYPE, "application/jose+json").body(Bytes::from(body));
    let request = request.map_err(|_| AcmeError::Malformed("a URL cannot be read"))?;
    let response = http.send(request, TIMEOUT).await;
    let response = response.map_err(|error| AcmeError::Unreachable(host, error))?;
    match response.status() {
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => Err(AcmeError::Malformed("it redirects")),
        _ => Ok(response),
    }
}

pub(super) fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, AcmeError> {
    serde_json::from_slice(body).map_err(|_| AcmeError::Malformed("what it sends is of another form"))
}

fn nonce_of(response: &Response<Bytes>) -> Option<String> {
    response.headers().get(NONCE)?.to_str().ok().map(str::to_owned)
}

fn location(response: &Response<Bytes>) -> Option<String> {
    response.headers().get(LOCATION)?.to_str().ok().map(str::to_owned)
}
