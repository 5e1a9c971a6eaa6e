//! Sends records of requests to a server. Like APISIX's plugin of this name; Kong's is [http-log](http-log.md).
//!
//! ```yaml
//! plugins:
//!   - name: http-logger
//!     config:
//!       uri: https://logs.example.com/ingest
//!       auth_header: Bearer a-token
//!       log_format: {host: $host, status: $status, client_ip: $remote_addr}
//! ```
//!
//! Records are those of [file-logger](file-logger.md), posted as a JSON list, or with `concat_method: new_line` one on each
//! line; with `batch_max_size: 1`, one by one. A batch is sent once it is full, or `inactive_timeout` seconds after its first
//! record. Requests never wait; `weir_plugin_dropped_total` in `/metrics` counts what is dropped.

use crate::shared::apisix_record::ApisixRecord;
use crate::shared::batch_processor::BatchProcessor;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Uri};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use weir_plugin::{
    BuildContext, Bytes, Exchange, Hooks, HttpClient, Json, Phases, Plugin, Queue, Record, Secret,
    host_and_port,
};

/// The server, and what is sent to it.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// The URL that records are posted to.
    #[field(matches = url)]
    pub uri: String,
    /// The header `Authorization`.
    #[field(secret, len_min = 0)]
    pub auth_header: Option<Secret>,
    /// The timeout in seconds.
    #[field(default = 3, between = [1, 86400])]
    pub timeout: u32,
    /// The members of a record.
    pub log_format: Option<BTreeMap<String, Json>>,
    /// How records of one batch are joined.
    #[field(default = "json", one_of = ["json", "new_line"])]
    pub concat_method: String,
    /// Whether to verify the server's certificate.
    #[field(default = false)]
    pub ssl_verify: bool,
    /// How records are batched.
    #[field(flatten)]
    pub batch: BatchProcessor,
}

/// One configured instance.
pub(super) struct HttpLogger {
    record: ApisixRecord,
    queue: Queue<Vec<u8>>,
}

impl Plugin for HttpLogger {
    const NAME: &'static str = "http-logger";
    const PRIORITY: i32 = 10;
    const EXTENSION: bool = true;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let record = ApisixRecord::new(config.log_format.as_ref(), None, build.hostname())?;
        let endpoint = Arc::new(Endpoint::new(&config, build)?);
        let deliver = move |batch: Arc<[Vec<u8>]>| {
            let endpoint = endpoint.clone();
            async move { endpoint.send(&batch).await }
        };
        Ok(Self { record, queue: build.queue(config.batch.queue()?, deliver) })
    }
}

impl Hooks for HttpLogger {
    fn phases(&self) -> Phases {
        Phases::LOG
    }

    fn log(&self, exchange: &mut Exchange) {
        let mut record = Vec::with_capacity(1024);
        self.record.write(&mut record, exchange);
        let bytes = record.len();
        self.queue.push(record, bytes);
    }
}

/// Where records are sent.
struct Endpoint {
    client: HttpClient,
    uri: Uri,
    authorization: Option<HeaderValue>,
    timeout: Duration,
    alone: bool,
    by_line: bool,
}

impl Endpoint {
    fn new(config: &Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let header = |value: &Secret| {
            let mut value = HeaderValue::from_str(value.expose())
                .map_err(|_| "config.auth_header is not a valid header value".to_owned())?;
            value.set_sensitive(true);
            Ok::<_, String>(value)
        };
        let authorization = config.auth_header.as_ref().filter(|value| !value.expose().is_empty());
        Ok(Self {
            client: HttpClient::new(build.tls_dialer(config.ssl_verify, "config.ssl_verify: false")?),
            uri: config.uri.parse().map_err(|error| format!("config.uri is not a valid URL: {error}"))?,
            authorization: authorization.map(header).transpose()?,
            timeout: Duration::from_secs(config.timeout.into()),
            alone: config.batch.batch_max_size == 1,
            by_line: config.concat_method == "new_line",
        })
    }

    async fn send(&self, batch: &[Vec<u8>]) -> Result<(), String> {
        let body = match batch {
            [record] if self.alone => record.clone(),
            records if self.by_line => records.join(&b'\n'),
            records => [&b"["[..], &records.join(&b','), b"]"].concat(),
        };
        let mut request = Request::new(Bytes::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request.headers_mut().extend(self.authorization.clone().map(|value| (AUTHORIZATION, value)));
        let server = host_and_port(&self.uri);
        let asked = self.client.send(request, self.timeout).await;
        match asked.map_err(|error| format!("failed request to {server}: {error}"))?.status().as_u16() {
            ..400 => Ok(()),
            status => Err(format!("request to {server} returned status code {status}")),
        }
    }
}
