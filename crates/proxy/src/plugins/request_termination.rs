//! Answers requests itself, with a status and message of choice: for maintenance, retired paths, or to see a request
//! as the gateway sees it.
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
//! The body is `{"message":"…"}`, or `body` as it is with `content_type`
//! (`application/json; charset=utf-8` if none is given). Without either, statuses 401, 404, 405, 500, 502 and 503
//! have a message of their own; others have no body.
//!
//! With `trigger`, only requests that have a header or a query argument of that name are answered; the others pass.
//!
//! With `echo`, the answer tells what was received: `request` (scheme, host, port, method, path, query, headers,
//! body), `matched_route` and `matched_service`, beside `message`.

use super::form;
use crate::plugin::{
    Answer, Build, Define, Exchange, Flow, Hooks, Json, Known, Record, Violation, WantsBody, without_port,
};
use serde_json::{Map, json};

/// The answer.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// The status.
    #[field(default = 503, between = [200, 599])]
    pub status_code: u16,
    /// The message, wrapped in JSON.
    pub message: Option<String>,
    /// The content type of `body`.
    pub content_type: Option<String>,
    /// The body, as it is.
    pub body: Option<String>,
    /// Answers with what was received.
    #[field(default = false)]
    pub echo: bool,
    /// Answers only requests with a header or a query argument of this name.
    #[field(matches = header_name)]
    pub trigger: Option<String>,
}

fn violations(config: &Config) -> Vec<Violation> {
    let mut found = Vec::new();
    let has_body = config.content_type.is_some() || config.body.is_some();
    if config.message.is_some() && has_body {
        found.push(Violation::new("message", "cannot be used with `content_type` or `body`; leave one out"));
    }
    if config.content_type.is_some() && config.body.is_none() {
        found.push(Violation::new("content_type", "requires a `body`"));
    }
    if config.echo && has_body {
        found.push(Violation::new("echo", "cannot be used with `content_type` and `body`; leave one out"));
    }
    found
}

/// One configured instance.
pub(super) struct RequestTermination {
    config: Config,
}

impl Define for RequestTermination {
    const NAME: &'static str = "request-termination";
    const PRIORITY: i32 = 2;
    const FOR_CONSUMER_GROUPS: bool = true;
    type Config = Config;

    fn new(config: Config, _: &Build<'_>) -> Result<Self, String> {
        Ok(Self { config })
    }
}

impl Hooks for RequestTermination {
    fn access(&self, exchange: &mut Exchange) -> Flow {
        let config = &self.config;
        if config.trigger.as_ref().is_some_and(|trigger| !is_triggered(exchange, trigger)) {
            return Flow::Continue;
        }
        Flow::Respond(match (config.echo, &config.body) {
            (true, _) => {
                let echo = echo(exchange, self.message()).to_string();
                Answer::raw(config.status_code, Some(JSON), echo)
            }
            (false, Some(body)) => {
                let content_type = config.content_type.as_deref().unwrap_or(JSON);
                Answer::raw(config.status_code, Some(content_type), body.clone())
            }
            (false, None) => match self.message() {
                Some(message) => Answer::message(config.status_code, message),
                None => Answer::raw(config.status_code, None, ""),
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

fn echo(exchange: &Exchange, message: Option<&str>) -> Json {
    let headers = exchange.request.headers.iter().map(|field| {
        (String::from_utf8_lossy(field.name).to_ascii_lowercase(), Some(String::from_utf8_lossy(field.value)))
    });
    let query = form::pairs(exchange.query().unwrap_or_default()).map(|pair| {
        (
            String::from_utf8_lossy(&pair.name).into_owned(),
            pair.value.map(|v| String::from_utf8_lossy(&v).into_owned()),
        )
    });
    let route = exchange.route();
    json!({
        "message": message,
        "request": {
            "scheme": exchange.scheme(),
            "host": exchange.header(Known::Host).map(host),
            "port": exchange.local().port(),
            "method": exchange.request.method_str(),
            "path": exchange.path(),
            "query": gathered(query),
            "headers": gathered(headers),
            "raw_body": exchange.body().map(String::from_utf8_lossy),
        },
        "matched_route": route.map(|route| route.entity.to_value()),
        "matched_service": exchange.service().map(Record::to_value),
    })
}

/// The host of a Host header, without its port.
fn host(value: &[u8]) -> String {
    without_port(&String::from_utf8_lossy(value)).to_ascii_lowercase()
}

/// Values by name as Kong shows them: true where there is none, a list where there are several.
fn gathered<V: Into<String>>(fields: impl Iterator<Item = (String, Option<V>)>) -> Json {
    let mut gathered = Map::new();
    for (name, value) in fields {
        let value = value.map_or(Json::Bool(true), |value| Json::String(value.into()));
        match gathered.get_mut(&name) {
            None => drop(gathered.insert(name, value)),
            Some(Json::Array(values)) => values.push(value),
            Some(one) => *one = Json::Array(vec![one.take(), value]),
        }
    }
    Json::Object(gathered)
}

#[cfg(test)]
mod tests;
