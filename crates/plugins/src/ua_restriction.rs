//! Allows or denies clients by their `User-Agent`. Like APISIX's plugin of this name.
//!
//! ```yaml
//! plugins:
//!   - name: ua-restriction
//!     config:
//!       denylist: ["(?i)bot", "^curl/"]
//! ```
//!
//! With an `allowlist` a client is allowed that one of its regexes matches; with a `denylist` one that none matches. A
//! client without `User-Agent` is denied, unless `bypass_missing` is set. Of several headers each is looked at.
//!
//! ## Responses
//!
//! Status 403 and `{"message":"Not allowed"}`, or the `message`.

use regex::bytes::RegexSet;
use weir_plugin::{
    AccessEffect, BuildContext, Exchange, FieldError, Flow, Hooks, Known, LocalResponse, Phases, Plugin,
    Record,
};

/// Which clients are allowed.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// Whether clients without `User-Agent` are allowed.
    #[field(default = false)]
    pub bypass_missing: bool,
    /// Regexes of the allowed clients.
    #[field(len_min = 1, matches = regex)]
    pub allowlist: Option<Vec<String>>,
    /// Regexes of the denied clients.
    #[field(len_min = 1, matches = regex)]
    pub denylist: Option<Vec<String>>,
    /// The message of refusals.
    #[field(default = "Not allowed", len_max = 1024)]
    pub message: String,
}

fn violations(config: &Config) -> Vec<FieldError> {
    match (&config.allowlist, &config.denylist) {
        (Some(_), None) | (None, Some(_)) => Vec::new(),
        _ => vec![FieldError::new("", "set either `allowlist` or `denylist`")],
    }
}

/// One configured instance.
pub(super) struct UaRestriction {
    config: Config,
    regexes: RegexSet,
}

impl Plugin for UaRestriction {
    const NAME: &'static str = "ua-restriction";
    const PRIORITY: i32 = 2999;
    const FOR_CONSUMER_GROUPS: bool = true;
    const EXTENSION: bool = true;
    type Config = Config;

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        let regexes = RegexSet::new(config.allowlist.iter().chain(&config.denylist).flatten());
        Ok(Self { regexes: regexes.map_err(|error| error.to_string())?, config })
    }
}

impl Hooks for UaRestriction {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        AccessEffect::Predictable
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let mut agents = exchange.request.headers.get_all_known(Known::UserAgent).peekable();
        let is_listed = |agent: &[u8]| self.regexes.is_match(agent.trim_ascii());
        let is_allowed = match agents.peek() {
            None => self.config.bypass_missing,
            // The upstream gets all of them.
            Some(_) if self.config.allowlist.is_some() => agents.all(is_listed),
            Some(_) => !agents.any(is_listed),
        };
        if is_allowed {
            return Flow::Continue;
        }
        Flow::Respond(LocalResponse::message(403, &self.config.message))
    }
}
