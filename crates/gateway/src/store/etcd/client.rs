//! A client of etcd's API: whichever of the endpoints answers, with a login if there is one.
use super::message::{AuthenticateRequest, AuthenticateResponse};
use crate::settings::{EtcdEndpoints, Password, Settings, trusted_certificate_files};
use crate::store::StoreError;
use axum::http::Uri;
use axum::http::header::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use prost::Message;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use weir_net::dialer::{Dialer, NodeResolver};
use weir_net::resolve::{Resolver, ResolverOptions};
use weir_net::tls::{Verify, ca_certificates, client_certificate, client_config};
use weir_plugin::{CallError, GrpcClient, GrpcStream};

/// The longest reply. etcd's own limit of a request is 1.5 MiB, and a page holds many objects.
const MAX_REPLY_LEN: usize = 64 * 1024 * 1024;

/// Codes of gRPC.
const INVALID_ARGUMENT: u32 = 3;
const PERMISSION_DENIED: u32 = 7;
const RESOURCE_EXHAUSTED: u32 = 8;
const UNAVAILABLE: u32 = 14;
const UNAUTHENTICATED: u32 = 16;

/// What a server that asks for a login says to whom has none.
const NO_USER: &str = "user name is empty";

/// etcd, by any of its endpoints.
pub(super) struct EtcdClient {
    endpoints: EtcdEndpoints,
    /// The endpoint that answered last.
    preferred: AtomicUsize,
    login: Option<(String, Password)>,
    /// What the login brought.
    token: Mutex<Option<HeaderValue>>,
    client: GrpcClient,
    timeout: Duration,
}

/// What a call brings.
enum Reply {
    Whole(Bytes),
    Stream(Box<GrpcStream>),
}

impl EtcdClient {
    /// The servers that the settings name.
    pub(super) fn of(endpoints: EtcdEndpoints, settings: &Settings) -> Result<EtcdClient, StoreError> {
        let login = settings.apisix_etcd_user.clone().zip(settings.apisix_etcd_password.clone());
        Ok(EtcdClient {
            client: GrpcClient::new(dialer(settings)?).with_max_reply_len(MAX_REPLY_LEN),
            endpoints,
            preferred: AtomicUsize::new(0),
            login,
            token: Mutex::default(),
            timeout: settings.apisix_etcd_timeout,
        })
    }

    /// The name of the servers in messages.
    pub(super) fn place(&self) -> String {
        format!("etcd at {}", self.endpoints)
    }

    /// Calls a method, which may be repeated without harm.
    pub(super) async fn call<R: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<R, StoreError> {
        match self.anywhere(method, &request.encode_to_vec(), false).await? {
            Reply::Whole(reply) => self.decoded(&reply),
            Reply::Stream(_) => Err(self.failure(CallError::Failed("the reply is a stream".to_owned()))),
        }
    }

    fn decoded<R: Message + Default>(&self, reply: &[u8]) -> Result<R, StoreError> {
        R::decode(reply).map_err(|error| self.failure(CallError::Failed(error.to_string())))
    }

    /// Calls a method once, at the endpoint that answered last, because what it does may not be repeated.
    pub(super) async fn call_once<R: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<R, StoreError> {
        let (message, uri) = (request.encode_to_vec(), url(self.endpoint(0), method));
        let uri = uri.map_err(|error| self.failure(error))?;
        let mut called = self.client.call(uri.clone(), self.metadata().await?, &message, self.timeout).await;
        // Nothing was done then.
        if self.has_expired(&called) {
            called = self.client.call(uri, self.metadata().await?, &message, self.timeout).await;
        }
        self.decoded(&called.map_err(|error| self.failure(error))?)
    }

    /// Calls a method with a stream of replies.
    pub(super) async fn stream(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<GrpcStream, StoreError> {
        match self.anywhere(method, &request.encode_to_vec(), true).await? {
            Reply::Stream(stream) => Ok(*stream),
            Reply::Whole(_) => Err(self.failure(CallError::Failed("the reply is no stream".to_owned()))),
        }
    }

    fn endpoint(&self, nth: usize) -> &str {
        let at = (self.preferred.load(Ordering::Relaxed) + nth) % self.endpoints.0.len();
        &self.endpoints.0[at]
    }

    /// Tries one endpoint after the other, and logs in again where the token has expired.
    async fn anywhere(&self, method: &str, message: &[u8], streams: bool) -> Result<Reply, StoreError> {
        let mut failed = CallError::Timeout;
        for nth in 0..self.endpoints.0.len() {
            let uri = url(self.endpoint(nth), method).map_err(|error| self.failure(error))?;
            let mut called = self.ask(uri.clone(), message, streams).await?;
            if self.has_expired(&called) {
                called = self.ask(uri, message, streams).await?;
            }
            match called {
                Ok(reply) => {
                    self.preferred.fetch_add(nth, Ordering::Relaxed);
                    return Ok(reply);
                }
                Err(error) if is_of_endpoint(&error) => failed = error,
                Err(error) => return Err(self.failure(error)),
            }
        }
        Err(self.failure(failed))
    }

    async fn ask(
        &self,
        uri: Uri,
        message: &[u8],
        streams: bool,
    ) -> Result<Result<Reply, CallError>, StoreError> {
        let metadata = self.metadata().await?;
        Ok(match streams {
            false => self.client.call(uri, metadata, message, self.timeout).await.map(Reply::Whole),
            true => {
                let stream = self.client.stream(uri, metadata, message, self.timeout).await;
                stream.map(Box::new).map(Reply::Stream)
            }
        })
    }

    /// Whether a call failed because the token of the login is not known any more; then the next one logs in again.
    fn has_expired<T>(&self, called: &Result<T, CallError>) -> bool {
        let is_refused = matches!(called, Err(CallError::Status { code: UNAUTHENTICATED, .. }));
        if is_refused {
            self.forget_token();
        }
        is_refused && self.login.is_some()
    }

    /// Logs in again before the next call.
    pub(super) fn forget_token(&self) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The token of the login, if there is one.
    async fn metadata(&self) -> Result<HeaderMap, StoreError> {
        let Some((name, password)) = &self.login else { return Ok(HeaderMap::new()) };
        let known = self.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let token = match known {
            Some(token) => token,
            None => self.log_in(name, password).await?,
        };
        Ok(HeaderMap::from_iter([(TOKEN, token)]))
    }

    async fn log_in(&self, name: &str, password: &Password) -> Result<HeaderValue, StoreError> {
        let request = AuthenticateRequest { name: name.to_owned(), password: password.0.clone() };
        let (message, mut failed) = (request.encode_to_vec(), CallError::Timeout);
        for nth in 0..self.endpoints.0.len() {
            let uri = url(self.endpoint(nth), AUTHENTICATE).map_err(|error| self.failure(error))?;
            match self.client.call(uri, HeaderMap::new(), &message, self.timeout).await {
                Ok(reply) => return self.keep_token(&reply),
                Err(error) => failed = error,
            }
        }
        Err(match &failed {
            CallError::Status { message, .. } => StoreError::Broken(format!(
                "{}: {message}: correct `apisix_etcd_user` and `apisix_etcd_password`",
                self.place()
            )),
            _ => self.failure(failed),
        })
    }

    fn keep_token(&self, reply: &[u8]) -> Result<HeaderValue, StoreError> {
        let token = AuthenticateResponse::decode(reply).ok();
        let token = token.and_then(|reply| HeaderValue::try_from(reply.token).ok());
        let mut token = token.ok_or_else(|| {
            StoreError::Unavailable(format!("{}: the reply to the login has no token", self.place()))
        })?;
        token.set_sensitive(true);
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token.clone());
        Ok(token)
    }

    /// The error of a call as a message that says how to fix it.
    pub(super) fn failure(&self, error: CallError) -> StoreError {
        let place = self.place();
        match error {
            CallError::Status { code: PERMISSION_DENIED, message } => StoreError::Broken(format!(
                "{place}: {message}: grant the user `apisix_etcd_user` to read and write `apisix_etcd_prefix`"
            )),
            CallError::Status { code: INVALID_ARGUMENT, message } if !message.contains(NO_USER) => {
                StoreError::Broken(format!("{place}: {message}: write less at once"))
            }
            CallError::Status { code: UNAUTHENTICATED | INVALID_ARGUMENT, message } => StoreError::Broken(
                format!("{place}: {message}: give `apisix_etcd_user` and `apisix_etcd_password`"),
            ),
            CallError::Status { code: RESOURCE_EXHAUSTED, message } => {
                StoreError::Full(format!("{place}: {message}: compact and defragment it, or raise its quota"))
            }
            error => StoreError::Unavailable(format!(
                "{place}: {error}: see that it runs, and that `apisix_etcd` is right"
            )),
        }
    }
}

const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

const TOKEN: HeaderName = HeaderName::from_static("token");

/// Whether another endpoint may do better.
fn is_of_endpoint(error: &CallError) -> bool {
    matches!(error, CallError::Timeout | CallError::Failed(_) | CallError::Status { code: UNAVAILABLE, .. })
}

fn url(endpoint: &str, method: &str) -> Result<Uri, CallError> {
    let url = format!("{endpoint}{method}").parse();
    url.map_err(|error| CallError::Failed(format!("{endpoint}: {error}")))
}

/// Connects in clear or over TLS, as the endpoint says.
fn dialer(settings: &Settings) -> Result<Dialer, StoreError> {
    let broken = |error: String| StoreError::Broken(format!("apisix_etcd: {error}"));
    let resolver = Resolver::new(ResolverOptions::default()).map_err(|error| broken(error.to_string()))?;
    let node = Arc::new(NodeResolver::default());
    node.provide(&Arc::new(resolver));
    let identity = match (&settings.apisix_etcd_ssl_cert, &settings.apisix_etcd_ssl_cert_key) {
        (Some(cert), Some(key)) => Some(client_certificate((cert, &key.0))),
        _ => None,
    };
    let identity = identity.transpose().map_err(|error| broken(error.to_string()))?;
    let verify = settings.apisix_etcd_ssl_verify.then(|| trusted(settings)).transpose()?;
    let config = client_config(verify, identity).map_err(|error| error.to_string());
    Ok(Dialer::new(node).with_tls(config, "apisix_etcd_ssl_verify=off"))
}

/// The authorities of `lua_ssl_trusted_certificate`.
fn trusted(settings: &Settings) -> Result<Verify, StoreError> {
    let mut roots = Vec::new();
    for path in trusted_certificate_files(&settings.lua_ssl_trusted_certificate) {
        let broken = |error: String| {
            StoreError::Broken(format!("lua_ssl_trusted_certificate: {}: {error}", path.display()))
        };
        let pem = std::fs::read_to_string(&path).map_err(|error| broken(error.to_string()))?;
        roots.extend(ca_certificates(&pem).map_err(|error| broken(error.to_string()))?);
    }
    Ok(Verify { roots, depth: None })
}
