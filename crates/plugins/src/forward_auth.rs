//! Asks another service whether a request may pass, as nginx's `auth_request` and Traefik's ForwardAuth do. An extension:
//! Kong has no such plugin.
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
//! A `GET` of `url` with the request's headers, or those that `request_headers` names, without the body, and with these,
//! whatever the client has sent under their names:
//!
//! | header | value |
//! |---|---|
//! | `X-Forwarded-Method` | the method |
//! | `X-Forwarded-Uri` | path and query; the path in the form that routes are found by, so that both mean the same |
//! | `X-Forwarded-Host`, `X-Forwarded-Proto` | what the client asked for; as peers of `trusted_ips` say |
//! | `X-Forwarded-For` | the client's address |
//!
//! Headers that ask for a part of a response, or for one that has changed, are sent only where they are named.
//!
//! ## What it says
//!
//! A status of 200 to 299 lets the request pass. Of that answer, the headers that `upstream_headers` names go to the
//! upstream; those that the client has sent under such a name, with `_` for `-` too, are removed from every request.
//!
//! Any other answer is the client's: status, body and headers, all of them or those that `client_headers` names. Redirects
//! are not followed, so that a service may send browsers to where they log in.
//!
//! If there is no answer within `timeout`, none below 1 MiB or none at all, the client is answered `status_on_error`. With
//! `fail_open` the request passes instead, without headers from the service.
//!
//! `cache_ttl` remembers that a request may pass: for the same method, address, client and headers, as far as the service is
//! told of them. Name those that matter in `request_headers`, or hardly two requests are the same. Refusals are not remembered.
//!
//! It runs behind the authentication plugins, so that the service learns of the consumer, too.

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri, header};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_plugin::{
    BuildContext, Bytes, Exchange, Fingerprint, FingerprintMap, Fingerprinter, Flow, Headers, Hooks,
    HttpClient, HttpError, Known, LocalResponse, Phases, Plugin, Record, Resume,
};

/// Whom to ask, and what is passed on.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// Where the service is.
    #[field(matches = url)]
    pub url: String,
    /// Milliseconds for its answer.
    #[field(default = 5000, between = [1, 2147483646])]
    pub timeout: u32,
    /// Whether to verify its certificate.
    #[field(default = true)]
    pub ssl_verify: bool,
    /// The request's headers that it gets; unless set, all.
    #[field(matches = header_name)]
    pub request_headers: Option<Vec<String>>,
    /// Headers of its answer that the upstream gets.
    #[field(default = [], check = tellable)]
    pub upstream_headers: Vec<String>,
    /// Headers of its refusal that the client gets, beside Content-Type; unless set, all.
    #[field(matches = header_name)]
    pub client_headers: Option<Vec<String>>,
    /// Lets requests pass when it does not answer.
    #[field(default = false)]
    pub fail_open: bool,
    /// The status when it does not answer.
    #[field(default = 503, between = [400, 599])]
    pub status_on_error: u16,
    /// Seconds for which it is not asked again about what may pass; 0 asks about every request.
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
    /// The second, since it was built, of the last warning.
    warned: AtomicU64,
    built: Instant,
}

/// What goes to the upstream.
type Told = Arc<[(HeaderName, HeaderValue)]>;

impl Plugin for ForwardAuth {
    const NAME: &'static str = "forward-auth";
    const PRIORITY: i32 = 1010;
    const FOR_CONSUMER_GROUPS: bool = true;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let url = config.url.parse().map_err(|error| format!("config.url is no URL: {error}"))?;
        let client = HttpClient::new(build.tls_dialer(config.ssl_verify, "config.ssl_verify: false")?);
        let (passes, warned) = (Passes::default(), AtomicU64::new(0));
        Ok(Self(Arc::new(Instance { config, url, client, passes, warned, built: Instant::now() })))
    }
}

impl Hooks for ForwardAuth {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let instance = self.0.clone();
        remove_forged(&mut exchange.request.headers, &instance.config.upstream_headers);
        let headers = instance.question(exchange);
        let remembers = instance.config.cache_ttl > 0;
        let whose = remembers.then(|| fingerprint(&instance.passes.key, &headers));
        if let Some(told) = whose.and_then(|whose| instance.passes.get(whose)) {
            return pass(exchange, &told);
        }
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = instance.url.clone();
        *request.headers_mut() = headers;
        Flow::Wait(Box::pin(async move {
            let timeout = Duration::from_millis(instance.config.timeout.into());
            let answered = instance.client.send(request, timeout).await;
            let resume: Resume = Box::new(move |exchange| instance.decide(exchange, whose, answered));
            resume
        }))
    }
}

impl Instance {
    /// The head of the question.
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
        let told = |known, own: &str| {
            let said = exchange.header(known).filter(|_| exchange.is_from_trusted_proxy());
            HeaderValue::from_bytes(said.unwrap_or(own.as_bytes())).ok()
        };
        let own = [
            ("x-forwarded-method", HeaderValue::from_str(exchange.request.method_str()).ok()),
            ("x-forwarded-uri", HeaderValue::from_bytes(&exchange.normal_target()).ok()),
            ("x-forwarded-host", told(Known::XForwardedHost, exchange.request.host().unwrap_or_default())),
            ("x-forwarded-proto", told(Known::XForwardedProto, exchange.scheme())),
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
        whose: Option<Fingerprint>,
        answered: Result<Response<Bytes>, HttpError>,
    ) -> Flow {
        match answered {
            Ok(answer) if answer.status().is_success() => {
                let told = self.told(answer.headers());
                if let Some(whose) = whose {
                    let until = Instant::now() + Duration::from_secs(self.config.cache_ttl.into());
                    self.passes.remember(whose, until, told.clone());
                }
                pass(exchange, &told)
            }
            Ok(answer) if (300..600).contains(&answer.status().as_u16()) => {
                Flow::Respond(self.refusal(answer))
            }
            Ok(answer) => self.fail(exchange, &format!("it answered {}", answer.status())),
            Err(error) => self.fail(exchange, &error.to_string()),
        }
    }

    fn told(&self, headers: &HeaderMap) -> Told {
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

    /// The service has not answered.
    fn fail(&self, exchange: &mut Exchange, why: &str) -> Flow {
        let second = self.built.elapsed().as_secs() + 1;
        if self.warned.swap(second, Relaxed) != second {
            let passes = if self.config.fail_open { "the request passes" } else { "the request is refused" };
            tracing::warn!(
                request_id = exchange.id(),
                "forward-auth: the service gave no answer, {passes}: {why}"
            );
        }
        if self.config.fail_open {
            return Flow::Continue;
        }
        Flow::Respond(LocalResponse::error(
            self.config.status_on_error,
            "The authorization service gave no answer",
        ))
    }
}

/// Lets the request pass, with what the service has said.
fn pass(exchange: &mut Exchange, told: &Told) -> Flow {
    for (name, value) in told.iter() {
        exchange.describe_caller(name.as_str().as_bytes());
        exchange.describe_caller(value.as_bytes());
        exchange.request.headers.append(name.as_str(), value.as_bytes());
    }
    Flow::Continue
}

/// Removes what only the service may say, also where applications would take it for the same.
fn remove_forged(headers: &mut Headers, names: &[String]) {
    for name in names {
        headers.remove(name);
    }
    let is_forged = |field: &[u8]| {
        let folded = field.iter().map(|byte| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() });
        let folded: Vec<u8> = folded.collect();
        names.iter().any(|name| name.to_ascii_lowercase().replace('_', "-").as_bytes() == folded)
    };
    let with_underscores = headers.iter().filter(|field| field.name.contains(&b'_') && is_forged(field.name));
    let forged: Vec<_> =
        with_underscores.map(|field| String::from_utf8_lossy(field.name).into_owned()).collect();
    forged.iter().for_each(|name| {
        headers.remove(name);
    });
}

/// Whether the service says that a header of its answer is for this connection alone.
fn ends_here(headers: &HeaderMap, name: &HeaderName) -> bool {
    let options = headers.get_all(header::CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    options.flat_map(|value| value.split(',')).any(|option| option.trim().eq_ignore_ascii_case(name.as_str()))
}

fn add(headers: &mut HeaderMap, name: &[u8], value: &[u8]) {
    if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
        headers.append(name, value);
    }
}

/// Whether the question has such a header of its own, or none.
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

/// Whether the header is about the response that the client wants, rather than about the client, or one of our own.
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

/// What may pass, each until some moment.
type Generation = FingerprintMap<(Instant, Told)>;

/// What may pass. Two generations, so that there is an end to both.
struct Passes {
    key: Fingerprinter,
    shards: [Mutex<[Generation; 2]>; 16],
}

/// Requests to a generation of a shard.
const MOST: usize = 1024;

impl Default for Passes {
    fn default() -> Self {
        Self { key: Fingerprinter::with_random_key(), shards: Default::default() }
    }
}

impl Passes {
    fn get(&self, whose: Fingerprint) -> Option<Told> {
        let shard = self.shards[(whose >> 64) as usize % 16].lock().unwrap_or_else(PoisonError::into_inner);
        let (until, told) = shard.iter().find_map(|generation| generation.get(&whose))?;
        (*until > Instant::now()).then(|| told.clone())
    }

    fn remember(&self, whose: Fingerprint, until: Instant, told: Told) {
        let mut shard =
            self.shards[(whose >> 64) as usize % 16].lock().unwrap_or_else(PoisonError::into_inner);
        if shard[0].len() >= MOST {
            shard[1] = std::mem::take(&mut shard[0]);
        }
        shard[0].insert(whose, (until, told));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_remembered_for_a_while_and_within_bounds() {
        let (passes, told) = (Passes::default(), Told::from([]));
        let (now, minute) = (Instant::now(), Duration::from_secs(60));
        passes.remember(1, now + minute, told.clone());
        passes.remember(2, now, told.clone());
        assert!(passes.get(1).is_some() && passes.get(2).is_none() && passes.get(3).is_none());
        for i in 0..100_000u128 {
            passes.remember(i << 64 | i, now + minute, told.clone());
        }
        let kept: usize =
            passes.shards.iter().flat_map(|shard| shard.lock().unwrap().each_ref().map(|g| g.len())).sum();
        assert!((16 * MOST..=32 * MOST).contains(&kept), "{kept}");
        assert!(passes.get(99_999 << 64 | 99_999).is_some());
    }
}
