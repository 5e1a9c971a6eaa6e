//! Authentication for the Admin API, and its audit log.
//!
//! Where tokens are set, each request must present one. Otherwise anyone who can connect may use the API, except web
//! pages, because a page of another site can make a browser send requests to any address that its machine reaches.
use super::collection::secret_paths;
use super::item::REVISION;
use super::kong_manager::Origins;
use crate::listener::Client;
use crate::listener::message;
use crate::logger::AUDIT;
use crate::registry::CommittedWrite;
use crate::settings::{AdminAuth, TokenRole};
use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use weir_model::entity::EntityKind;
use weir_model::{PluginSchema, Uuid};

/// The entities that a write changed; its handler puts them into the extensions of the response.
#[derive(Debug, Clone)]
pub(super) struct AuditedEntities(Vec<(EntityKind, Uuid)>);

impl AuditedEntities {
    pub(super) fn of(written: &CommittedWrite) -> AuditedEntities {
        AuditedEntities(written.changes.iter().map(|change| (change.kind, change.id)).collect())
    }
}

/// Lets authorized requests through, and writes an audit line for each write. Pages of these origins are authorized
/// like other clients.
pub(crate) fn guarded(router: Router, auth: AdminAuth, pages: Origins, plugins: &[PluginSchema]) -> Router {
    let state = Arc::new(Guard { auth, pages, secret_paths: secret_paths(plugins) });
    router.layer(middleware::from_fn_with_state(state, guard))
}

struct Guard {
    auth: AdminAuth,
    pages: Origins,
    secret_paths: Vec<&'static str>,
}

/// Who sent an authorized request.
#[derive(Debug, PartialEq, Eq)]
struct Caller {
    /// The name of its token, or the subject of its certificate, if either is known.
    name: Option<String>,
    role: TokenRole,
}

/// The header by which a response to a token that may only read says so.
const ROLE: HeaderName = HeaderName::from_static("x-weir-role");

async fn guard(
    State(state): State<Arc<Guard>>,
    ConnectInfo(client): ConnectInfo<Client>,
    request: Request,
    next: Next,
) -> Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let writes = is_write(&method, uri.path());
    let (name, response) = match admit(&state, &client, &request) {
        Ok(Caller { name, role: TokenRole::ReadWrite }) => (name, next.run(request).await),
        Ok(Caller { name, role: TokenRole::ReadOnly }) => {
            (name, with_role(if writes { read_only() } else { next.run(request).await }))
        }
        Err(error) => (None, error.response()),
    };
    if writes {
        let path = shown(uri.path(), &state.secret_paths);
        audit(&client, name.as_deref(), &method, &path, &response);
    }
    response
}

/// Why a request is not authorized.
#[derive(Debug, PartialEq, Eq)]
enum AuthError {
    /// No token, or an unknown one.
    Token,
    /// The request was made by a web page.
    WebPage,
}

impl AuthError {
    fn response(self) -> Response {
        match self {
            AuthError::Token => {
                let mut response = message(StatusCode::UNAUTHORIZED, "Unauthorized");
                let bearer = HeaderValue::from_static("Bearer");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
                response
            }
            AuthError::WebPage => message(
                StatusCode::FORBIDDEN,
                "Refused: a web page elsewhere may have sent this, for its Origin, Sec-Fetch-Site, Referer or Host says so; call the \
                 Admin API by its address or as localhost, or set admin_auth and send the token; for Kong Manager, \
                 set admin_gui_url to its address",
            ),
        }
    }
}

/// The response to a write with a token that may only read.
fn read_only() -> Response {
    message(
        StatusCode::FORBIDDEN,
        "Refused: this token has the role read-only; send a token that admin_auth has without `read_only`",
    )
}

fn with_role(mut response: Response) -> Response {
    response.headers_mut().insert(ROLE, HeaderValue::from_static("read-only"));
    response
}

/// Who sent a request, if it is authorized.
fn admit(guard: &Guard, client: &Client, request: &Request) -> Result<Caller, AuthError> {
    let headers = request.headers();
    if !guard.auth.is_off() {
        let known = token(headers).and_then(|token| guard.auth.find(token)).ok_or(AuthError::Token)?;
        return Ok(Caller { name: Some(known.name.clone()), role: known.role });
    }
    let host = host(request.uri(), headers);
    let is_foreign = is_foreign_origin(headers, host)
        || is_of_another_site(headers)
        || is_unexplained_stream(request.uri().path(), headers, host);
    let is_foreign = is_foreign && guard.pages.of_request(headers).is_none();
    if is_foreign || client.address.ip().to_canonical().is_loopback() && !is_local(host) {
        return Err(AuthError::WebPage);
    }
    Ok(Caller { name: client.certificate.clone(), role: TokenRole::ReadWrite })
}

/// The token of `Authorization: Bearer …`, or of the header that Kong's tools have for it.
fn token(headers: &HeaderMap) -> Option<&str> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let bearer = || {
        let (scheme, token) = text("authorization")?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    };
    text("kong-admin-token").or_else(bearer)
}

/// The host of a request; empty if it names none, or several.
fn host<'r>(uri: &'r Uri, headers: &'r HeaderMap) -> &'r str {
    let mut hosts = headers.get_all(header::HOST).iter();
    let header = || hosts.next().filter(|_| hosts.next().is_none()).and_then(|host| host.to_str().ok());
    uri.authority().map(|authority| authority.as_str()).or_else(header).unwrap_or_default()
}

/// Whether a page of another site sent this request.
fn is_foreign_origin(headers: &HeaderMap, host: &str) -> bool {
    headers.get_all(header::ORIGIN).iter().any(|origin| {
        let origin = origin.to_str().unwrap_or_default();
        origin.split_once("://").is_none_or(|(_, origin)| origin != host)
    })
}

/// Whether a browser says that a page of another origin made it send this. It does so for images and scripts too, which
/// have no `Origin`.
fn is_of_another_site(headers: &HeaderMap) -> bool {
    headers.get_all("sec-fetch-site").iter().any(|site| site == "cross-site" || site == "same-site")
}

/// The path of the events that stay open, of which a node has only a few.
const STREAM: &str = "/analytics/requests/tail";

/// Whether a browser opens a stream, and does not say that a page of this host asked for it. Over plain HTTP to another
/// machine, an image of another site's page comes without `Origin` and without `Sec-Fetch-Site`. Only a `Referer` is left
/// then.
fn is_unexplained_stream(path: &str, headers: &HeaderMap, host: &str) -> bool {
    let is_browser = headers.contains_key(header::ACCEPT_LANGUAGE);
    let is_explained = headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site");
    path == STREAM && is_browser && !is_explained && !is_referred_by(headers, host)
}

fn is_referred_by(headers: &HeaderMap, host: &str) -> bool {
    let referrer =
        headers.get(header::REFERER).and_then(|referrer| referrer.to_str().ok()?.parse::<Uri>().ok());
    referrer.is_some_and(|page| page.authority().is_some_and(|page| page.as_str() == host))
}

/// Whether a host cannot be a name that an attacker's DNS resolves to this machine (DNS rebinding).
pub(crate) fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let is_word = !name.is_empty() && !name.contains('.');
    let local = |name: &str| name.eq_ignore_ascii_case("localhost") || is_word;
    address.parse::<IpAddr>().is_ok() || local(name) || name.to_ascii_lowercase().ends_with(".localhost")
}

fn is_write(method: &Method, path: &str) -> bool {
    let path = path.strip_suffix('/').unwrap_or(path);
    let asks = path == "/explain" || path.starts_with("/schemas/");
    !(method.is_safe() || asks)
}

fn audit(client: &Client, token: Option<&str>, method: &Method, path: &str, response: &Response) {
    let about = response.extensions().get::<AuditedEntities>();
    let entities = about.map(|AuditedEntities(all)| all.as_slice()).unwrap_or_default();
    let kinds = entities.iter().map(|(kind, _)| kind.as_str().to_owned());
    let ids = entities.iter().map(|(_, id)| id.to_string());
    let revision = response.headers().get(REVISION).and_then(|revision| revision.to_str().ok());
    tracing::info!(
        target: AUDIT,
        client = %client.address.ip(),
        token = token.unwrap_or("-"),
        method = %method,
        path = %path,
        status = response.status().as_u16(),
        kind = listed(kinds),
        id = listed(ids),
        revision = revision.unwrap_or("-"),
        "admin"
    );
}

/// `a,b`, or `-` for nothing.
fn listed(texts: impl Iterator<Item = String>) -> String {
    let texts: Vec<_> = texts.collect();
    if texts.is_empty() { "-".to_owned() } else { texts.join(",") }
}

/// A path for a log: keys by which credentials can be asked for are left out.
pub(crate) fn shown<'p>(path: &'p str, secret_paths: &[&str]) -> Cow<'p, str> {
    let mut segments: Vec<_> = path.split('/').collect();
    for index in 1..segments.len() {
        let is_key = secret_paths.contains(&segments[index - 1]);
        if is_key && weir_model::rule::id(segments[index]).is_none() && !segments[index].is_empty() {
            segments[index] = "…";
            return Cow::Owned(segments.join("/"));
        }
    }
    Cow::Borrowed(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{PageUrl, Value};
    use axum::body::Body;

    fn request(headers: &[(&str, &str)]) -> Request {
        let builder = headers.iter().fold(Request::builder().uri("/services"), |b, (n, v)| b.header(*n, *v));
        builder.body(Body::empty()).unwrap()
    }

    fn guard(auth: AdminAuth) -> Guard {
        let pages = [PageUrl::parse("https://manager.example.com/kong").unwrap()];
        Guard { auth, pages: Origins::of(&pages), secret_paths: Vec::new() }
    }

    fn admitted(address: &str, headers: &[(&str, &str)]) -> bool {
        let client = Client { address: address.parse().unwrap(), certificate: None };
        admit(&guard(AdminAuth::default()), &client, &request(headers)).is_ok()
    }

    #[test]
    fn web_pages_are_not_answered() {
        for (address, headers, answered) in [
            ("127.0.0.1:5", &[("host", "localhost:8001")] as &[_], true),
            ("127.0.0.1:5", &[("host", "127.0.0.1:8001")], true),
            ("[::1]:5", &[("host", "[::1]:8001")], true),
            ("[::1]:5", &[("host", "weir")], true),
            ("127.0.0.1:5", &[("host", "rebound.example.com:8001")], false),
            ("[::ffff:127.0.0.1]:5", &[("host", "rebound.example.com")], false),
            ("10.0.0.9:5", &[("host", "weir.example.com:8001")], true),
            ("127.0.0.1:5", &[("host", "localhost:8001"), ("origin", "https://example.com")], false),
            ("127.0.0.1:5", &[("host", "localhost:8001"), ("origin", "https://manager.example.com")], true),
            ("127.0.0.1:5", &[("host", "localhost:8001"), ("origin", "http://manager.example.com")], false),
            (
                "127.0.0.1:5",
                &[("host", "localhost:8001"), ("origin", "https://manager.example.com.test")],
                false,
            ),
            ("127.0.0.1:5", &[("host", "rebound.test"), ("origin", "https://manager.example.com")], false),
            ("127.0.0.1:5", &[("host", "localhost:8001"), ("origin", "null")], false),
            ("127.0.0.1:5", &[("host", "localhost:8001"), ("origin", "http://localhost:8001")], true),
            ("127.0.0.1:5", &[("host", "localhost:8001"), ("sec-fetch-site", "cross-site")], false),
            ("127.0.0.1:5", &[("host", "localhost:8001"), ("sec-fetch-site", "same-site")], false),
            ("10.0.0.9:5", &[("host", "weir.example.com"), ("sec-fetch-site", "cross-site")], false),
            ("127.0.0.1:5", &[("host", "localhost:8001"), ("sec-fetch-site", "same-origin")], true),
            ("127.0.0.1:5", &[("host", "localhost:8001"), ("sec-fetch-site", "none")], true),
            (
                "127.0.0.1:5",
                &[
                    ("host", "localhost:8001"),
                    ("sec-fetch-site", "cross-site"),
                    ("origin", "https://manager.example.com"),
                ],
                true,
            ),
        ] {
            assert_eq!(admitted(address, headers), answered, "{address} {headers:?}");
        }
    }

    #[test]
    fn a_browser_says_which_page_opened_a_stream() {
        let browser = ("accept-language", "en");
        let host = ("host", "10.0.0.1:8001");
        for (path, headers, answered) in [
            (STREAM, &[host] as &[_], true),
            (STREAM, &[host, browser], false),
            (STREAM, &[host, browser, ("referer", "http://10.0.0.1:8001/ui/requests?q=1")], true),
            (STREAM, &[host, browser, ("referer", "http://10.0.0.1/requests")], false),
            (STREAM, &[host, browser, ("referer", "http://elsewhere.example/10.0.0.1:8001")], false),
            (STREAM, &[host, browser, ("referer", "http://10.0.0.1:8001@elsewhere.example/")], false),
            (STREAM, &[host, browser, ("referer", "nonsense")], false),
            (STREAM, &[host, browser, ("origin", "http://10.0.0.1:8001")], true),
            (STREAM, &[host, browser, ("sec-fetch-site", "same-origin")], true),
            ("/services", &[host, browser], true),
        ] {
            let mut request = request(headers);
            *request.uri_mut() = path.parse().unwrap();
            let client = Client { address: "10.0.0.9:5".parse().unwrap(), certificate: None };
            let admitted = admit(&guard(AdminAuth::default()), &client, &request).is_ok();
            assert_eq!(admitted, answered, "{path} {headers:?}");
        }
    }

    #[test]
    fn a_token_is_asked_for_and_named() {
        let sha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        let auth = AdminAuth::parse(&format!("ci=sha256:{sha256}")).unwrap();
        let client = Client { address: "127.0.0.1:5".parse().unwrap(), certificate: None };
        let guard = guard(auth);
        let name =
            |headers: &[(&str, &str)]| admit(&guard, &client, &request(headers)).map(|caller| caller.name);
        assert_eq!(name(&[("authorization", "Bearer secret")]), Ok(Some("ci".to_owned())));
        assert_eq!(name(&[("authorization", "bearer  secret ")]), Ok(Some("ci".to_owned())));
        assert_eq!(name(&[("kong-admin-token", "secret")]), Ok(Some("ci".to_owned())));
        for headers in
            [&[] as &[_], &[("authorization", "Bearer other")], &[("authorization", "Basic secret")]]
        {
            assert_eq!(name(headers), Err(AuthError::Token), "{headers:?}");
        }
    }

    #[test]
    fn keys_are_not_shown() {
        let id = "7ee7b0b0-6d0c-4e4c-8a0c-3c0a1e6f0a11";
        let shown = |path: &str| shown(path, &["key-auth", "key-auths"]).into_owned();
        assert_eq!(shown("/consumers/alice/key-auth/secret"), "/consumers/alice/key-auth/…");
        assert_eq!(shown("/key-auths/secret/consumer"), "/key-auths/…/consumer");
        for path in [&format!("/key-auths/{id}"), "/services/key-auth", "/key-auths/"] {
            assert_eq!(shown(path), path);
        }
    }
}
