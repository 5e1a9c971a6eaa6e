//! The vault `hcv`: HashiCorp Vault, or OpenBao, with the secrets engine KV of either version.
mod login;

use super::Vault;
use crate::http_client::HttpClient;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use login::{Login, Token};
use rustls::ClientConfig;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_model::SecretReference;
use weir_model::entity::{HcvConfig, KvVersion, find_vault};
use weir_model::schema::{Choice, Json, JsonMap, Kind, Record};
use weir_net::dialer::{Dialer, NodeResolver};

/// The timeout of each request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long a server that did not answer is left alone, so that many secrets do not wait for it one after another.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Secrets of servers, each of which is known by its configuration.
pub struct HcvVault {
    /// What servers are verified with, or why they cannot be.
    tls: Result<Arc<ClientConfig>, String>,
    files: Arc<TokenFiles>,
    servers: Mutex<HashMap<String, Server>>,
}

/// The files that prove to servers who the node is. An entity can name no other, because a client of the Admin API could
/// have any file sent to a server of its own.
pub struct TokenFiles {
    /// The folder of the vault `file`.
    pub directory: PathBuf,
    /// The files that settings name.
    pub named: Vec<PathBuf>,
}

impl Default for TokenFiles {
    fn default() -> Self {
        Self { directory: PathBuf::from("/run/secrets"), named: Vec::new() }
    }
}

/// What is remembered of a server.
#[derive(Default, Clone)]
struct Server {
    /// When it last gave no answer.
    failed: Option<Instant>,
    tokens: HashMap<Login, Token>,
}

type Failure = Cow<'static, str>;

impl Default for HcvVault {
    fn default() -> Self {
        Self::new(Err("no certificate authorities are known".to_owned()), Arc::default())
    }
}

impl HcvVault {
    /// With this TLS configuration for servers, and these files.
    pub fn new(tls: Result<Arc<ClientConfig>, String>, files: Arc<TokenFiles>) -> Self {
        Self { tls, files, servers: Mutex::default() }
    }

    fn server<T>(&self, url: &str, change: impl FnOnce(&mut Server) -> T) -> T {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        change(servers.entry(url.to_owned()).or_default())
    }
}

impl Vault for HcvVault {
    fn get(&self, reference: &SecretReference) -> Result<String, Failure> {
        let config = config(reference)?;
        let url = format!("{}://{}:{}/v1/", config.protocol.as_str(), in_url(&config.host), config.port);
        if self.server(&url, |server| server.failed).is_some_and(|failed| failed.elapsed() < RETRY_AFTER) {
            return Err(format!("{}:{} gave no answer a moment ago", config.host, config.port).into());
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Cow::Owned(error.to_string()))?;
        let resolver = Arc::new(NodeResolver::of_system());
        let dialer = Dialer::new(resolver).with_tls(self.tls.clone(), "protocol=http");
        let client = Client { vault: self, http: HttpClient::new(dialer), url, config };
        runtime.block_on(client.secret(reference))
    }

    fn is_remote(&self) -> bool {
        true
    }
}

/// The configuration that the options of a reference are.
fn config(reference: &SecretReference) -> Result<HcvConfig, Failure> {
    let schema = find_vault("hcv").ok_or("the vault is not available")?.config;
    let typed = |(name, value): &(String, String)| {
        let field = schema.field(name)?;
        let number = || value.parse::<i64>().ok().map(Json::from);
        let value = if let Kind::Integer(..) = field.kind { number()? } else { value.as_str().into() };
        Some((name.clone(), value))
    };
    let members: JsonMap = reference.options.iter().filter_map(typed).collect();
    HcvConfig::from_resolved(&members.into()).map_err(|errors| {
        let fields = errors.into_iter().map(|error| error.path);
        let fields =
            fields.map(|name| format!("{name} (the setting vault_hcv_{name}, or the entity's config)"));
        format!("its configuration is not valid: set {}", fields.collect::<Vec<_>>().join(", ")).into()
    })
}

/// A host as a URL has it.
fn in_url(host: &str) -> Cow<'_, str> {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]").into() } else { host.into() }
}

/// A client of one server, for one secret.
struct Client<'v> {
    vault: &'v HcvVault,
    http: HttpClient,
    /// Up to the path of the engine.
    url: String,
    config: HcvConfig,
}

impl Client<'_> {
    async fn secret(&self, reference: &SecretReference) -> Result<String, Failure> {
        let known = self.known_token()?;
        let is_known = known.is_some();
        let token = match known {
            Some(token) => token,
            None => self.log_in().await?,
        };
        let mut response = self.read(reference, &token).await?;
        // The server may have forgotten the token.
        if response.status() == StatusCode::FORBIDDEN && is_known && self.login().is_some() {
            let token = self.log_in().await?;
            response = self.read(reference, &token).await?;
        }
        let path = &reference.resource;
        match response.status() {
            StatusCode::OK => self.data(response.body()),
            StatusCode::NOT_FOUND => {
                Err(format!("there is no secret {path} in {}", self.config.mount).into())
            }
            StatusCode::FORBIDDEN => {
                Err(format!("the token may not read {path} in {}", self.config.mount).into())
            }
            status => Err(self.refused(status)),
        }
    }

    async fn read(&self, reference: &SecretReference, token: &str) -> Result<Response<Bytes>, Failure> {
        if reference.resource.split('/').any(|part| part == "..") {
            return Err("the path of a secret has no `..`".into());
        }
        let (mount, path) = (self.config.mount.trim_matches('/'), in_path(&reference.resource));
        let url = match (self.config.kv, reference.version) {
            (KvVersion::V1, _) => format!("{}{mount}/{path}", self.url),
            (KvVersion::V2, None) => format!("{}{mount}/data/{path}", self.url),
            (KvVersion::V2, Some(version)) => format!("{}{mount}/data/{path}?version={version}", self.url),
        };
        let mut token = HeaderValue::from_str(token).map_err(|_| "the token is no header's value")?;
        token.set_sensitive(true);
        let request = Request::get(url).header("x-vault-token", token);
        self.send(request, Bytes::new()).await
    }

    async fn send(&self, request: http::request::Builder, body: Bytes) -> Result<Response<Bytes>, Failure> {
        let mut request = request.header("x-vault-request", "true");
        if let Some(namespace) = &self.config.namespace {
            request = request.header("x-vault-namespace", namespace);
        }
        let request = request.body(body).map_err(|error| error.to_string())?;
        let sent = self.http.send(request, TIMEOUT).await;
        self.vault.server(&self.url, |server| server.failed = sent.is_err().then(Instant::now));
        sent.map_err(|error| format!("{}:{}: {error}", self.config.host, self.config.port).into())
    }

    /// The secret's data, as JSON.
    fn data(&self, body: &[u8]) -> Result<String, Failure> {
        let mut body: Json = serde_json::from_slice(body).map_err(|_| "the server's answer is no JSON")?;
        let data = match self.config.kv {
            KvVersion::V1 => body.get_mut("data"),
            KvVersion::V2 => body.get_mut("data").and_then(|data| data.get_mut("data")),
        };
        match data.filter(|data| data.is_object()) {
            Some(data) => Ok(data.to_string()),
            None => {
                let kv = self.config.kv.as_str();
                Err(format!("the server's answer has no data of a secret; check that the engine is kv {kv}")
                    .into())
            }
        }
    }

    fn refused(&self, status: StatusCode) -> Failure {
        format!("{}:{} answered with status {}", self.config.host, self.config.port, status.as_u16()).into()
    }
}

/// A resource as a part of a URL's path.
fn in_path(resource: &str) -> String {
    let mut path = String::with_capacity(resource.len());
    for byte in resource.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                path.push(byte.into())
            }
            _ => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}
