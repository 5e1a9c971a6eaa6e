//! What Kong Manager needs where its files are served by another server: CORS on the Admin API, and `kconfig.js`.
use crate::settings::{Listen, PageUrl, Settings};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use std::sync::Arc;
use weir_plugins::KONG_VERSION;
use weir_proxy::Address;

/// The methods that a page may use, as in Kong.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, PUT, PATCH, POST, DELETE");

/// The origins whose pages may use the Admin API.
#[derive(Debug, Clone)]
pub(crate) struct Origins(Arc<[HeaderValue]>);

impl Origins {
    pub(crate) fn of(pages: &[PageUrl]) -> Origins {
        Origins(pages.iter().filter_map(|page| HeaderValue::from_str(&page.origin).ok()).collect())
    }

    /// The origin of a request, if it is one of these.
    pub(super) fn of_request(&self, headers: &HeaderMap) -> Option<&HeaderValue> {
        let asked = headers.get(header::ORIGIN)?;
        self.0.iter().find(|known| *known == asked)
    }
}

/// Lets browsers show the answers to pages of these origins. Without one, there are no headers for that.
pub(crate) fn with_cors(router: Router, origins: Origins) -> Router {
    if origins.0.is_empty() {
        return router;
    }
    router.layer(middleware::from_fn_with_state(origins, add_cors_headers))
}

/// As in Kong, a page of another origin gets the first one, which its browser then compares.
async fn add_cors_headers(State(origins): State<Origins>, request: Request, next: Next) -> Response {
    let known = origins.of_request(request.headers());
    let allowed = known.unwrap_or(&origins.0[0]).clone();
    let is_preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match known {
        // Browsers send no token with it, so that it does not pass the guard.
        Some(_) if is_preflight => preflight(request.headers()),
        _ => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    response
}

fn preflight(asked: &HeaderMap) -> Response {
    let wanted = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let allowed = wanted.unwrap_or(HeaderValue::from_static("Content-Type"));
    let headers =
        [(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS), (header::ACCESS_CONTROL_ALLOW_HEADERS, allowed)];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// The pages of the web UI below `admin_gui_path`, and `kconfig.js`, from which Kong Manager's pages learn where the
/// Admin API is.
pub(crate) fn with_kconfig(pages: Router, settings: &Settings, ports: AdminPorts) -> Router {
    let base = settings.admin_gui_path.0.as_str();
    let text = kconfig(settings, ports);
    let script = move || async move {
        let headers = [
            (header::CONTENT_TYPE, "application/javascript; charset=UTF-8"),
            (header::CACHE_CONTROL, "no-cache"),
            (HeaderName::from_static("x-content-type-options"), "nosniff"),
        ];
        (headers, text).into_response()
    };
    let router = Router::new().route(&format!("{base}/kconfig.js"), get(script));
    if base.is_empty() {
        return router.fallback_service(pages);
    }
    // Links are relative, so that the path needs its slash.
    let with_slash = format!("{base}/");
    let redirect = Redirect::permanent(&with_slash);
    router.route(base, get(move || async move { redirect })).nest_service(&with_slash, pages)
}

/// The ports of the Admin API, in clear and over TLS.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AdminPorts {
    clear: Option<u16>,
    tls: Option<u16>,
}

impl AdminPorts {
    /// The first of each kind.
    pub(crate) fn of<'l>(listeners: impl Iterator<Item = (&'l Listen, &'l Address)> + Clone) -> AdminPorts {
        let port = |ssl: bool| {
            let mut of_kind = listeners.clone().filter(|(listen, _)| listen.ssl == ssl);
            of_kind.find_map(|(_, address)| address.ip()).map(|address| address.port())
        };
        AdminPorts { clear: port(false), tls: port(true) }
    }
}

/// The variables that Kong gives to Kong Manager, as a script.
fn kconfig(settings: &Settings, ports: AdminPorts) -> String {
    let port = |port: Option<u16>| port.map(|port| port.to_string()).unwrap_or_default();
    let path = if settings.admin_gui_path.0.is_empty() { "/" } else { &settings.admin_gui_path.0 };
    let variables = [
        ("ADMIN_GUI_URL", settings.admin_gui_url.first().map(|page| page.url.clone()).unwrap_or_default()),
        ("ADMIN_GUI_PATH", path.to_owned()),
        ("ADMIN_API_URL", settings.admin_gui_api_url.clone().unwrap_or_default()),
        ("ADMIN_API_PORT", port(ports.clear)),
        ("ADMIN_API_SSL_PORT", port(ports.tls)),
        ("KONG_VERSION", KONG_VERSION.to_owned()),
        ("KONG_EDITION", "community".to_owned()),
        ("ANONYMOUS_REPORTS", "false".to_owned()),
    ];
    let lines = variables.map(|(name, value)| format!("  '{name}': '{}'", escaped(&value)));
    format!("window.K_CONFIG = {{\n{}\n}}\n", lines.join(",\n"))
}

/// A value within single quotes of a script.
fn escaped(value: &str) -> String {
    let escape = |letter: char| match letter {
        '\\' | '\'' => format!("\\{letter}"),
        '<' | '\n' | '\r' | '\u{2028}' | '\u{2029}' => format!("\\u{:04x}", u32::from(letter)),
        _ => letter.to_string(),
    };
    value.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn a_value_cannot_end_the_script() {
        assert_eq!(escaped("a'b\\c</script>\n"), "a\\'b\\\\c\\u003c/script>\\u000a");
    }
}
