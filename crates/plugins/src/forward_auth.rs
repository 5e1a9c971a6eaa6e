//! Asks another service whether a request may pass, like nginx's `auth_request` and Traefik's ForwardAuth. An
//! extension: Kong has no such plugin.
//!
//! ```yaml
//! plugins:
//!   - name: forward-auth
//!     route: account
//!     config:
//!       url: http://auth.internal:9000/verify
//!       request_headers: [Authorization, Cookie]
//!       upstream_headers: [X-User, X-Roles]
//!       cache_ttl: 5
//! ```
//!
//! ## What the service gets
//!
//! A `GET` of `url` without a body. It has the request's headers, or those that `request_headers` names, and the
//! following ones, which replace what the client sent under their names:
//!
//! | header | value |
//! |---|---|
//! | `X-Forwarded-Method` | the method |
//! | `X-Forwarded-Uri` | path and query; the path is normalized as for route matching, so that both see the same |
//! | `X-Forwarded-Host`, `X-Forwarded-Proto` | the host and scheme of the request; from a peer in `trusted_ips`, the values that it sends |
//! | `X-Forwarded-For` | the client's address |
//!
//! Conditional and range headers, such as `If-None-Match` and `Range`, are sent only if `request_headers` names them.
//!
//! ## What the service answers
//!
//! With a status of 200 to 299 the request passes. The headers of that response that `upstream_headers` names go to the
//! upstream. If a client sends headers of these names itself, also with `_` for `-`, they are removed from every
//! request.
//!
//! Any other response goes to the client: status, body and headers, either all or those that `client_headers` names.
//! Redirects are not followed, so a service may send browsers to its login page.
//!
//! If there is no response within `timeout`, none at all, or one above 1 MiB, the client gets `status_on_error`. With
//! `fail_open` the request passes instead, without headers from the service.
//!
//! `cache_ttl` caches that a request may pass. The key consists of the method, the address of the client, and the
//! headers that the service gets. Name the relevant ones in `request_headers`, because otherwise hardly two requests
//! have the same key. Refusals are not cached.
//!
//! The plugin runs after the authentication plugins, so the service also gets the headers that identify the consumer.

use crate::shared::forged_headers::{are, remove};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri, header};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_plugin::{
    BuildContext, Bytes, Exchange, Fingerprint, FingerprintMap, Fingerprinter, Flow, Hooks, HttpClient,
    HttpError, Known, LocalResponse, Phases, Plugin, Record, Resume,
};

/// The service, and which headers are passed on.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// The URL of the service.
    #[field(matches = url)]
    pub url: String,
    /// The timeout in milliseconds.
    #[field(default = 5000, between = [1, 2147483646])]
    pub timeout: u32,
    /// Whether to verify the service's certificate.
    #[field(default = true)]
    pub ssl_verify: bool,
    /// The request headers that the service gets; all if unset.
    #[field(matches = header_name)]
    pub request_headers: Option<Vec<String>>,
    /// Headers of the service's response that the upstream gets.
    #[field(default = [], check = tellable)]
    pub upstream_headers: Vec<String>,
    /// Headers of the service's refusal that the client gets, beside Content-Type; all if unset.
    #[field(matches = header_name)]
    pub client_headers: Option<Vec<String>>,
    /// Lets requests pass if the service does not answer.
    #[field(default = false)]
    pub fail_open: bool,
    /// The status if the service does not answer.
    #[field(default = 503, between = [400, 599])]
    pub status_on_error: u16,
    /// For how many seconds to cache that a request may pass; 0 disables the cache.
    #[field(default = 0, between = [0, 86400])]
    pub cache_ttl: u32,
}

/// A header that is not the gateway's own.
fn tellable(name: &str) -> Result<(), String> {
    weir_plugin::rule::header_name(name)?;
    match is_own(Known::of(name.as_bytes())) {
        true => Err(format!("{name} is the gateway's own; leave it out")),
        false => Ok(()),
    }
}

/// One configured instance.
pub(super) struct ForwardAuth(Arc<Instance>);

struct Instance {
    config: Config,
    url: Uri,
    client: HttpClient,
    passes: Passes,
    /// When the last warning was logged, in seconds since the instance was built.
    warned: AtomicU64,
    built: Instant,
}

/// The headers of the service's response that go to the upstream.
type UpstreamHeaders = Arc<[(HeaderName, HeaderValue)]>;

impl Plugin for ForwardAuth {
    const NAME: &'static str = "forward-auth";
    const PRIORITY: i32 = 1010;
    const EXTENSION: bool = true;
    const FOR_CONSUMER_GROUPS: bool = true;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let url = config.url.parse().map_err(|error| format!("config.url is not a valid URL: {error}"))?;
        let client = HttpClient::new(build.tls_dialer(config.ssl_verify, "config.ssl_verify: false")?);
        let (passes, warned) = (Passes::default(), AtomicU64::new(0));
        Ok(Self(Arc::new(Instance { config, url, client, passes, warned, built: Instant::now() })))
    }
}

impl Hooks for ForwardAuth {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn owns_request_header(&self, name: &[u8]) -> bool {
        are(&self.0.config.upstream_headers, name)
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let instance = self.0.clone();
        remove(&mut exchange.request.headers, &instance.config.upstream_headers);
        let headers = instance.question(exchange);
        let remembers = instance.config.cache_ttl > 0;
        let key = remembers.then(|| fingerprint(&instance.passes.key, &headers));
        if let Some(granted) = key.and_then(|key| instance.passes.get(key)) {
            return pass(exchange, &granted);
        }
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = instance.url.clone();
        *request.headers_mut() = headers;
        Flow::Wait(Box::pin(async move {
            let timeout = Duration::from_millis(instance.config.timeout.into());
            let answered = instance.client.send(request, timeout).await;
            let resume: Resume = Box::new(move |exchange| instance.decide(exchange, key, answered));
            resume
        }))
    }
}

impl Instance {
    /// The headers of the request to the service.
    fn question(&self, exchange: &Exchange) -> HeaderMap {
        let mut asked = HeaderMap::new();
        let sent = &exchange.request.headers;
        match &self.config.request_headers {
            None => sent.iter().filter(|field| !is_particular(field.name, field.known)).for_each(|field| {
                add(&mut asked, field.name, field.value);
            }),
            Some(names) => names.iter().filter(|name| !is_own(Known::of(name.as_bytes()))).for_each(|name| {
                sent.get_all(name).for_each(|value| add(&mut asked, name.as_bytes(), value));
            }),
        }
        let forwarded = |known, own: &str| {
            let sent = exchange.header(known).filter(|_| exchange.is_from_trusted_proxy());
            HeaderValue::from_bytes(sent.unwrap_or(own.as_bytes())).ok()
        };
        let own = [
            ("x-forwarded-method", HeaderValue::from_str(exchange.request.method_str()).ok()),
            ("x-forwarded-uri", HeaderValue::from_bytes(&exchange.normal_target()).ok()),
            (
                "x-forwarded-host",
                forwarded(Known::XForwardedHost, exchange.request.host().unwrap_or_default()),
            ),
            ("x-forwarded-proto", forwarded(Known::XForwardedProto, exchange.scheme())),
            ("x-forwarded-for", HeaderValue::from_str(&exchange.client_ip.to_string()).ok()),
        ];
        for (name, value) in own {
            asked.remove(name);
            asked.extend(value.map(|value| (HeaderName::from_static(name), value)));
        }
        asked
    }

    fn decide(
        &self,
        exchange: &mut Exchange,
        key: Option<Fingerprint>,
        answered: Result<Response<Bytes>, HttpError>,
    ) -> Flow {
        match answered {
            Ok(answer) if answer.status().is_success() => {
                let granted = self.granted(answer.headers());
                if let Some(key) = key {
                    let until = Instant::now() + Duration::from_secs(self.config.cache_ttl.into());
                    self.passes.remember(key, until, granted.clone());
                }
                pass(exchange, &granted)
            }
            Ok(answer) if (300..600).contains(&answer.status().as_u16()) => {
                Flow::Respond(self.refusal(answer))
            }
            Ok(answer) => self.fail(exchange, &format!("it answered {}", answer.status())),
            Err(error) => self.fail(exchange, &error.to_string()),
        }
    }

    fn granted(&self, headers: &HeaderMap) -> UpstreamHeaders {
        let names = self.config.upstream_headers.iter();
        let named = names.filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok());
        let fields = named.flat_map(|name| {
            let values = headers.get_all(&name).into_iter().cloned();
            values.map(move |value| (name.clone(), value)).collect::<Vec<_>>()
        });
        fields.collect()
    }

    fn refusal(&self, answer: Response<Bytes>) -> LocalResponse {
        let (head, body) = answer.into_parts();
        let is_named = |name: &HeaderName| match &self.config.client_headers {
            None => true,
            Some(names) => {
                name == header::CONTENT_TYPE || names.iter().any(|n| name.as_str().eq_ignore_ascii_case(n))
            }
        };
        let passed = head.headers.iter().filter(|(name, _)| {
            let known = Known::of(name.as_str().as_bytes());
            let is_ended = known.is_hop_by_hop() || known == Known::Other && ends_here(&head.headers, name);
            is_named(name) && !is_ended && known != Known::ContentLength
        });
        passed.fold(LocalResponse::raw(head.status.as_u16(), None, body), |answer, (name, value)| {
            answer.header(name.as_str().to_owned(), value)
        })
    }

    /// Refuses the request, or with `fail_open` lets it pass, because the service did not answer.
    fn fail(&self, exchange: &mut Exchange, why: &str) -> Flow {
        let second = self.built.elapsed().as_secs() + 1;
        if self.warned.swap(second, Relaxed) != second {
            let passes = if self.config.fail_open { "the request passes" } else { "the request is refused" };
            tracing::warn!(
                request_id = exchange.id(),
                "forward-auth: the service did not answer, {passes}: {why}"
            );
        }
        if self.config.fail_open {
            return Flow::Continue;
        }
        Flow::Respond(LocalResponse::error(
            self.config.status_on_error,
            "The authorization service did not answer",
        ))
    }
}

/// Lets the request pass, with the headers from the service.
fn pass(exchange: &mut Exchange, granted: &UpstreamHeaders) -> Flow {
    for (name, value) in granted.iter() {
        exchange.describe_caller(name.as_str().as_bytes());
        exchange.describe_caller(value.as_bytes());
        exchange.request.headers.append(name.as_str(), value.as_bytes());
    }
    Flow::Continue
}

/// Whether `Connection` in the service's response lists this header.
fn ends_here(headers: &HeaderMap, name: &HeaderName) -> bool {
    let options = headers.get_all(header::CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    options.flat_map(|value| value.split(',')).any(|option| option.trim().eq_ignore_ascii_case(name.as_str()))
}

fn add(headers: &mut HeaderMap, name: &[u8], value: &[u8]) {
    if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
        headers.append(name, value);
    }
}

/// Whether the request to the service has its own value of this header, or must not have the header.
fn is_own(known: Known) -> bool {
    known.is_hop_by_hop()
        || matches!(
            known,
            Known::Host
                | Known::ContentLength
                | Known::Expect
                | Known::Forwarded
                | Known::XForwardedFor
                | Known::XForwardedProto
                | Known::XForwardedHost
                | Known::XForwardedPort
                | Known::XForwardedPath
                | Known::XForwardedPrefix
                | Known::XRealIp
        )
}

/// Whether the header concerns the response (conditions, ranges), or is one that the plugin sets itself.
fn is_particular(name: &[u8], known: Known) -> bool {
    const CONDITIONS: [&[u8]; 7] = [
        b"if-match",
        b"if-none-match",
        b"if-modified-since",
        b"if-unmodified-since",
        b"if-range",
        b"x-forwarded-method",
        b"x-forwarded-uri",
    ];
    let is = |own: &&[u8]| {
        let folded = name.iter().map(|byte| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() });
        folded.eq(own.iter().copied())
    };
    is_own(known) || known == Known::Range || (known == Known::Other && CONDITIONS.iter().any(is))
}

fn fingerprint(key: &Fingerprinter, headers: &HeaderMap) -> Fingerprint {
    let add = |key: Fingerprinter, (name, value): (&HeaderName, &HeaderValue)| {
        key.with(name.as_str().as_bytes()).with(value.as_bytes())
    };
    headers.iter().fold(key.clone(), add).of(b"")
}

/// Requests that may pass, each until a point in time.
type Generation = FingerprintMap<(Instant, UpstreamHeaders)>;

/// The cache of requests that may pass. It has two generations, so that its size and the age of its entries are
/// bounded.
struct Passes {
    key: Fingerprinter,
    shards: [Mutex<[Generation; 2]>; 16],
}

/// Requests per generation of a shard.
const MAX_REQUESTS: usize = 1024;

impl Default for Passes {
    fn default() -> Self {
        Self { key: Fingerprinter::with_random_key(), shards: Default::default() }
    }
}

impl Passes {
    fn get(&self, key: Fingerprint) -> Option<UpstreamHeaders> {
        let shard = self.shards[(key >> 64) as usize % 16].lock().unwrap_or_else(PoisonError::into_inner);
        let (until, granted) = shard.iter().find_map(|generation| generation.get(&key))?;
        (*until > Instant::now()).then(|| granted.clone())
    }

    fn remember(&self, key: Fingerprint, until: Instant, granted: UpstreamHeaders) {
        let mut shard = self.shards[(key >> 64) as usize % 16].lock().unwrap_or_else(PoisonError::into_inner);
        if shard[0].len() >= MAX_REQUESTS {
            shard[1] = std::mem::take(&mut shard[0]);
        }
        shard[0].insert(key, (until, granted));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_remembered_for_a_while_and_within_bounds() {
        let (passes, granted) = (Passes::default(), UpstreamHeaders::from([]));
        let (now, minute) = (Instant::now(), Duration::from_secs(60));
        passes.remember(1, now + minute, granted.clone());
        passes.remember(2, now, granted.clone());
        assert!(passes.get(1).is_some() && passes.get(2).is_none() && passes.get(3).is_none());
        for i in 0..100_000u128 {
            passes.remember(i << 64 | i, now + minute, granted.clone());
        }
        let kept: usize =
            passes.shards.iter().flat_map(|shard| shard.lock().unwrap().each_ref().map(|g| g.len())).sum();
        assert!((16 * MAX_REQUESTS..=32 * MAX_REQUESTS).contains(&kept), "{kept}");
        assert!(passes.get(99_999 << 64 | 99_999).is_some());
    }
}
