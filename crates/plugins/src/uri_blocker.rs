//! Refuses requests by their path and query. Like APISIX's plugin of this name.
//!
//! ```yaml
//! plugins:
//!   - name: uri-blocker
//!     config:
//!       block_rules: ["root.exe", "\\.(sql|bak)$"]
//! ```
//!
//! A request is refused if a regex matches somewhere in its path and query, either as the client sent them or as they are
//! normalized. Regexes have no look-around and no backreferences.
//!
//! ## Responses
//!
//! `rejected_code` and, if there is a `rejected_msg`, the body `{"error_msg":"…"}`.

use regex::{RegexSet, RegexSetBuilder};
use weir_plugin::{
    AccessEffect, BuildContext, Exchange, Flow, Hooks, Json, LocalResponse, Phases, Plugin, Record,
};

/// Which requests are refused.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// Regexes of the paths and queries that are refused.
    #[field(matches = regex)]
    pub block_rules: Vec<String>,
    /// The status of refusals.
    #[field(default = 403, between = [200, 599])]
    pub rejected_code: u16,
    /// The message of refusals.
    pub rejected_msg: Option<String>,
    /// Ignores the case of letters.
    #[field(default = false)]
    pub case_insensitive: bool,
}

/// One configured instance.
pub(super) struct UriBlocker {
    rules: RegexSet,
    refusal: LocalResponse,
}

impl Plugin for UriBlocker {
    const NAME: &'static str = "uri-blocker";
    const PRIORITY: i32 = 2900;
    const FOR_CONSUMER_GROUPS: bool = true;
    const EXTENSION: bool = true;
    type Config = Config;

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        let rules =
            RegexSetBuilder::new(&config.block_rules).case_insensitive(config.case_insensitive).build();
        let refusal = match config.rejected_msg {
            Some(message) => {
                let body = format!("{{\"error_msg\":{}}}", Json::from(message));
                LocalResponse::raw(config.rejected_code, Some("application/json"), body)
            }
            None => LocalResponse::raw(config.rejected_code, None, ""),
        };
        Ok(Self { rules: rules.map_err(|error| format!("config.block_rules: {error}"))?, refusal })
    }
}

impl Hooks for UriBlocker {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        AccessEffect::Predictable
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let is_blocked = self.rules.is_match(exchange.path_with_query()) || {
            let normal = exchange.normal_target();
            self.rules.is_match(&String::from_utf8_lossy(&normal))
        };
        if is_blocked { Flow::Respond(self.refusal.clone()) } else { Flow::Continue }
    }
}
