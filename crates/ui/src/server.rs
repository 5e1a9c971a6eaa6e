//! Which address leads to which page, and what every response carries.
use crate::api::Api;
use crate::form::{Pairs, first};
use crate::page::{Drafts, Page, Theme, Visit};
use crate::pages;
use crate::session::{COOKIE, Login, Sessions, form_token, new_id};
use crate::url::within;
use crate::usage::CpuUsage;
use crate::{assets, texts};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use maud::html;
use std::sync::Arc;
use std::time::Duration;

/// The longest form that is read, in bytes.
const MAX_FORM_LEN: usize = 1 << 20;

/// How many forms wait for their confirmation.
const MAX_DRAFTS: usize = 100;

/// How long a form waits for its confirmation.
const DRAFT_LIFETIME: Duration = Duration::from_secs(15 * 60);

/// Pages shorter than this are not compressed.
const MIN_COMPRESSED_LEN: usize = 1_000;

const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// How the UI behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether browsers come over TLS alone.
    pub is_secure: bool,
    /// Whether the configuration is a file, which the Admin API does not change.
    pub is_read_only: bool,
}

struct Ui {
    admin: Router,
    sessions: Sessions,
    drafts: Arc<Drafts>,
    cpu_usage: Arc<CpuUsage>,
    options: Options,
}

/// The pages, over the Admin API that this router serves.
pub fn router(admin: Router, options: Options) -> Router {
    let ui = Arc::new(Ui {
        admin,
        sessions: Sessions::default(),
        drafts: Arc::new(Drafts::new(DRAFT_LIFETIME, MAX_DRAFTS)),
        cpu_usage: Arc::default(),
        options,
    });
    Router::new()
        .route("/assets/{version}/{name}", get(asset))
        .fallback(page)
        .with_state(ui)
        .layer(from_fn(compress))
        .layer(from_fn(add_security_headers))
}

async fn asset(Path((version, name)): Path<(String, String)>, headers: HeaderMap) -> Response {
    assets::serve(&version, &name, &headers)
}

/// A request of a page or of a form.
async fn page(State(ui): State<Arc<Ui>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let name = cookie_name(&parts);
    let known = cookie(&parts.headers, &name).map(str::to_owned);
    let login = known.as_deref().and_then(|id| ui.sessions.logins.get(id));
    let id = known.clone().unwrap_or_else(new_id);
    let path = parts.uri.path().trim_start_matches('/').to_owned();
    let visit = Visit {
        api: Api::of(&ui.admin, &parts, login.as_ref().map(|login| login.token.as_str())),
        root: "../".repeat(path.matches('/').count()),
        address: parts.uri.path_and_query().map_or("", |all| all.as_str()).trim_start_matches('/').to_owned(),
        form_token: form_token(&id),
        drafts: ui.drafts.clone(),
        cpu_usage: ui.cpu_usage.clone(),
        read_only: read_only(&ui.options, login.as_ref()),
        is_logged_in: login.is_some(),
        theme: Theme::of(cookie(&parts.headers, "weir_theme").unwrap_or_default()),
    };
    let query = pairs(parts.uri.query().unwrap_or_default().as_bytes());
    let mut response = match parts.method {
        Method::GET | Method::HEAD => pages::show(&visit, &path, &query).await,
        Method::POST => match form(body).await {
            Ok(form) if first(&form, "form_token") == visit.form_token => {
                submit(&ui, &visit, &path, &query, &form, (&name, &id)).await
            }
            Ok(_) => refused(&visit, StatusCode::FORBIDDEN, texts::of("messages.form_expired")),
            Err(response) => response,
        },
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    };
    if known.is_none() {
        set_cookie(&mut response, &ui.options, &name, &id);
    }
    response
}

/// Why a person can change nothing, if so.
fn read_only(options: &Options, login: Option<&Login>) -> Option<&'static str> {
    let by_role = login.filter(|login| login.is_read_only).map(|_| texts::of("messages.read_only_role"));
    by_role.or(options.is_read_only.then_some(texts::of("messages.read_only")))
}

/// Forms of the frame and of the session; others are of pages.
async fn submit(
    ui: &Ui,
    visit: &Visit,
    path: &str,
    query: &Pairs,
    form: &Pairs,
    session: (&str, &str),
) -> Response {
    match path {
        "theme" => {
            let mut response = pages::redirect(&visit.at(within(first(form, "back"))));
            set_cookie(&mut response, &ui.options, "weir_theme", Theme::of(first(form, "theme")).name());
            response
        }
        "logout" => {
            ui.sessions.logins.remove(session.1);
            pages::redirect(&visit.at("login"))
        }
        "login" => login(ui, visit, form, session.0).await,
        _ => pages::submit(visit, path, query, form).await,
    }
}

async fn login(ui: &Ui, visit: &Visit, form: &Pairs, cookie_name: &str) -> Response {
    let token = first(form, "token").trim();
    let Some(login) = pages::login::login(&visit.api, token).await else {
        return match ui.sessions.wrong_token().await {
            true => pages::login::page(visit, first(form, "next"), Some(texts::of("messages.wrong_token"))),
            false => refused(visit, StatusCode::TOO_MANY_REQUESTS, texts::of("messages.too_many_tries")),
        };
    };
    let id = ui.sessions.logins.put(login);
    let mut response = pages::redirect(&visit.at(within(first(form, "next"))));
    set_cookie(&mut response, &ui.options, cookie_name, &id);
    response
}

fn refused(visit: &Visit, status: StatusCode, why: &str) -> Response {
    Page::new("", texts::of("server.refused"), html! { p { (why) } }).status(status).render(visit)
}

async fn form(body: Body) -> Result<Pairs, Response> {
    match to_bytes(body, MAX_FORM_LEN).await {
        Ok(bytes) => Ok(pairs(&bytes)),
        Err(_) => Err(StatusCode::PAYLOAD_TOO_LARGE.into_response()),
    }
}

fn pairs(bytes: &[u8]) -> Pairs {
    form_urlencoded::parse(bytes).into_owned().collect()
}

/// The name of the session's cookie. Browsers give the cookies of a host to all its ports, so that it names the port.
fn cookie_name(parts: &Parts) -> String {
    let port = parts
        .headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok()?.parse::<Authority>().ok()?.port_u16());
    port.or(parts.uri.port_u16()).map_or(COOKIE.to_owned(), |port| format!("{COOKIE}_{port}"))
}

fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let all = headers.get_all(header::COOKIE).into_iter().filter_map(|cookies| cookies.to_str().ok());
    let mut pairs = all.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

fn set_cookie(response: &mut Response, options: &Options, name: &str, value: &str) {
    let secure = if options.is_secure { "; Secure" } else { "" };
    let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

async fn add_security_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", CONTENT_SECURITY_POLICY),
        ("x-content-type-options", "nosniff"),
        // Without a referrer, browsers would send `Origin: null` with our own forms.
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

/// Compresses pages for browsers that understand it.
async fn compress(request: Request, next: Next) -> Response {
    let takes_gzip = assets::takes_gzip(request.headers());
    let response = next.run(request).await;
    let is_page = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|media_type| media_type.as_bytes().starts_with(b"text/html"));
    if !(takes_gzip && is_page) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(bytes) = to_bytes(body, usize::MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    if bytes.len() < MIN_COMPRESSED_LEN {
        return Response::from_parts(parts, Body::from(bytes));
    }
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    Response::from_parts(parts, Body::from(assets::gzip(&bytes)))
}
