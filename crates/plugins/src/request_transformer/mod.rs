//! Changes requests before they go to the upstream: headers, query, body, method and path.
//!
//! ```yaml
//! plugins:
//!   - name: request-transformer
//!     service: orders
//!     config:
//!       remove:
//!         headers: [x-internal]
//!       rename:
//!         querystring: ["q:search"]
//!       replace:
//!         uri: /v2/orders/$(uri_captures.id)
//!       add:
//!         headers: ["x-caller:$(consumer.username or 'anonymous')"]
//!         body: ["source:gateway"]
//! ```
//!
//! For each of headers, body and query string, `remove` is applied first, then `rename`, `replace`, `add` and `append`.
//! `replace` changes an existing value, `add` adds a missing one, `append` adds one more value. The path and the method
//! are changed before all of them. `replace.headers` with `host` changes the `Host` of the upstream request. The first
//! colon separates the name from the value.
//!
//! ## Bodies
//!
//! The plugin changes JSON objects, urlencoded forms and multipart forms, by `Content-Type`, up to 1 MiB. Other bodies
//! pass unchanged: if something that is removed must not get through, refuse longer bodies with
//! [request-size-limiting](request-size-limiting.md). Parsing is as lenient as in servers: `NaN` or a form without its
//! end are accepted. What is not named stays as it was written. A new value in JSON is a string; `append` makes a list.
//! In multipart forms `rename` comes before `remove`, and nothing is appended. If the method becomes GET, HEAD or
//! TRACE, the fields of a form are also added to the query string.
//!
//! ## Templates
//!
//! Values, the new names in `rename.body` and `rename.querystring`, and `replace.uri` may contain `$(…)`. It sees the
//! request as it was before this plugin:
//!
//! | | |
//! |---|---|
//! | `headers.name`, `headers["na-me"]` | a header; underscores may stand for hyphens |
//! | `query_params.name`, `query_params["na-me"]` | a query argument, decoded; `true` if it has no value |
//! | `uri_captures.name`, `uri_captures[1]` | what a group of the route's path captured |
//! | `consumer.id`, `consumer.custom_id`, `consumer.username` | the consumer |
//! | `shared` | `kong.ctx.shared`, which plugins in Lua set |
//! | `'text'`, `"text"`, `nil`, `true`, `false` | literals |
//! | `or`, `and`, `not`, `==`, `~=`, `..`, `( )` | as in Lua |
//! | `:sub(i, j)`, `:lower()`, `:upper()` | as in Lua; nil if the value is not a string |
//! | any other expression | run by the worker's [Lua](../lua.md), in a sandbox unless `untrusted_lua=on` |
//!
//! Nil and false are rendered as nothing. In `replace.uri` values are not escaped, so a value that a client chooses may
//! contain `..`.
//!
//! All rows but the last two are evaluated without Lua. There, if several headers or arguments have one name, the first
//! counts. In code that runs in Lua, such a value is a table, as in Kong: `type(headers.x) == 'table' and headers.x[1] or
//! headers.x`. Such code sees the library of the sandbox, but neither `kong` nor `ngx`, and can set nothing. If it fails, the
//! request is answered 500, and the node's log says why. Code that does not parse is rejected with the configuration, and with
//! `untrusted_lua=off` all code.

mod arguments;
mod body;
mod expression;
mod headers;
mod operations;
mod parser;
mod template;

use crate::shared::transformer::{
    ignored_fields, named_header, renamed_header, split, valued, valued_header,
};
use arguments::Arguments;
use body::Form;
use headers::HeaderOperations;
use operations::{Operations, Value, Values, apply};
use weir_plugin::form;
use weir_plugin::{
    AccessEffect, BuildContext, Exchange, FieldWarning, Flow, Hooks, Json, Known, LocalResponse, Phases,
    Plugin, Record, WantsBody, is_same_header,
};

/// What is changed.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// The method of the upstream request.
    #[field(check = method)]
    pub http_method: Option<String>,
    /// What is removed.
    #[field(default = {})]
    pub remove: Remove,
    /// What is renamed: `old:new`.
    #[field(default = {})]
    pub rename: Rename,
    /// Existing values that are replaced: `name:value`.
    #[field(default = {})]
    pub replace: Replace,
    /// Values that are added if they are missing: `name:value`.
    #[field(default = {})]
    pub add: Set,
    /// Values that are appended: `name:value`.
    #[field(default = {})]
    pub append: Set,
}

/// Names.
#[derive(Debug, Clone, Record)]
pub(super) struct Remove {
    /// Fields of the body.
    #[field(nullable, default = [])]
    pub body: Vec<String>,
    /// Headers.
    #[field(nullable, default = [], check = named_header)]
    pub headers: Vec<String>,
    /// Arguments.
    #[field(nullable, default = [])]
    pub querystring: Vec<String>,
}

/// Old and new names.
#[derive(Debug, Clone, Record)]
pub(super) struct Rename {
    /// Fields of the body: `old:new`.
    #[field(nullable, default = [], check = templated)]
    pub body: Vec<String>,
    /// Headers: `old:new`.
    #[field(nullable, default = [], check = renamed_header)]
    pub headers: Vec<String>,
    /// Arguments: `old:new`.
    #[field(nullable, default = [], check = templated)]
    pub querystring: Vec<String>,
}

/// Names and values, and a path.
#[derive(Debug, Clone, Record)]
pub(super) struct Replace {
    /// Names and values.
    #[field(flatten)]
    pub values: Set,
    /// The whole path of the upstream request.
    #[field(check = template)]
    pub uri: Option<String>,
}

/// Names and values.
#[derive(Debug, Clone, Record)]
pub(super) struct Set {
    /// Fields of the body: `name:value`.
    #[field(nullable, default = [], check = templated)]
    pub body: Vec<String>,
    /// Headers: `name:value`.
    #[field(nullable, default = [], check = templated_header)]
    pub headers: Vec<String>,
    /// Arguments: `name:value`.
    #[field(nullable, default = [], check = templated)]
    pub querystring: Vec<String>,
}

fn method(text: &str) -> Result<(), String> {
    match text {
        "CONNECT" => Err("CONNECT opens tunnels, which Weir does not support to upstreams".to_owned()),
        _ if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase()) => Ok(()),
        _ => Err(format!("expected a method in capital letters, such as POST, got {text:?}")),
    }
}

fn template(text: &str) -> Result<(), String> {
    template::Template::parse(text).map(|_| ())
}

fn templated(entry: &str) -> Result<(), String> {
    valued(entry)?;
    template(split(entry).1)
}

fn templated_header(entry: &str) -> Result<(), String> {
    valued_header(entry)?;
    template(split(entry).1)
}

/// One configured instance.
pub(super) struct RequestTransformer {
    http_method: Option<String>,
    uri: Option<Value>,
    headers: HeaderOperations,
    body: Operations,
    query: Operations,
    values: Values,
    /// Whether the fields of a form are added to the query string.
    moves_form: bool,
}

impl Plugin for RequestTransformer {
    const NAME: &'static str = "request-transformer";
    const PRIORITY: i32 = 801;
    const FOR_CONSUMER_GROUPS: bool = true;
    type Config = Config;

    fn ignored_fields(config: &Json) -> Vec<FieldWarning> {
        ignored_fields(config)
    }

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let mut values = Values::default();
        let Config { http_method, remove, rename, replace, add, append } = config;
        let Replace { values: replace, uri } = replace;
        let uri = uri.as_deref().filter(|uri| !uri.is_empty());
        let uri = uri.map(|uri| values.prepare(uri)).transpose()?;
        let headers = [&rename.headers, &replace.headers, &add.headers, &append.headers];
        let headers = HeaderOperations::new(&remove.headers, headers, &mut values)?;
        let body = [&rename.body, &replace.body, &add.body, &append.body];
        let query = [&rename.querystring, &replace.querystring, &add.querystring, &append.querystring];
        let body = values.for_body(|values| Operations::new(&remove.body, body, values))?;
        let query = Operations::new(&remove.querystring, query, &mut values)?;
        values.load(Self::NAME, build)?;
        Ok(Self {
            uri,
            headers,
            body,
            query,
            values,
            moves_form: matches!(http_method.as_deref(), Some("GET" | "HEAD" | "TRACE")),
            http_method,
        })
    }
}

impl Hooks for RequestTransformer {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn owns_request_header(&self, name: &[u8]) -> bool {
        self.headers.names().any(|own| is_same_header(own.as_bytes(), name))
    }

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        let is_predictable = self.wants_body() == WantsBody::No && !self.values.have_code();
        let sets_host = || self.headers.names().any(|name| is_same_header(name.as_bytes(), b"Host"));
        let sets_target = || self.uri.is_some() || !self.query.is_empty() || self.moves_form || sets_host();
        match is_predictable {
            true => AccessEffect::Predictable,
            false if sets_target() => AccessEffect::Unknown,
            false => AccessEffect::Passes,
        }
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let has_form = || body::form(exchange).is_some() || self.headers.sets_content_type();
        let with_body = !self.body.is_empty() && has_form();
        let Ok(values) = self.values.render(exchange, with_body) else { return failed() };
        if let Some(uri) = &self.uri {
            exchange.set_upstream_path(values.text(uri));
        }
        if let Some(method) = &self.http_method {
            exchange.set_method(method);
        }
        if self.moves_form {
            form_into_query(exchange);
        }
        self.headers.apply(exchange, &values);
        if !self.body.is_empty() {
            body::transform(exchange, &self.body, &values);
        }
        if !self.query.is_empty() {
            let mut arguments = Arguments::of(exchange.query().unwrap_or_default());
            apply(&self.query, &mut arguments, &values, true);
            let query = arguments.written();
            exchange.set_query(query);
        }
        Flow::Continue
    }

    fn wants_body(&self) -> WantsBody {
        if self.moves_form || !self.body.is_empty() { WantsBody::Yes } else { WantsBody::No }
    }
}

/// As Kong answers when a template fails.
fn failed() -> Flow {
    let mut answer = LocalResponse::error(500, "An unexpected error occurred");
    answer.failed = true;
    Flow::Respond(answer)
}

/// Adds the fields of an urlencoded body to the query string.
fn form_into_query(exchange: &mut Exchange) {
    let content_type = exchange.header(Known::ContentType);
    if content_type.and_then(Form::of) != Some(Form::Urlencoded) {
        return;
    }
    let form = form::text(exchange.body().unwrap_or_default());
    if form.is_empty() {
        return;
    }
    let joined = exchange.query().map_or_else(|| form.to_string(), |query| format!("{query}&{form}"));
    exchange.set_query(joined);
}

#[cfg(test)]
mod tests;
