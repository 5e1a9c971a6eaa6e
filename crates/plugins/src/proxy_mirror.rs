//! Sends a copy of each request to another server, whose responses are ignored. Like APISIX's plugin of this name.
//!
//! ```yaml
//! plugins:
//!   - name: proxy-mirror
//!     route: shop
//!     config:
//!       host: http://shadow.internal:8080
//!       sample_ratio: 0.1
//! ```
//!
//! The copy has the method, path, query, headers and body that the upstream gets; with `path`, that path instead or, with
//! `path_concat_mode: prefix`, before the request's. Requests never wait for it. A request whose body is too long to be held
//! is not copied. A copy that gets no response within 60 seconds is given up. While 1024 copies, or 64 MiB of bodies, wait for
//! that server, further requests are not copied.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weir_plugin::{
    Background, BuildContext, Bytes, Exchange, Flow, Hooks, HttpClient, Known, Phases, Plugin, Record,
    WantsBody,
};

/// The server that gets copies.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// Its scheme, host and port.
    #[field(check = origin)]
    pub host: String,
    /// The path of copies.
    #[field(starts_with = "/")]
    pub path: Option<String>,
    /// Whether `path` replaces the request's, or comes before it.
    #[field(default = "replace", one_of = ["replace", "prefix"])]
    pub path_concat_mode: String,
    /// The fraction of requests that are copied.
    #[field(default = 1, between = [0.00001, 1])]
    pub sample_ratio: f64,
}

fn origin(url: &str) -> Result<(), String> {
    weir_plugin::rule::url(url)?;
    match url.split_once("://") {
        Some(("http" | "https", host)) if !host.is_empty() && !host.contains(['/', '?', '#']) => Ok(()),
        _ => Err("expected http://HOST:PORT or https://HOST:PORT, without a path".to_owned()),
    }
}

/// How long a copy may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How many copies may wait for a response at once.
const MAX_COPIES: usize = 1024;
/// A body takes the room of another copy for so many bytes each.
const BYTES_OF_COPY: usize = 64 * 1024;

/// One configured instance.
pub(super) struct ProxyMirror {
    config: Config,
    /// What is left of [`MAX_COPIES`]: a server that is slow must not have ever more bodies held.
    room: Arc<Semaphore>,
    client: HttpClient,
    background: Arc<Background>,
}

impl Plugin for ProxyMirror {
    const NAME: &'static str = "proxy-mirror";
    const PRIORITY: i32 = 890;
    const FOR_CONSUMER_GROUPS: bool = true;
    const EXTENSION: bool = true;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let client = HttpClient::new(build.tls_dialer(false, "proxy-mirror verifies no certificate")?);
        let room = Arc::new(Semaphore::new(MAX_COPIES));
        Ok(Self { config, room, client, background: build.background() })
    }
}

impl Hooks for ProxyMirror {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let is_sampled = self.config.sample_ratio >= 1.0 || fastrand::f64() < self.config.sample_ratio;
        let room = is_sampled.then(|| self.room_for(exchange)).flatten();
        if let Some((room, copy)) = room.and_then(|room| Some((room, self.copy(exchange)?))) {
            let client = self.client.clone();
            self.background.spawn(async move {
                let _room = room;
                if let Err(error) = client.send(copy, TIMEOUT).await {
                    tracing::debug!("proxy-mirror: a copy got no response: {error}");
                }
            });
        }
        Flow::Continue
    }

    fn wants_body(&self) -> WantsBody {
        WantsBody::Optional
    }
}

impl ProxyMirror {
    /// Room for a copy of this request, if there is any left.
    fn room_for(&self, exchange: &Exchange) -> Option<OwnedSemaphorePermit> {
        let length = exchange.body().map_or(0, <[u8]>::len);
        let copies = u32::try_from(1 + length / BYTES_OF_COPY).ok()?;
        self.room.clone().try_acquire_many_owned(copies).ok()
    }

    /// The copy of a request; none if its body is not held.
    fn copy(&self, exchange: &Exchange) -> Option<Request<Bytes>> {
        let body = match exchange.has_body() {
            true => Bytes::copy_from_slice(exchange.body()?),
            false => Bytes::new(),
        };
        let mut request = Request::new(body);
        *request.method_mut() = Method::from_bytes(exchange.request.method_str().as_bytes()).ok()?;
        *request.uri_mut() = self.uri(exchange)?;
        *request.headers_mut() = headers(exchange);
        Some(request)
    }

    fn uri(&self, exchange: &Exchange) -> Option<Uri> {
        let own = exchange.upstream_uri().unwrap_or_else(|| exchange.normal_target());
        let own = std::str::from_utf8(&own).ok()?;
        let query = own.split_once('?').map(|(_, query)| format!("?{query}")).unwrap_or_default();
        let target = match &self.config.path {
            None => own.to_owned(),
            Some(path) if self.config.path_concat_mode == "prefix" => format!("{path}{own}"),
            Some(path) => format!("{path}{query}"),
        };
        format!("{}{target}", self.config.host).parse().ok()
    }
}

fn headers(exchange: &Exchange) -> HeaderMap {
    let fields = exchange.request.headers.iter();
    let copied = fields.filter(|field| {
        let own = [Known::ContentLength, Known::Expect];
        !field.known.is_hop_by_hop() && !own.contains(&field.known)
    });
    let copied = copied.filter_map(|field| {
        Some((HeaderName::from_bytes(field.name).ok()?, HeaderValue::from_bytes(field.value).ok()?))
    });
    let mut headers = HeaderMap::new();
    headers.extend(copied);
    headers
}
