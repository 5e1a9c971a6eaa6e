//! HashiCorp Vault or OpenBao, the secrets engine KV of version 2 (`vault`).

use super::super::config::HashiCorpVault;
use super::super::error::AcmeError;
use super::server::{Server, escaped, folder, host, key_in_path, origin};
use http::{HeaderName, Method, Response, StatusCode};
use serde_json::{Value as Json, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use weir_plugin::{BuildContext, Bytes, HttpClient, Secret, Vaults};

const TOKEN: HeaderName = HeaderName::from_static("x-vault-token");

/// Where Kubernetes puts the token of a service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Texts in Vault.
pub(in super::super) struct VaultStorage {
    server: Server,
    /// The path up to `data` and `metadata`, and from there.
    mount: String,
    folder: String,
    access: Access,
}

/// What proves to Vault who the node is.
enum Access {
    Token(Option<Secret>),
    Kubernetes { login: Login, token: Mutex<Option<Secret>> },
}

/// A login with the token of a Kubernetes service account.
struct Login {
    path: String,
    role: String,
    file: String,
    vaults: Arc<Vaults>,
}

impl VaultStorage {
    pub(super) fn new(config: &HashiCorpVault, build: &BuildContext<'_>) -> Result<Self, String> {
        let server = &config.server;
        let (host, port) = (host(server), server.port.unwrap_or(8200));
        let client = match server.https {
            true => {
                let switch = "config.storage_config.vault.tls_verify: false";
                HttpClient::reaching(build.tls_dialer(config.tls_verify, switch)?, host, port)
            }
            false => HttpClient::new(build.dialer()),
        };
        let named = config.tls_server_name.as_deref().filter(|_| server.https).unwrap_or(host);
        let (mount, folder) = folder(server).split_once('/').unwrap_or((folder(server), ""));
        let separator = if folder.is_empty() { "" } else { "/" };
        Ok(Self {
            server: Server::new("Vault", client, origin(server, named, 8200), server),
            mount: escaped(mount),
            folder: format!("{}{separator}", escaped(folder)),
            access: Access::of(config, build),
        })
    }

    pub(super) async fn get(&self, key: &str) -> Result<Option<String>, AcmeError> {
        Ok(self.version(key).await?.0)
    }

    pub(super) async fn set(&self, key: &str, value: &str, ttl: Option<Duration>) -> Result<(), AcmeError> {
        match self.write(key, value, ttl, None).await? {
            true => Ok(()),
            false => Err(self.server.failed("it demands check-and-set of all writes; turn cas_required off")),
        }
    }

    pub(super) async fn add(&self, key: &str, value: &str, ttl: Option<Duration>) -> Result<bool, AcmeError> {
        match self.version(key).await? {
            (Some(_), _) => Ok(false),
            (None, version) => self.write(key, value, ttl, Some(version)).await,
        }
    }

    /// Deletes all versions of a text.
    pub(super) async fn delete(&self, key: &str) -> Result<(), AcmeError> {
        let response = self.ask(&Method::DELETE, &self.path("metadata", key), None).await?;
        match response.status() {
            StatusCode::NO_CONTENT | StatusCode::NOT_FOUND => Ok(()),
            _ => Err(self.server.refused(&response)),
        }
    }

    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<String>, AcmeError> {
        let path = format!("{}?list=true", self.path("metadata", ""));
        let response = self.ask(&Method::GET, &path, None).await?;
        let listed = match response.status() {
            StatusCode::OK => self.json(&response)?,
            StatusCode::NOT_FOUND => return Ok(Vec::new()),
            _ => return Err(self.server.refused(&response)),
        };
        Ok(keys(&listed).filter(|key| key.starts_with(prefix)).map(str::to_owned).collect())
    }

    fn path(&self, part: &str, key: &str) -> String {
        format!("/v1/{}/{part}/{}{}", self.mount, self.folder, key_in_path(key))
    }

    /// The text of a key, if it has one, and the number of its last version.
    async fn version(&self, key: &str) -> Result<(Option<String>, u64), AcmeError> {
        let response = self.ask(&Method::GET, &self.path("data", key), None).await?;
        if !matches!(response.status(), StatusCode::OK | StatusCode::NOT_FOUND) {
            return Err(self.server.refused(&response));
        }
        Ok(version(&self.json(&response)?))
    }

    /// Writes a text; false if it has another version than this one.
    async fn write(
        &self,
        key: &str,
        value: &str,
        ttl: Option<Duration>,
        version: Option<u64>,
    ) -> Result<bool, AcmeError> {
        if let Some(ttl) = ttl {
            let lifetime = json!({ "delete_version_after": format!("{}ms", ttl.as_millis().max(1_000)) });
            let response = self.ask(&Method::POST, &self.path("metadata", key), Some(&lifetime)).await?;
            if response.status() != StatusCode::NO_CONTENT {
                return Err(self.server.refused(&response));
            }
        }
        let mut body = json!({ "data": { "value": value, "note": "managed by Weir" } });
        if let Some(version) = version {
            body["options"] = json!({ "cas": version });
        }
        let response = self.ask(&Method::POST, &self.path("data", key), Some(&body)).await?;
        match response.status() {
            StatusCode::OK => Ok(true),
            StatusCode::BAD_REQUEST if is_conflict(response.body()) => Ok(false),
            _ => Err(self.server.refused(&response)),
        }
    }

    fn json(&self, response: &Response<Bytes>) -> Result<Json, AcmeError> {
        serde_json::from_slice(response.body()).map_err(|_| self.server.malformed())
    }

    /// Asks with the token; with a new one, if the server no longer takes the one that it has given. What a policy does not
    /// allow is not asked for again, because a new token has the same policies.
    async fn ask(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Json>,
    ) -> Result<Response<Bytes>, AcmeError> {
        let body = body.map(ToString::to_string).unwrap_or_default();
        let (login, known) = match &self.access {
            Access::Token(token) => {
                let token = token.as_ref().map(|token| (TOKEN, token.expose()));
                return self.server.ask(method.clone(), path, token, body).await;
            }
            Access::Kubernetes { login, token } => (login, token),
        };
        let (token, is_new) = self.token(login, known, None).await?;
        let response =
            self.server.ask(method.clone(), path, Some((TOKEN, token.expose())), body.clone()).await?;
        if response.status() != StatusCode::FORBIDDEN || is_new || self.is_valid(&token).await? {
            return Ok(response);
        }
        let (token, _) = self.token(login, known, Some(&token)).await?;
        self.server.ask(method.clone(), path, Some((TOKEN, token.expose())), body).await
    }

    /// Whether the server still knows a token, whatever that may do.
    async fn is_valid(&self, token: &Secret) -> Result<bool, AcmeError> {
        let path = "/v1/auth/token/lookup-self";
        let response = self.server.ask(Method::GET, path, Some((TOKEN, token.expose())), "").await?;
        Ok(response.status() == StatusCode::OK)
    }

    /// The token of the last login, unless the server has refused it: then that of a new one; and whether it is new. Others
    /// wait for a login alone.
    async fn token(
        &self,
        login: &Login,
        known: &Mutex<Option<Secret>>,
        refused: Option<&Secret>,
    ) -> Result<(Secret, bool), AcmeError> {
        let mut known = known.lock().await;
        let is_refused = |token: &Secret| refused.is_some_and(|refused| refused.expose() == token.expose());
        if let Some(token) = known.as_ref().filter(|token| !is_refused(token)) {
            return Ok((token.clone(), false));
        }
        let token = self.log_in(login).await?;
        *known = Some(token.clone());
        Ok((token, true))
    }

    async fn log_in(&self, login: &Login) -> Result<Secret, AcmeError> {
        let jwt = login.vaults.token_file(&login.file, "config.storage_config.vault.jwt_path");
        let jwt = jwt.map_err(|why| self.server.failed(&why))?;
        let body = json!({ "role": login.role, "jwt": jwt }).to_string();
        let path = format!("/v1/auth/{}/login", escaped(&login.path));
        let response = self.server.ask(Method::POST, &path, None, body).await?;
        if response.status() != StatusCode::OK {
            let status = response.status().as_u16();
            return Err(self.server.failed(&format!(
                "the login at auth/{} was refused with status {status}; check auth_role and auth_path",
                login.path
            )));
        }
        let answer = self.json(&response)?;
        client_token(&answer).ok_or_else(|| self.server.malformed())
    }
}

impl Access {
    fn of(config: &HashiCorpVault, build: &BuildContext<'_>) -> Self {
        if config.auth_method == "token" {
            return Self::Token(config.server.token.clone());
        }
        let path = config.auth_path.as_deref().unwrap_or("kubernetes").trim_matches('/');
        let login = Login {
            path: path.to_owned(),
            role: config.auth_role.clone().unwrap_or_default(),
            file: config.jwt_path.clone().unwrap_or_else(|| SERVICE_ACCOUNT.to_owned()),
            vaults: build.retained.get(),
        };
        Self::Kubernetes { login, token: Mutex::default() }
    }
}

/// The keys of a list.
fn keys(listed: &Json) -> impl Iterator<Item = &str> {
    listed["data"]["keys"].as_array().into_iter().flatten().filter_map(Json::as_str)
}

/// A text, if there is one, and the number of its version. Of a text that has ended there is the number, with the status 404.
fn version(found: &Json) -> (Option<String>, u64) {
    let version = found["data"]["metadata"]["version"].as_u64().unwrap_or(0);
    (found["data"]["data"]["value"].as_str().map(str::to_owned), version)
}

/// The token of a login.
fn client_token(answer: &Json) -> Option<Secret> {
    answer["auth"]["client_token"].as_str().map(|token| Secret::from(token.to_owned()))
}

/// Reads what the server answers, for fuzzing.
#[cfg(any(test, fuzzing))]
pub(super) fn read_answer(answer: &[u8]) {
    is_conflict(answer);
    if let Ok(answer) = serde_json::from_slice(answer) {
        let _ = (keys(&answer).count(), version(&answer), client_token(&answer));
    }
}

/// Whether another version was written meanwhile, by the server's message.
fn is_conflict(body: &[u8]) -> bool {
    let body: Json = serde_json::from_slice(body).unwrap_or_default();
    let mut errors = body["errors"].as_array().into_iter().flatten().filter_map(Json::as_str);
    errors.any(|error| error.contains("check-and-set"))
}
