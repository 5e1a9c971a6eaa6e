//! Answers requests with a configured status and message: for maintenance, retired paths, or to see a request as the
//! gateway sees it.
//!
//! ```yaml
//! plugins:
//!   - name: request-termination
//!     route: orders-v1
//!     config:
//!       status_code: 410
//!       message: use /v2/orders
//! ```
//!
//! ## Responses
//!
//! The body is `{"message":"…"}`, or `body` with `content_type` (`application/json; charset=utf-8` if unset). Without
//! either, statuses 401, 404, 405, 500, 502 and 503 have a default message; others have no body.
//!
//! With `trigger`, only requests that have a header or a query argument of that name are answered; the others pass.
//!
//! With `echo`, the response contains, beside `message`:
//!
//! | member | what it holds |
//! |---|---|
//! | `request` | `scheme`, `host`, `port`, `method`, `path`, `query`, `headers`; the body as `raw_body`, and parsed as `body` if `Content-Type` says that it is JSON or a form. A body above 1 MiB is left out |
//! | `matched_route`, `matched_service` | as the Admin API shows them, without unset fields |
//! | `kong` | the node: `node_id`, `worker_pid`, `hostname` |

mod echo;

use crate::shared::interim_status;
use echo::Node;
use weir_plugin::form;
use weir_plugin::{
    AccessEffect, BuildContext, Exchange, FieldError, FieldWarning, Flow, Hooks, Json, LocalResponse, Phases,
    Plugin, Record, WantsBody,
};

/// The response.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// The status.
    #[field(default = 503, between = [100, 599])]
    pub status_code: u16,
    /// The message, wrapped in JSON.
    pub message: Option<String>,
    /// The content type of `body`.
    pub content_type: Option<String>,
    /// The body, as it is.
    pub body: Option<String>,
    /// Answers with the request.
    #[field(default = false)]
    pub echo: bool,
    /// Answers only requests with a header or a query argument of this name.
    #[field(matches = header_name)]
    pub trigger: Option<String>,
}

fn violations(config: &Config) -> Vec<FieldError> {
    let mut found = Vec::new();
    let has_body = config.content_type.is_some() || config.body.is_some();
    if config.message.is_some() && has_body {
        found.push(FieldError::new("message", "cannot be used with `content_type` or `body`; leave one out"));
    }
    if config.content_type.is_some() && config.body.is_none() {
        found.push(FieldError::new("content_type", "requires a `body`"));
    }
    if config.echo && has_body {
        found.push(FieldError::new("echo", "cannot be used with `content_type` and `body`; leave one out"));
    }
    found
}

/// One configured instance.
pub(super) struct RequestTermination {
    config: Config,
    node: Node,
}

impl Plugin for RequestTermination {
    const NAME: &'static str = "request-termination";
    const PRIORITY: i32 = 2;
    const FOR_CONSUMER_GROUPS: bool = true;
    type Config = Config;

    fn warnings(config: &Json) -> Vec<FieldWarning> {
        interim_status::warnings(config)
    }

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self { config, node: Node::new(build) })
    }
}

impl Hooks for RequestTermination {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        AccessEffect::Predictable
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let config = &self.config;
        if config.trigger.as_ref().is_some_and(|trigger| !is_triggered(exchange, trigger)) {
            return Flow::Continue;
        }
        Flow::Respond(match (config.echo, &config.body) {
            (true, _) => {
                let echo = echo::body(exchange, self.message(), &self.node);
                LocalResponse::raw(config.status_code, Some(JSON), echo)
            }
            (false, Some(body)) => {
                let content_type = config.content_type.as_deref().unwrap_or(JSON);
                LocalResponse::raw(config.status_code, Some(content_type), body.clone())
            }
            (false, None) => match self.message() {
                Some(message) => LocalResponse::message(config.status_code, message),
                None => LocalResponse::raw(config.status_code, None, ""),
            },
        })
    }

    fn wants_body(&self) -> WantsBody {
        if self.config.echo { WantsBody::Yes } else { WantsBody::No }
    }
}

const JSON: &str = "application/json; charset=utf-8";

impl RequestTermination {
    fn message(&self) -> Option<&str> {
        self.config.message.as_deref().or(match self.config.status_code {
            401 => Some("Unauthorized"),
            404 => Some("Not found"),
            405 => Some("Method not allowed"),
            500 => Some("An unexpected error occurred"),
            502 => Some("Bad Gateway"),
            503 => Some("Service unavailable"),
            _ => None,
        })
    }
}

fn is_triggered(exchange: &Exchange, trigger: &str) -> bool {
    let in_query =
        || form::pairs(exchange.query().unwrap_or_default()).any(|pair| *pair.name == *trigger.as_bytes());
    exchange.request.headers.get(trigger).is_some() || in_query()
}

#[cfg(test)]
mod tests;
