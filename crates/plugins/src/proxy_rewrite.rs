//! Changes what the upstream is asked: path, query, method, host and headers. Like APISIX's plugin of this name.
//!
//! ```yaml
//! plugins:
//!   - name: proxy-rewrite
//!     route: shop
//!     config:
//!       regex_uri: ["^/shop/(.*)", "/v2/$1"]
//!       host: shop.internal
//!       headers:
//!         set:
//!           X-Client: $remote_addr
//!         remove: [X-Debug]
//! ```
//!
//! `uri` replaces the path. It may contain variables, such as `$arg_id`, `$http_x_tenant` and `$uri`, and a query, before
//! which the request's own is not lost: it is added with `&`. A `?` in the value of a variable is escaped in the path.
//! Otherwise `regex_uri` applies: of its pairs, the first
//! whose regex matches the path replaces what it matches, with `$1` for what the first group has matched. Regexes have
//! no look-around and no backreferences.
//!
//! `headers` are added, set and removed, in this order; without `add`, `set` or `remove` they are set. Their values may
//! contain variables, and `$1` for the groups of `regex_uri`.
//!
//! Which route a request takes was decided before, by the path as the client sent it.

use crate::shared::header_operations::HeaderOperations;
use crate::shared::regex_uri::{self, RegexUri};
use crate::shared::variables::Template;
use weir_plugin::{
    AccessEffect, BuildContext, Exchange, FieldError, Flow, HeadersOf, Hooks, Json, Phases, Plugin, Record,
    is_same_header,
};

/// What is changed.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// The path, and perhaps a query, in the place of the request's. It may contain variables.
    #[field(starts_with = "/", len_max = 4096)]
    pub uri: Option<String>,
    /// The method in the place of the request's.
    #[field(one_of = [
        "GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "MKCOL", "COPY", "MOVE", "PROPFIND", "LOCK", "UNLOCK",
        "PATCH", "TRACE",
    ])]
    pub method: Option<String>,
    /// A regex and what replaces its match in the path, by turns.
    #[field(len_min = 2)]
    pub regex_uri: Option<Vec<String>>,
    /// The host that the upstream is asked for, perhaps with a port.
    #[field(check = host)]
    pub host: Option<String>,
    /// Headers to `add`, `set` and `remove`, or headers to set.
    pub headers: Option<Json>,
    /// Takes the path as the client sent it, not as it is normalized.
    #[field(default = false)]
    pub use_real_request_uri_unsafe: bool,
}

fn host(text: &str) -> Result<(), String> {
    let is_fine = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte));
    if is_fine { Ok(()) } else { Err("expected a host name, perhaps with a port".to_owned()) }
}

fn violations(config: &Config) -> Vec<FieldError> {
    let mut found = regex_uri::violations(config.regex_uri.as_ref());
    if let Err(message) = HeaderOperations::read(config.headers.as_ref()) {
        found.push(FieldError::new("headers", message));
    }
    found
}

/// One configured instance.
pub(super) struct ProxyRewrite {
    uri: Option<(Template, Option<Template>)>,
    regex_uri: RegexUri,
    method: Option<String>,
    host: Option<String>,
    headers: HeaderOperations,
    is_raw: bool,
}

impl Plugin for ProxyRewrite {
    const NAME: &'static str = "proxy-rewrite";
    const PRIORITY: i32 = 1008;
    const FOR_CONSUMER_GROUPS: bool = true;
    const EXTENSION: bool = true;
    type Config = Config;

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self {
            uri: config.uri.as_deref().map(path_and_query),
            regex_uri: RegexUri::read(config.regex_uri.as_ref())?,
            method: config.method,
            host: config.host,
            headers: HeaderOperations::read(config.headers.as_ref())?,
            is_raw: config.use_real_request_uri_unsafe,
        })
    }
}

impl Hooks for ProxyRewrite {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn owns_request_header(&self, name: &[u8]) -> bool {
        self.headers.names().any(|own| is_same_header(own.as_bytes(), name))
    }

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        AccessEffect::Predictable
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let groups = self.rewrite_uri(exchange);
        self.headers.apply(exchange, HeadersOf::Request, &groups);
        if let Some(host) = &self.host {
            exchange.set_upstream_host(host);
        }
        if let Some(method) = &self.method {
            exchange.set_method(method);
        }
        Flow::Continue
    }
}

impl ProxyRewrite {
    /// Replaces the path, and returns what the groups of the regex have matched.
    fn rewrite_uri(&self, exchange: &mut Exchange) -> Vec<String> {
        if let Some((path, query)) = &self.uri {
            let text = |template: &Template| String::from_utf8_lossy(&template.render(exchange)).into_owned();
            // Else clients could begin a query there.
            let path = text(path).replace('?', "%3F");
            let query = query.as_ref().map(text);
            send_to(exchange, &path, query.as_deref());
            return Vec::new();
        }
        let path = if self.is_raw { exchange.raw_path() } else { exchange.path() };
        match self.regex_uri.rewrite(path, exchange) {
            Some(rewritten) => {
                let (path, query) = split(&rewritten.uri);
                send_to(exchange, path, query);
                rewritten.groups
            }
            None => {
                if self.is_raw {
                    let path = path.to_owned();
                    exchange.set_upstream_path(path);
                }
                Vec::new()
            }
        }
    }
}

/// The path and the query of the field `uri`, each with its variables.
fn path_and_query(uri: &str) -> (Template, Option<Template>) {
    let (path, query) = split(uri);
    (Template::parse(path), query.map(Template::parse))
}

fn split(uri: &str) -> (&str, Option<&str>) {
    uri.split_once('?').map_or((uri, None), |(path, query)| (path, Some(query)))
}

/// Asks the upstream for this path, and for this query before the request's.
fn send_to(exchange: &mut Exchange, path: &str, query: Option<&str>) {
    exchange.set_upstream_path(path);
    let Some(query) = query else { return };
    let query = match exchange.query() {
        Some(own) if query.is_empty() => own.to_owned(),
        Some(own) => format!("{query}&{own}"),
        None => query.to_owned(),
    };
    exchange.set_query(query);
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_plugin::testing::Gateway;

    #[test]
    fn a_value_begins_no_query() {
        let mut exchange = Gateway::new(&[]).exchange("GET /a?id=1%3Fadmin%3D1");
        let (path, query) = path_and_query("/users/$arg_id?from=b");
        let path = String::from_utf8_lossy(&path.render(&exchange)).replace('?', "%3F");
        let query = query.map(|query| String::from_utf8_lossy(&query.render(&exchange)).into_owned());
        send_to(&mut exchange, &path, query.as_deref());
        assert_eq!(exchange.upstream_path(), Some("/users/1%3Fadmin=1"));
        assert_eq!(exchange.query(), Some("from=b&id=1%3Fadmin%3D1"));
    }
}
