//! Redirects clients to another URL.
//!
//! ```yaml
//! plugins:
//!   - name: redirect
//!     route: old-shop
//!     config:
//!       status_code: 308
//!       location: https://shop.example.com
//!       keep_incoming_path: true
//! ```
//!
//! ## Responses
//!
//! Every request is answered with `status_code`, `Location` and the body `redirecting`. With `keep_incoming_path`, path
//! and query of the request replace those of `location`.

use crate::shared::interim_status;
use weir_plugin::{
    AccessEffect, BuildContext, Exchange, FieldWarning, Flow, Hooks, Json, LocalResponse, Phases, Plugin,
    Record,
};

/// Where clients are redirected to.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// The status.
    #[field(default = 301, between = [100, 599])]
    pub status_code: u16,
    /// The URL to redirect to.
    #[field(matches = url)]
    pub location: String,
    /// Replaces the URL's path and query with those of the request.
    #[field(default = false)]
    pub keep_incoming_path: bool,
}

/// One configured instance.
pub(super) struct Redirect {
    config: Config,
    /// The URL up to its path.
    origin: String,
}

impl Plugin for Redirect {
    const NAME: &'static str = "redirect";
    const PRIORITY: i32 = 779;
    const FOR_CONSUMER_GROUPS: bool = true;
    type Config = Config;

    fn warnings(config: &Json) -> Vec<FieldWarning> {
        interim_status::warnings(config)
    }

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        let (scheme, rest) = config.location.split_once("://").ok_or("config.location has no scheme")?;
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        Ok(Self { origin: format!("{scheme}://{authority}"), config })
    }
}

impl Hooks for Redirect {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        AccessEffect::Predictable
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let answer = LocalResponse::raw(self.config.status_code, None, "redirecting");
        Flow::Respond(if self.config.keep_incoming_path {
            let query = exchange.request.query().map(|query| format!("?{query}")).unwrap_or_default();
            answer.header("Location", format!("{}{}{query}", self.origin, exchange.request.path()))
        } else {
            answer.header("Location", &self.config.location)
        })
    }
}
