//! Lets browsers call an API from pages of other origins (the Fetch standard's CORS protocol).
//!
//! ```yaml
//! plugins:
//!   - name: cors
//!     service: orders
//!     config:
//!       origins: ["https://shop.example.com", "https://.*\\.example\\.org"]
//!       credentials: true
//!       max_age: 600
//! ```
//!
//! A preflight is an OPTIONS request with `Origin` and `Access-Control-Request-Method`. The plugin answers it with
//! status 200 and no body, before any authentication; with `preflight_continue` only the upstream answers it. Every
//! other response gets the headers, also one that the gateway makes. The plugin refuses nothing, because the browser
//! enforces the rules.
//!
//! ## Which origin is allowed
//!
//! | `origins` | `Access-Control-Allow-Origin` |
//! |---|---|
//! | none, or `*` alone | `*`; with `credentials`, the request's own origin |
//! | one literal origin | that one, for every client |
//! | anything else | the request's, without a default port, if an entry matches; otherwise none, not even the upstream's |
//!
//! An entry with any character that is not a letter, a digit or one of `. : / -` is a regex, which must match the whole
//! origin, or the whole host if the regex has no colon. `https://*.example.com` is a regex, too: it matches nothing,
//! and Weir warns about it. Write `https://[^.]+\.example\.com`. Wherever the response depends on the origin, it has
//! `Vary: Origin`.

use regex::bytes::Regex;
use weir_plugin::rule;
use weir_plugin::{
    AccessEffect, BuildContext, Exchange, FieldError, FieldWarning, Flow, Hooks, Json, Known, LocalResponse,
    Method, Phases, Plugin, Record,
};

/// What pages of other origins may do.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// The allowed origins: `*`, origins such as `https://example.com`, or regexes.
    pub origins: Option<Vec<String>>,
    /// The allowed request headers; if unset, those that the browser asks for.
    pub headers: Option<Vec<String>>,
    /// The response headers that pages may read.
    pub exposed_headers: Option<Vec<String>>,
    /// The allowed methods.
    #[field(
        nullable, default = ["GET", "HEAD", "PUT", "PATCH", "POST", "DELETE", "OPTIONS", "TRACE", "CONNECT"],
        one_of = ["GET", "HEAD", "PUT", "PATCH", "POST", "DELETE", "OPTIONS", "TRACE", "CONNECT"],
    )]
    pub methods: Vec<String>,
    /// For how many seconds a browser may cache the response to a preflight.
    pub max_age: Option<f64>,
    /// Lets pages send cookies and other credentials.
    #[field(default = false)]
    pub credentials: bool,
    /// Lets public pages send requests to hosts of a private network.
    #[field(default = false)]
    pub private_network: bool,
    /// Leaves preflights to the upstream.
    #[field(default = false)]
    pub preflight_continue: bool,
    /// Adds the headers to the responses of requests without `Origin` too. Kong has this field from 3.10 on.
    #[field(extension, default = true)]
    pub allow_origin_absent: bool,
}

fn violations(config: &Config) -> Vec<FieldError> {
    let entries = config.origins.iter().flatten().enumerate();
    let wrong = entries.filter(|(_, entry)| *entry != "*").filter_map(|(index, entry)| {
        let why = rule::regex(entry).err()?;
        let advice = match regex_of_wildcard(entry) {
            Some(regex) => format!("write '{regex}'"),
            None => "write `*`, an origin such as https://example.com, or a regex".to_owned(),
        };
        Some(FieldError::new(format!("origins[{index}]"), format!("{why}; {advice}")))
    });
    wrong.collect()
}

/// The regex that an entry such as `https://*.example.com` was meant to be.
fn regex_of_wildcard(entry: &str) -> Option<String> {
    let is_plain = is_literal(&entry.replace('*', ""));
    if entry == "*" || !is_plain || !entry.contains('*') || entry.contains(".*") {
        return None;
    }
    let hosts = entry.replace('.', "\\.").replace(":*", r":\d+");
    Some(hosts.replace('*', "[^.]+"))
}

/// One configured instance, with its lists joined as they are sent.
pub(super) struct Cors {
    origins: Origins,
    headers: Option<String>,
    exposed_headers: Option<String>,
    methods: String,
    max_age: Option<String>,
    credentials: bool,
    private_network: bool,
    preflight_continue: bool,
    allow_origin_absent: bool,
}

impl Plugin for Cors {
    const NAME: &'static str = "cors";
    const PRIORITY: i32 = 2000;
    const FOR_CONSUMERS: bool = false;
    type Config = Config;

    fn warnings(config: &Json) -> Vec<FieldWarning> {
        let entries = config["origins"].as_array().into_iter().flatten().enumerate();
        let wildcards = entries.filter_map(|(index, entry)| {
            let regex = regex_of_wildcard(entry.as_str()?)?;
            let message = format!(
                "is taken for a regex, in which `*` repeats the character before it, so that it allows no such origin; \
                 write '{regex}'"
            );
            Some(FieldWarning::new(format!("origins[{index}]"), message))
        });
        wildcards.collect()
    }

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        let joined =
            |list: Option<Vec<String>>| list.filter(|list| !list.is_empty()).map(|list| list.join(","));
        Ok(Self {
            origins: Origins::of(config.origins.unwrap_or_default())?,
            headers: joined(config.headers),
            exposed_headers: joined(config.exposed_headers),
            methods: config.methods.join(","),
            max_age: config.max_age.map(|seconds| seconds.to_string()),
            credentials: config.credentials,
            private_network: config.private_network,
            preflight_continue: config.preflight_continue,
            allow_origin_absent: config.allow_origin_absent,
        })
    }
}

/// The origins that are allowed.
enum Origins {
    /// All of them. If `*` is not the only entry, the response has `Vary: Origin`.
    Any { among_others: bool },
    /// Only this one, sent to every client.
    One(String),
    /// Those that an entry matches.
    Listed(Vec<Entry>),
}

enum Entry {
    Literal(Vec<u8>),
    Origin(Regex),
    Host(Regex),
}

impl Origins {
    fn of(mut list: Vec<String>) -> Result<Self, String> {
        if list.is_empty() || list.iter().any(|entry| entry == "*") {
            return Ok(Self::Any { among_others: list.len() > 1 });
        }
        match list.as_slice() {
            [one] if is_literal(one) => Ok(Self::One(list.remove(0))),
            _ => list.iter().map(|entry| Entry::of(entry)).collect::<Result<_, _>>().map(Self::Listed),
        }
    }
}

fn is_literal(entry: &str) -> bool {
    entry.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:/-".contains(&byte))
}

impl Entry {
    fn of(entry: &str) -> Result<Self, String> {
        if is_literal(entry) {
            return Ok(Self::Literal(Origin::of(entry.as_bytes()).text.to_vec()));
        }
        let whole = entry.strip_prefix('^').unwrap_or(entry);
        let whole = whole.strip_suffix('$').filter(|rest| !rest.ends_with('\\')).unwrap_or(whole);
        let regex = Regex::new(&format!("^(?:{whole})$"))
            .map_err(|error| format!("config.origins: {error}; write simpler regexes"))?;
        Ok(if entry.contains(':') { Self::Origin(regex) } else { Self::Host(regex) })
    }

    fn matches(&self, origin: &Origin<'_>) -> bool {
        match self {
            Self::Literal(text) => text == origin.text,
            Self::Origin(regex) => regex.is_match(origin.text),
            Self::Host(regex) => regex.is_match(origin.host),
        }
    }
}

/// A normalized origin: scheme, host, and the port unless it is the scheme's default.
struct Origin<'a> {
    text: &'a [u8],
    host: &'a [u8],
}

impl<'a> Origin<'a> {
    fn of(sent: &'a [u8]) -> Self {
        let Some(scheme) = memchr::memmem::find(sent, b"://") else { return Self { text: sent, host: sent } };
        let (start, rest) = (scheme + 3, &sent[scheme + 3..]);
        let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
        let colon =
            rest[..end].iter().rposition(|byte| *byte == b':').filter(|at| !rest[*at..end].contains(&b']'));
        let host = &rest[..colon.unwrap_or(end)];
        let port = colon.map_or(&b""[..], |colon| &rest[colon + 1..end]);
        let default = matches!((&sent[..scheme], port), (b"http", b"80") | (b"https", b"443") | (_, b""));
        let end = start + if default { host.len() } else { end };
        Self { text: &sent[..end], host }
    }
}

/// What the response says about the origin.
struct Verdict<'a> {
    allow_origin: Option<&'a [u8]>,
    credentials: bool,
    vary: bool,
}

impl Hooks for Cors {
    fn phases(&self) -> Phases {
        Phases::ACCESS.only_if(!self.preflight_continue) | Phases::RESPONSE
    }

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        AccessEffect::Predictable
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        if self.preflight_continue || !is_preflight(exchange) {
            return Flow::Continue;
        }
        let verdict = self.verdict(exchange.header(Known::Origin));
        let mut answer = LocalResponse::raw(200, None, "");
        if verdict.vary {
            answer = answer.header("Vary", "Origin");
        }
        if let Some(origin) = verdict.allow_origin {
            answer = answer.header("Access-Control-Allow-Origin", origin);
        }
        if verdict.credentials {
            answer = answer.header("Access-Control-Allow-Credentials", "true");
        }
        Flow::Respond(self.permissions(exchange, answer))
    }

    fn response(&self, exchange: &mut Exchange) {
        let origin = exchange.request.headers.get_known(Known::Origin);
        if origin.is_none() && !self.allow_origin_absent || is_preflight(exchange) {
            return;
        }
        let verdict = self.verdict(origin);
        let headers = &mut exchange.response.headers;
        if verdict.vary {
            headers.append("Vary", b"Origin");
        }
        match verdict.allow_origin {
            Some(origin) => headers.set("Access-Control-Allow-Origin", origin),
            None => drop(headers.remove("Access-Control-Allow-Origin")),
        }
        if verdict.credentials {
            headers.set("Access-Control-Allow-Credentials", b"true");
        }
        if let Some(exposed) = &self.exposed_headers {
            headers.set("Access-Control-Expose-Headers", exposed.as_bytes());
        }
    }
}

impl Cors {
    fn verdict<'a>(&'a self, origin: Option<&'a [u8]>) -> Verdict<'a> {
        let of = |allow_origin| Verdict { allow_origin, credentials: self.credentials, vary: true };
        match (&self.origins, origin) {
            // Browsers reject `*` together with credentials.
            (Origins::Any { .. }, Some(origin)) if self.credentials => of(Some(origin)),
            (Origins::Any { among_others }, _) => {
                Verdict { allow_origin: Some(b"*"), credentials: false, vary: *among_others }
            }
            (Origins::One(origin), _) => of(Some(origin.as_bytes())),
            (Origins::Listed(entries), origin) => {
                let origin = origin.map(Origin::of);
                let allowed = origin.filter(|origin| entries.iter().any(|entry| entry.matches(origin)));
                of(allowed.map(|origin| origin.text))
            }
        }
    }

    /// Answers what a preflight asks besides its origin.
    fn permissions(&self, exchange: &Exchange, mut answer: LocalResponse) -> LocalResponse {
        let asked = |name| exchange.request.headers.get(name);
        let headers = self.headers.as_ref().map(|list| list.as_bytes());
        if let Some(headers) = headers.or_else(|| asked("Access-Control-Request-Headers")) {
            answer = answer.header("Access-Control-Allow-Headers", headers);
        }
        answer = answer.header("Access-Control-Allow-Methods", &self.methods);
        if let Some(seconds) = &self.max_age {
            answer = answer.header("Access-Control-Max-Age", seconds);
        }
        if self.private_network && asked("Access-Control-Request-Private-Network") == Some(b"true") {
            answer = answer.header("Access-Control-Allow-Private-Network", "true");
        }
        answer
    }
}

fn is_preflight(exchange: &Exchange) -> bool {
    let headers = &exchange.request.headers;
    exchange.request.method == Method::Options
        && headers.contains_known(Known::Origin)
        && headers.get("Access-Control-Request-Method").is_some()
}

#[cfg(test)]
mod tests;
