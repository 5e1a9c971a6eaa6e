//! Allows or denies requests by the host of their `Referer`. Like APISIX's plugin of this name.
//!
//! ```yaml
//! plugins:
//!   - name: referer-restriction
//!     config:
//!       whitelist: [shop.example.com, "*.example.org"]
//! ```
//!
//! With a `whitelist` a request passes if the host is in it, with a `blacklist` if it is not. `*.example.org` stands for
//! every host that ends in `.example.org`. A request without a `Referer`, or with one that is no URL, is denied unless
//! `bypass_missing` is set.
//!
//! ## Responses
//!
//! Status 403 and `{"message":"Your referer host is not allowed"}`, or the `message`.

use weir_plugin::{
    AccessEffect, BuildContext, Exchange, FieldError, Flow, Hooks, LocalResponse, Phases, Plugin, Record,
    without_port,
};

/// Which requests pass.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// Whether requests without `Referer` pass.
    #[field(default = false)]
    pub bypass_missing: bool,
    /// The allowed hosts, perhaps beginning with `*`.
    #[field(len_min = 1)]
    pub whitelist: Option<Vec<String>>,
    /// The denied hosts, perhaps beginning with `*`.
    #[field(len_min = 1)]
    pub blacklist: Option<Vec<String>>,
    /// The message of refusals.
    #[field(default = "Your referer host is not allowed", len_max = 1024)]
    pub message: String,
}

fn violations(config: &Config) -> Vec<FieldError> {
    match (&config.whitelist, &config.blacklist) {
        (Some(_), None) | (None, Some(_)) => Vec::new(),
        _ => vec![FieldError::new("", "set either `whitelist` or `blacklist`")],
    }
}

/// One configured instance.
pub(super) struct RefererRestriction(Config);

impl Plugin for RefererRestriction {
    const NAME: &'static str = "referer-restriction";
    const PRIORITY: i32 = 2990;
    const FOR_CONSUMER_GROUPS: bool = true;
    const EXTENSION: bool = true;
    type Config = Config;

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self(config))
    }
}

impl Hooks for RefererRestriction {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        AccessEffect::Predictable
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let mut referers = exchange.request.headers.get_all("Referer").map(host).peekable();
        let is_allowed = match referers.peek() {
            None => self.0.bypass_missing,
            // The upstream gets all of them.
            Some(_) => referers.all(|host| self.allows(host)),
        };
        if is_allowed {
            return Flow::Continue;
        }
        Flow::Respond(LocalResponse::message(403, &self.0.message))
    }
}

impl RefererRestriction {
    /// Whether requests pass that come from a host, or from what is no URL.
    fn allows(&self, host: Option<&str>) -> bool {
        match (host, &self.0.whitelist, &self.0.blacklist) {
            (None, _, _) => self.0.bypass_missing,
            (Some(host), Some(allowed), _) => is_listed(allowed, host),
            (Some(host), None, denied) => !denied.as_ref().is_some_and(|denied| is_listed(denied, host)),
        }
    }
}

/// The host of a URL.
fn host(url: &[u8]) -> Option<&str> {
    let url = std::str::from_utf8(url).ok()?;
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    Some(without_port(host)).filter(|host| !host.is_empty())
}

fn is_listed(list: &[String], host: &str) -> bool {
    list.iter().any(|listed| match listed.strip_prefix('*') {
        Some(suffix) => {
            let start = host.len().checked_sub(suffix.len()).and_then(|at| host.get(at..));
            start.is_some_and(|end| end.eq_ignore_ascii_case(suffix))
        }
        None => host.eq_ignore_ascii_case(listed),
    })
}
