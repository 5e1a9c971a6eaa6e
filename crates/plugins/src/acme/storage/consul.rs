//! Consul's KV store (`consul`). A text that ends has the time, in milliseconds since 1970, in its flags, as Kong writes it.

use super::super::config::HashiCorp;
use super::super::error::AcmeError;
use super::server::{Server, escaped, folder, host, key_in_path, origin};
use base64::prelude::{BASE64_STANDARD, Engine};
use http::{HeaderName, Method, StatusCode};
use serde::Deserialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_plugin::{BuildContext, Bytes, HttpClient, Secret};

const TOKEN: HeaderName = HeaderName::from_static("x-consul-token");

/// Texts in Consul.
pub(in super::super) struct ConsulStorage {
    server: Server,
    token: Option<Secret>,
    folder: String,
}

/// An entry, as the API has it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    value: Option<String>,
    flags: u64,
    modify_index: u64,
}

impl Entry {
    /// The first of a response, if it has any.
    fn first(body: &[u8]) -> serde_json::Result<Option<Self>> {
        serde_json::from_slice::<Vec<Self>>(body).map(|entries| entries.into_iter().next())
    }

    fn has_ended(&self) -> bool {
        self.flags > 0 && self.flags <= now()
    }
}

/// Reads what the server answers, for fuzzing.
#[cfg(any(test, fuzzing))]
pub(super) fn read_answer(answer: &[u8]) {
    if let Ok(Some(entry)) = Entry::first(answer) {
        let _ = (entry.has_ended(), entry.value.map(|value| text(&value)));
    }
}

/// The text that a value is the base64 of, if it is one.
fn text(value: &str) -> Option<String> {
    BASE64_STANDARD.decode(value).ok().and_then(|bytes| String::from_utf8(bytes).ok())
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// When a text ends: 0 for never.
fn end(ttl: Option<Duration>) -> u64 {
    ttl.map_or(0, |ttl| now().saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)))
}

impl ConsulStorage {
    pub(super) fn new(config: &HashiCorp, build: &BuildContext<'_>) -> Result<Self, String> {
        let dialer = match config.https {
            true => build.tls_dialer(true, "config.storage_config.consul.https: false")?,
            false => build.dialer(),
        };
        let origin = origin(config, host(config), 8500);
        Ok(Self {
            server: Server::new("Consul", HttpClient::new(dialer), origin, config),
            token: config.token.clone(),
            folder: folder(config).to_owned(),
        })
    }

    pub(super) async fn get(&self, key: &str) -> Result<Option<String>, AcmeError> {
        let entry = self.entry(key).await?.filter(|entry| !entry.has_ended());
        let Some(value) = entry.and_then(|entry| entry.value) else { return Ok(None) };
        text(&value).map(Some).ok_or_else(|| self.server.failed(&format!("{key} is no text")))
    }

    pub(super) async fn set(&self, key: &str, value: &str, ttl: Option<Duration>) -> Result<(), AcmeError> {
        match self.put(key, value, &format!("flags={}", end(ttl))).await? {
            true => Ok(()),
            false => Err(self.server.malformed()),
        }
    }

    pub(super) async fn add(&self, key: &str, value: &str, ttl: Option<Duration>) -> Result<bool, AcmeError> {
        let before = match self.entry(key).await? {
            None => 0,
            Some(entry) if entry.has_ended() => entry.modify_index,
            Some(_) => return Ok(false),
        };
        self.put(key, value, &format!("flags={}&cas={before}", end(ttl))).await
    }

    pub(super) async fn delete(&self, key: &str) -> Result<(), AcmeError> {
        self.ask(Method::DELETE, &self.path(key), "").await.map(drop)
    }

    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<String>, AcmeError> {
        let path = format!("{}?keys", self.path(prefix));
        let Some(body) = self.ask(Method::GET, &path, "").await? else { return Ok(Vec::new()) };
        let keys: Vec<String> = serde_json::from_slice(&body).map_err(|_| self.server.malformed())?;
        let own = |key: String| Some(key.strip_prefix(&self.folder)?.trim_start_matches('/').to_owned());
        Ok(keys.into_iter().filter_map(own).collect())
    }

    fn path(&self, key: &str) -> String {
        let separator = if self.folder.is_empty() { "" } else { "/" };
        format!("/v1/kv/{}{separator}{}", escaped(&self.folder), key_in_path(key))
    }

    async fn entry(&self, key: &str) -> Result<Option<Entry>, AcmeError> {
        let Some(body) = self.ask(Method::GET, &self.path(key), "").await? else { return Ok(None) };
        Entry::first(&body).map_err(|_| self.server.malformed())
    }

    /// Writes a text; false if it has been written since the version that `query` names.
    async fn put(&self, key: &str, value: &str, query: &str) -> Result<bool, AcmeError> {
        let path = format!("{}?{query}", self.path(key));
        let body = self.ask(Method::PUT, &path, value).await?.unwrap_or_default();
        serde_json::from_slice(&body).map_err(|_| self.server.malformed())
    }

    /// The body of the response; none if there is no such key.
    async fn ask(&self, method: Method, path: &str, body: &str) -> Result<Option<Bytes>, AcmeError> {
        let token = self.token.as_ref().map(|token| (TOKEN, token.expose()));
        let response = self.server.ask(method, path, token, body.as_bytes().to_vec()).await?;
        match response.status() {
            StatusCode::OK => Ok(Some(response.into_body())),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(self.server.refused(&response)),
        }
    }
}
