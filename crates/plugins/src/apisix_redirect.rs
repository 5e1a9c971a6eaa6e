//! Redirects clients to another URL, as APISIX's plugin redirect does. Kong's is [redirect](redirect.md); APISIX's
//! objects call this one `redirect`.
//!
//! ```yaml
//! plugins:
//!   - name: apisix-redirect
//!     route: old-shop
//!     config:
//!       regex_uri: ["^/old/(.*)", "https://shop.example.com/$1"]
//!       ret_code: 301
//! ```
//!
//! With `http_to_https`, requests without TLS are redirected to `https://HOST` with path and query: `GET` and `HEAD`
//! with status 301, others with 308. `uri` is where all requests are redirected; it may contain variables, such as
//! `$uri`. With `regex_uri`, those requests are redirected whose path the regex matches; others pass.

use crate::shared::regex_uri::{self, RegexUri};
use crate::shared::variables::Template;
use weir_plugin::{
    AccessEffect, BuildContext, Exchange, FieldError, Flow, Hooks, LocalResponse, Method, Phases, Plugin,
    Record,
};

/// Where clients are redirected to.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// The status.
    #[field(default = 302, between = [200, 599])]
    pub ret_code: u16,
    /// The URL or path, which may contain variables.
    #[field(len_min = 2)]
    pub uri: Option<String>,
    /// A regex and what replaces its match in the path.
    #[field(len_min = 2, len_max = 2)]
    pub regex_uri: Option<Vec<String>>,
    /// Redirects requests without TLS to the same URL with it.
    pub http_to_https: Option<bool>,
    /// Escapes what a URL cannot contain.
    #[field(default = false)]
    pub encode_uri: bool,
    /// Adds the request's query.
    #[field(default = false)]
    pub append_query_string: bool,
}

fn violations(config: &Config) -> Vec<FieldError> {
    let mut found = regex_uri::violations(config.regex_uri.as_ref());
    let given = [config.uri.is_some(), config.regex_uri.is_some(), config.http_to_https.is_some()];
    match given.iter().filter(|given| **given).count() {
        1 if config.http_to_https == Some(true) && config.append_query_string => {
            let message = "only one of `http_to_https` and `append_query_string` can be configured";
            found.push(FieldError::new("append_query_string", message));
        }
        1 => {}
        0 => found.push(FieldError::new("", "one of `uri`, `regex_uri` and `http_to_https` is required")),
        _ => found.push(FieldError::new("", "only one of `uri`, `regex_uri` and `http_to_https` is allowed")),
    }
    found
}

/// One configured instance.
pub(super) struct ApisixRedirect {
    config: Config,
    uri: Option<Template>,
    regex_uri: RegexUri,
}

impl Plugin for ApisixRedirect {
    const NAME: &'static str = "apisix-redirect";
    const PRIORITY: i32 = 900;
    const FOR_CONSUMER_GROUPS: bool = true;
    const EXTENSION: bool = true;
    type Config = Config;

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        let uri = config.uri.as_deref().map(Template::parse);
        Ok(Self { uri, regex_uri: RegexUri::read(config.regex_uri.as_ref())?, config })
    }
}

impl Hooks for ApisixRedirect {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        AccessEffect::Predictable
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        if self.config.http_to_https == Some(true) && exchange.forwarded_scheme() == "http" {
            let code = if matches!(exchange.request.method, Method::Get | Method::Head) { 301 } else { 308 };
            let location = format!("https://{}{}", exchange.host(), exchange.path_with_query());
            return respond(code, location.as_bytes());
        }
        let location = match &self.uri {
            Some(uri) => String::from_utf8_lossy(&uri.render(exchange)).into_owned(),
            None => match self.regex_uri.rewrite(exchange.path(), exchange) {
                Some(rewritten) => rewritten.uri,
                None => return Flow::Continue,
            },
        };
        let location = if self.config.encode_uri { encoded(&location) } else { location };
        let location = match exchange.query().filter(|_| self.config.append_query_string) {
            Some(query) => format!("{location}{}{query}", if location.contains('?') { '&' } else { '?' }),
            None => location,
        };
        respond(self.config.ret_code, location.as_bytes())
    }
}

fn respond(code: u16, location: &[u8]) -> Flow {
    Flow::Respond(LocalResponse::raw(code, None, "").header("Location", location))
}

/// The URL with escapes for the bytes that it cannot contain.
fn encoded(url: &str) -> String {
    let mut written = String::with_capacity(url.len() + 16);
    for byte in url.bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&'()*+,/:;=?@[]-_.~".contains(&byte) {
            written.push(char::from(byte));
        } else {
            written.push_str(&format!("%{byte:02X}"));
        }
    }
    written
}
