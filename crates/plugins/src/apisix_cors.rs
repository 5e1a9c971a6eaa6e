//! Lets browsers call from pages of other origins, as APISIX's plugin cors does. Kong's is [cors](cors.md); APISIX's
//! objects call this one `cors`.
//!
//! ```yaml
//! plugins:
//!   - name: apisix-cors
//!     service: orders
//!     config:
//!       allow_origins: https://shop.example.com,https://admin.example.com
//!       allow_methods: GET,POST
//! ```
//!
//! Every `OPTIONS` request is answered 200, without asking the upstream. `*` stands for all, and `**` for all with
//! credentials too: the response then names what the browser has asked for. With `allow_credential: true` no field may be
//! `*`.
//!
//! If several origins are listed, or `allow_origins_by_regex` is set, a response to any other origin has none of the
//! headers but `Vary: Origin`, which all responses have unless everything is allowed by `*`. The regexes match anywhere in the origin, unless they say otherwise by `^` and `$`.

use regex::bytes::Regex;
use weir_plugin::{
    AccessEffect, BuildContext, Exchange, FieldError, Flow, Hooks, Known, LocalResponse, Method, Phases,
    Plugin, Record,
};

/// What pages may do.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// The allowed origins, separated by commas; `*` or `**` for all.
    #[field(default = "*")]
    pub allow_origins: String,
    /// The allowed methods, separated by commas; `*` or `**` for all.
    #[field(default = "*")]
    pub allow_methods: String,
    /// The allowed request headers, separated by commas; `*` or `**` for all.
    #[field(default = "*")]
    pub allow_headers: String,
    /// The response headers that pages may read, separated by commas; `*` or `**` for all.
    #[field(default = "*")]
    pub expose_headers: String,
    /// For how many seconds a browser may cache the response to a preflight; -1 for never.
    #[field(default = 5)]
    pub max_age: i64,
    /// Lets pages send cookies and other credentials.
    #[field(default = false)]
    pub allow_credential: bool,
    /// Regexes of allowed origins.
    #[field(len_min = 1, matches = regex)]
    pub allow_origins_by_regex: Option<Vec<String>>,
    /// The origins that may read the timing of the response, separated by commas; `*` or `**` for all.
    pub timing_allow_origins: Option<String>,
}

fn violations(config: &Config) -> Vec<FieldError> {
    let Config { allow_origins, allow_methods, allow_headers, expose_headers, .. } = config;
    let timing = config.timing_allow_origins.as_deref() == Some("*");
    let all = [allow_origins, allow_methods, allow_headers, expose_headers].iter().any(|field| *field == "*");
    if config.allow_credential && (all || timing) {
        let message = "you can not set '*' for other option when 'allow_credential' is true";
        return vec![FieldError::new("", message)];
    }
    Vec::new()
}

/// One configured instance.
pub(super) struct ApisixCors {
    config: Config,
    max_age: String,
    origins: Origins,
    timing: Option<Origins>,
}

/// The origins that are allowed.
enum Origins {
    /// The one that asks, or `*`.
    Echoed,
    /// This text, sent to every client.
    Fixed(String),
    /// Those of a list, or that a regex matches.
    Listed(Vec<String>, Vec<Regex>),
}

const ALL_METHODS: &str = "GET,POST,PUT,DELETE,PATCH,HEAD,OPTIONS,CONNECT,TRACE";

impl Origins {
    fn of(list: &str, regexes: Vec<Regex>) -> Self {
        match list {
            "**" => Self::Echoed,
            _ if regexes.is_empty() && !list.contains(',') => Self::Fixed(list.to_owned()),
            _ => Self::Listed(list.split(',').map(|origin| origin.trim().to_owned()).collect(), regexes),
        }
    }

    /// Whether caches must keep the responses to different origins apart, also those to an origin that is not allowed.
    fn vary(&self) -> bool {
        !matches!(self, Self::Fixed(text) if text == "*")
    }

    /// What the response allows this origin.
    fn allowed<'a>(&'a self, origin: Option<&'a [u8]>) -> Option<&'a [u8]> {
        match self {
            Self::Echoed => Some(origin.unwrap_or(b"*")),
            Self::Fixed(text) => Some(text.as_bytes()),
            Self::Listed(list, regexes) => origin.filter(|origin| {
                list.iter().any(|listed| listed == "*" || listed.as_bytes() == *origin)
                    || regexes.iter().any(|regex| regex.is_match(origin))
            }),
        }
    }
}

impl Plugin for ApisixCors {
    const NAME: &'static str = "apisix-cors";
    const PRIORITY: i32 = 4000;
    const FOR_CONSUMERS: bool = false;
    const EXTENSION: bool = true;
    type Config = Config;

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        let regexes = config.allow_origins_by_regex.iter().flatten().map(|regex| Regex::new(regex));
        let regexes = regexes.collect::<Result<Vec<_>, _>>();
        let regexes = regexes.map_err(|error| format!("config.allow_origins_by_regex: {error}"))?;
        // A regex alone decides where the list is not set.
        let list = if regexes.is_empty() || config.allow_origins != "*" { &config.allow_origins } else { "" };
        Ok(Self {
            max_age: config.max_age.to_string(),
            origins: Origins::of(list, regexes),
            timing: config.timing_allow_origins.as_deref().map(|list| Origins::of(list, Vec::new())),
            config,
        })
    }
}

impl Hooks for ApisixCors {
    fn phases(&self) -> Phases {
        Phases::ACCESS | Phases::RESPONSE
    }

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        AccessEffect::Predictable
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        if exchange.request.method == Method::Options {
            return Flow::Respond(LocalResponse::raw(200, None, ""));
        }
        Flow::Continue
    }

    fn response(&self, exchange: &mut Exchange) {
        let Exchange { request, response, .. } = exchange;
        let origin = request.headers.get_known(Known::Origin);
        let headers = &mut response.headers;
        if let Some(allowed) = self.timing.as_ref().and_then(|timing| timing.allowed(origin)) {
            headers.set("Timing-Allow-Origin", allowed);
        }
        if self.origins.vary() || self.timing.as_ref().is_some_and(Origins::vary) {
            headers.append("Vary", b"Origin");
        }
        let Some(allowed) = self.origins.allowed(origin) else { return };
        headers.set("Access-Control-Allow-Origin", allowed);
        let Config { allow_methods, allow_headers, expose_headers, allow_credential, .. } = &self.config;
        let methods = if allow_methods == "**" { ALL_METHODS } else { allow_methods };
        headers.set("Access-Control-Allow-Methods", methods.as_bytes());
        headers.set("Access-Control-Max-Age", self.max_age.as_bytes());
        headers.set("Access-Control-Expose-Headers", expose_headers.as_bytes());
        let asked = || request.headers.get("Access-Control-Request-Headers");
        match allow_headers.as_str() {
            "**" => asked().into_iter().for_each(|asked| headers.set("Access-Control-Allow-Headers", asked)),
            listed => headers.set("Access-Control-Allow-Headers", listed.as_bytes()),
        }
        if *allow_credential {
            headers.set("Access-Control-Allow-Credentials", b"true");
        }
    }
}
