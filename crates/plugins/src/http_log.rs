//! Sends a JSON object about each request to an HTTP server.
//!
//! ```yaml
//! plugins:
//!   - name: http-log
//!     config:
//!       http_endpoint: https://logs.example.com/weir
//!       headers: {X-Token: "${LOG_TOKEN}"}
//!       queue: {max_batch_size: 100, max_coalescing_delay: 2}
//! ```
//!
//! [file-log](file-log.md#the-record) describes the object. If `queue.max_batch_size` is above 1, the body is always a
//! list of objects, even of one. User name and password in the URL are sent as `Authorization`. The certificate of an
//! `https` server is verified against `lua_ssl_trusted_certificate`, unless `log_tls_verify` is `off`.
//!
//! A status of 400 or more, or a server that cannot be reached, is a failure: the batch is sent again, with growing
//! delays, for `queue.max_retry_time` seconds. Requests never wait. A record is dropped if the queue is full or if it
//! cannot be delivered: `weir_plugin_dropped_total` in `/metrics` counts it.

use super::log_record::{LogRecord, lua_code};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::uri::Scheme;
use http::{Method, Request, Uri};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use weir_plugin::rule::url;
use weir_plugin::{
    BuildContext, Bytes, Exchange, FieldError, FieldWarning, Hooks, HttpClient, Json, Phases, Plugin, Queue,
    QueueConfig, Record, Session, Streams, host_and_port,
};

/// The server, and how records are sent.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// The URL that records are sent to.
    #[field(encrypted, referenceable, matches = url)]
    pub http_endpoint: String,
    /// The method.
    #[field(nullable, default = "POST", one_of = ["POST", "PUT", "PATCH"])]
    pub method: String,
    /// The content type.
    #[field(nullable, default = "application/json", one_of = ["application/json", "application/json; charset=utf-8"])]
    pub content_type: String,
    /// The timeout in milliseconds.
    #[field(nullable, default = 10_000)]
    pub timeout: f64,
    /// Milliseconds that an idle connection is kept.
    #[field(nullable, default = 60_000)]
    pub keepalive: f64,
    /// Ignored: `queue.max_retry_time` says for how long to retry.
    pub retry_count: Option<i64>,
    /// The former name of `queue.max_batch_size`. It takes precedence unless it is 1.
    pub queue_size: Option<i64>,
    /// The former name of `queue.max_coalescing_delay`. It takes precedence unless it is 2.
    pub flush_timeout: Option<f64>,
    /// Headers to send.
    #[field(secret, key_check = header)]
    pub headers: Option<BTreeMap<String, String>>,
    /// How records are queued, batched and retried.
    #[field(default = {})]
    pub queue: QueueConfig,
    /// Fields to add to the record, to change or to remove: bodies of functions in Lua.
    #[field(check = lua_code)]
    pub custom_fields_by_lua: Option<BTreeMap<String, String>>,
}

impl Config {
    fn queue(&self) -> QueueConfig {
        let (size, delay) = (self.queue_size, self.flush_timeout);
        self.queue.clone().overridden(size.filter(|size| *size != 1), delay.filter(|delay| *delay != 2.0))
    }
}

fn header(name: &str) -> Result<(), String> {
    match ["Host", "Content-Length", "Content-Type"].iter().find(|own| own.eq_ignore_ascii_case(name)) {
        Some(own) => Err(format!("cannot contain '{own}' header")),
        None => weir_plugin::rule::header_name(name),
    }
}

fn violations(config: &Config) -> Vec<FieldError> {
    let names = || config.headers.iter().flatten().map(|(name, _)| name);
    let mut found = Vec::new();
    if userinfo(&config.http_endpoint).is_some()
        && names().any(|name| name.eq_ignore_ascii_case("authorization"))
    {
        let message =
            "specifying both an 'Authorization' header and user info in 'http_endpoint' is not allowed";
        found.push(FieldError::new("headers", message));
    }
    found
}

/// The part of a URL before the host.
fn userinfo(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    authority.rsplit_once('@').map(|(userinfo, _)| userinfo)
}

/// One configured instance.
pub(super) struct HttpLog {
    record: LogRecord,
    queue: Queue<Vec<u8>>,
}

impl Plugin for HttpLog {
    const NAME: &'static str = "http-log";
    const PRIORITY: i32 = 12;
    const FAILS_OPEN: bool = true;
    const STREAMS: Streams = Streams::IfNamed;
    type Config = Config;

    fn ignored_fields(config: &Json) -> Vec<FieldWarning> {
        QueueConfig::ignored_fields(config)
    }

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let record = LogRecord::new(&config.custom_fields_by_lua, Self::NAME, build)?;
        let endpoint = Arc::new(Endpoint::new(&config, build)?);
        let deliver = move |batch: Arc<[Vec<u8>]>| {
            let endpoint = endpoint.clone();
            async move { endpoint.send(&batch).await }
        };
        Ok(Self { record, queue: build.queue(config.queue(), deliver) })
    }
}

impl Hooks for HttpLog {
    fn phases(&self) -> Phases {
        Phases::LOG | Phases::LOG_STREAM
    }

    fn log(&self, exchange: &mut Exchange) {
        self.push(self.record.of(exchange));
    }

    fn log_stream(&self, session: &Session) {
        self.push(self.record.of_session(session));
    }
}

impl HttpLog {
    fn push(&self, record: Vec<u8>) {
        let bytes = record.len();
        self.queue.push(record, bytes);
    }
}

/// Where records are sent.
struct Endpoint {
    client: HttpClient,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    timeout: Duration,
    /// Whether each record is sent in a request of its own.
    alone: bool,
}

impl Endpoint {
    fn new(config: &Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let invalid = || "config.http_endpoint is not a valid URL; write it percent-encoded".to_owned();
        // It may be a secret, for which no rule holds, and which no message may quote.
        url(&config.http_endpoint).map_err(|_| invalid())?;
        let user = userinfo(&config.http_endpoint);
        let uri = user.map_or(config.http_endpoint.clone(), |user| {
            config.http_endpoint.replacen(&format!("{user}@"), "", 1)
        });
        let uri: Uri = uri.parse().map_err(|_| invalid())?;
        let dialer = build.log_dialer(uri.scheme() == Some(&Scheme::HTTPS));
        Ok(Self {
            client: HttpClient::keeping(dialer, milliseconds(config.keepalive)),
            method: Method::from_bytes(config.method.as_bytes()).unwrap_or(Method::POST),
            uri,
            headers: headers(config, user)?,
            timeout: milliseconds(config.timeout),
            alone: config.queue().max_batch_size == 1,
        })
    }

    async fn send(&self, batch: &[Vec<u8>]) -> Result<(), String> {
        let body = match batch {
            [record] if self.alone => record.clone(),
            records => [&b"["[..], &records.join(&b','), b"]"].concat(),
        };
        let mut request = Request::new(Bytes::from(body));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let asked = self.client.send(request, self.timeout).await;
        let response =
            asked.map_err(|error| format!("failed request to {}: {error}", host_and_port(&self.uri)))?;
        match response.status().as_u16() {
            ..400 => Ok(()),
            status => Err(format!("request to {} returned status code {status}", host_and_port(&self.uri))),
        }
    }
}

fn headers(config: &Config, user: Option<&str>) -> Result<HeaderMap, String> {
    let value = |name: &str, value: &str| {
        HeaderValue::from_str(value)
            .map_err(|_| format!("config.headers: the value of {name} is not a valid header value"))
    };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, value("Content-Type", &config.content_type)?);
    if let Some(user) = user {
        let credentials = format!("Basic {}", BASE64_STANDARD.encode(user));
        headers.insert(AUTHORIZATION, value("Authorization", &credentials)?);
    }
    for (name, text) in config.headers.iter().flatten() {
        let known = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("config.headers: {name} is not a valid header name"))?;
        headers.insert(known, value(name, text)?);
    }
    Ok(headers)
}

/// At most a day, because clocks overflow far in the future.
fn milliseconds(milliseconds: f64) -> Duration {
    Duration::from_secs_f64((milliseconds / 1000.0).clamp(0.0, 86_400.0))
}
