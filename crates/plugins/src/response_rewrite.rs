//! Changes responses before they go to the client: status, headers and body. Like APISIX's plugin of this name.
//!
//! ```yaml
//! plugins:
//!   - name: response-rewrite
//!     route: shop
//!     config:
//!       status_code: 200
//!       headers:
//!         set:
//!           X-Upstream-Status: $upstream_status
//!       body: '{"status":"ok"}'
//!       vars: [[status, "==", 404]]
//! ```
//!
//! With `vars` only responses that meet the condition are changed: see
//! [conditions](../coming-from-apisix.md#conditions). The gateway's own responses are changed as well.
//!
//! `headers` are added, set and removed, in this order; without `add`, `set` or `remove` they are set. `add` lists
//! `name: value`. Values may contain variables, such as `$status` and `$http_x_tenant`.
//!
//! `body` replaces the body; with `body_base64` it is decoded first. `filters` replace what their regexes match in it:
//! the first match, or with `scope: global` all; `options` may contain `i` (ignore case), `s` (`.` matches line breaks),
//! `m` (`^` and `$` match at lines) and `x` (ignore white space); `j` and `o` have no effect. For filters, a body that is
//! encoded or longer than 8 MiB passes as it is; `body` replaces any. `ETag` and `Last-Modified` are removed unless the
//! body is encoded, and with `body` `Content-Encoding` is too.

use crate::shared::expression::Expression;
use crate::shared::header_operations::HeaderOperations;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use regex::bytes::{Regex, RegexBuilder};
use weir_plugin::{
    BuildContext, Exchange, FieldError, HeadersOf, Hooks, Json, Known, Phases, Plugin, Record,
};

/// What is changed.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// The status in the place of the response's.
    #[field(between = [200, 598])]
    pub status_code: Option<u16>,
    /// The body in the place of the response's.
    #[field(len_min = 0)]
    pub body: Option<String>,
    /// Whether `body` is base64.
    #[field(default = false)]
    pub body_base64: bool,
    /// Headers to `add`, `set` and `remove`, or headers to set.
    pub headers: Option<Json>,
    /// The condition under which a response is changed.
    pub vars: Option<Json>,
    /// Replacements in the body.
    #[field(len_min = 1)]
    pub filters: Option<Vec<Filter>>,
}

/// A replacement in a body.
#[derive(Debug, Clone, Record)]
pub(super) struct Filter {
    /// What is replaced.
    pub regex: String,
    /// Whether the first match is replaced, or all.
    #[field(default = "once", one_of = ["once", "global"])]
    pub scope: String,
    /// What replaces it, with `$1` for the first group.
    #[field(len_min = 0)]
    pub replace: String,
    /// Letters that change how the regex matches.
    #[field(default = "jo", len_min = 0)]
    pub options: String,
}

fn violations(config: &Config) -> Vec<FieldError> {
    let mut found = Vec::new();
    if config.body.is_some() && config.filters.is_some() {
        found.push(FieldError::new("filters", "only one of body and filters is allowed"));
    }
    if let Err(message) = HeaderOperations::read(config.headers.as_ref()) {
        found.push(FieldError::new("headers", message));
    }
    if let Err(message) = config.vars.as_ref().map_or(Ok(Expression::default()), Expression::parse) {
        found.push(FieldError::new("vars", format!("failed to validate the 'vars' expression: {message}")));
    }
    if let Err(message) = body(config) {
        found.push(FieldError::new("body", message));
    }
    if let Err(message) = filters(config) {
        found.push(FieldError::new("filters", message));
    }
    found
}

/// The body that replaces the response's.
fn body(config: &Config) -> Result<Option<Vec<u8>>, String> {
    let Some(text) = &config.body else {
        return if config.body_base64 { Err("invalid base64 content".to_owned()) } else { Ok(None) };
    };
    if !config.body_base64 {
        return Ok(Some(text.clone().into_bytes()));
    }
    match STANDARD.decode(text) {
        Ok(body) if !body.is_empty() => Ok(Some(body)),
        _ => Err("invalid base64 content".to_owned()),
    }
}

fn filters(config: &Config) -> Result<Vec<Replacement>, String> {
    config.filters.iter().flatten().map(Replacement::of).collect()
}

/// A filter, compiled.
struct Replacement {
    regex: Regex,
    by: Vec<u8>,
    /// 0 for all.
    times: usize,
}

impl Replacement {
    fn of(filter: &Filter) -> Result<Self, String> {
        let has = |letter| filter.options.contains(letter);
        let regex = RegexBuilder::new(&filter.regex)
            .case_insensitive(has('i'))
            .dot_matches_new_line(has('s'))
            .multi_line(has('m'))
            .ignore_whitespace(has('x'))
            .build();
        let regex =
            regex.map_err(|error| format!("regex \"{}\" validation failed: {error}", filter.regex))?;
        Ok(Self { regex, by: replacement(&filter.replace), times: usize::from(filter.scope == "once") })
    }
}

/// A replacement as the regex crate writes it: `${1}` for `$1`, because `$1a` would name a group there.
fn replacement(text: &str) -> Vec<u8> {
    let mut written = String::with_capacity(text.len() + 8);
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (group, after) = after.split_at(digits);
        match (group, after.strip_prefix('$')) {
            ("", Some(after)) => {
                written.extend([before, "$$"]);
                rest = after;
            }
            ("", None) => {
                written.extend([before, if after.starts_with('{') { "$" } else { "$$" }]);
                rest = after;
            }
            _ => {
                written.extend([before, "${", group, "}"]);
                rest = after;
            }
        }
    }
    written.push_str(rest);
    written.into_bytes()
}

/// One configured instance.
pub(super) struct ResponseRewrite {
    status: Option<u16>,
    headers: HeaderOperations,
    condition: Option<Expression>,
    body: Option<Vec<u8>>,
    filters: Vec<Replacement>,
}

/// Marks a response whose body the filters change.
struct Matched;

impl Plugin for ResponseRewrite {
    const NAME: &'static str = "response-rewrite";
    const PRIORITY: i32 = 899;
    const FOR_CONSUMER_GROUPS: bool = true;
    const EXTENSION: bool = true;
    type Config = Config;

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self {
            body: body(&config)?,
            filters: filters(&config)?,
            headers: HeaderOperations::read(config.headers.as_ref())?,
            condition: config.vars.as_ref().map(Expression::parse).transpose()?,
            status: config.status_code,
        })
    }
}

impl Hooks for ResponseRewrite {
    fn phases(&self) -> Phases {
        Phases::RESPONSE | Phases::RESPONSE_BODY.only_if(!self.filters.is_empty())
    }

    fn response(&self, exchange: &mut Exchange) {
        if self.condition.as_ref().is_some_and(|condition| !condition.is_met(exchange)) {
            return;
        }
        if let Some(status) = self.status {
            exchange.response.status = status;
        }
        let headers = &mut exchange.response.headers;
        let is_encoded = headers.get_known(Known::ContentEncoding).is_some_and(|by| by != b"identity");
        if self.body.is_some() || !self.filters.is_empty() && !is_encoded {
            for name in ["Content-Encoding", "ETag", "Last-Modified"] {
                headers.remove(name);
            }
            match &self.body {
                Some(body) => exchange.set_response_body(body.clone()),
                None => {
                    exchange.buffer_response_body();
                    exchange.extensions.insert(Matched);
                }
            }
        }
        self.headers.apply(exchange, HeadersOf::Response, &[]);
    }

    fn response_body(&self, exchange: &mut Exchange, body: Vec<u8>) -> Vec<u8> {
        if exchange.extensions.get::<Matched>().is_none() {
            return body;
        }
        self.filters.iter().fold(body, |body, Replacement { regex, by, times }| {
            regex.replacen(&body, *times, by.as_slice()).into_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::replacement;

    #[test]
    fn groups_are_numbers() {
        for (text, expected) in
            [("$1a-$2", "${1}a-${2}"), ("$$1", "$$1"), ("a$b", "a$$b"), ("${1}$", "${1}$$")]
        {
            assert_eq!(String::from_utf8(replacement(text)).unwrap(), expected, "{text}");
        }
    }
}
