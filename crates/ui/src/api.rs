//! The Admin API, asked in the same process.
use crate::texts;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tower::ServiceExt;

/// The longest answer that is read, in bytes.
const MAX_ANSWER_LEN: usize = 64 << 20;

/// Where a browser that reconnects goes on with events.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// What a browser says of the page that made it send a request.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// By which the Admin API says what a token may do.
const ROLE: HeaderName = HeaderName::from_static("x-weir-role");

/// The Admin API as one person asks it.
#[derive(Clone)]
pub(crate) struct Api {
    admin: Router,
    headers: HeaderMap,
    /// What the listener knows of the connection.
    extensions: Extensions,
}

/// An answer of the Admin API.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) body: Value,
    pub(crate) etag: Option<String>,
    /// Whether the person who asked may only read.
    pub(crate) is_read_only: bool,
}

/// An answer whose body was not read yet.
struct RawAnswer {
    bytes: Bytes,
    etag: Option<String>,
    is_read_only: bool,
}

/// Why the Admin API did not do what it was asked for.
#[derive(Debug)]
pub(crate) struct ApiError {
    /// What was asked for, such as `GET /services/orders`.
    pub(crate) asked: String,
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
}

impl ApiError {
    /// What the Admin API says about it.
    pub(crate) fn message(&self) -> String {
        match self.body.get("message").and_then(Value::as_str) {
            Some(message) => message.to_owned(),
            None => self.body.to_string(),
        }
    }

    /// The errors of single fields, as paths such as `config.minute` with a message.
    pub(crate) fn fields(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        if let Some(fields) = self.body.get("fields") {
            collect_fields("", fields, &mut found);
        }
        found
    }
}

/// Whether a tab shows the answer, rather than a part of another page.
fn is_navigation(headers: &HeaderMap) -> bool {
    let says = |name: &str, value: &str| headers.get(name).is_some_and(|said| said == value);
    says("sec-fetch-mode", "navigate") && says("sec-fetch-dest", "document")
}

fn collect_fields(path: &str, value: &Value, found: &mut Vec<(String, String)>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::String(message) => found.push((path.to_owned(), message.clone())),
        Value::Object(members) => {
            members.iter().for_each(|(name, value)| collect_fields(&below(name), value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_fields(path, item, found)),
        _ => {}
    }
}

impl Api {
    /// For a request of a browser: its connection, its host and origin, what else says which page sent it, and the token of
    /// its session. A link of another
    /// site may lead to a page, but nothing else of that site may ask for it.
    pub(crate) fn of(admin: &Router, asked: &Parts, token: Option<&str>) -> Api {
        let mut headers = HeaderMap::new();
        let of_page = [header::ORIGIN, SEC_FETCH_SITE, header::ACCEPT_LANGUAGE, header::REFERER];
        for name in of_page.into_iter().chain([header::HOST, LAST_EVENT_ID]) {
            if let Some(value) = asked.headers.get(&name) {
                headers.insert(name, value.clone());
            }
        }
        if is_navigation(&asked.headers) {
            headers.remove(SEC_FETCH_SITE);
        }
        // HTTP/2 has the host in the target.
        if let Some(host) = asked.uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok()) {
            headers.insert(header::HOST, host);
        }
        let extensions = asked.extensions.clone();
        let api = Api { admin: admin.clone(), headers, extensions };
        token.and_then(|token| api.with_token(token)).unwrap_or(api)
    }

    /// The same with a token; none if it cannot be one.
    pub(crate) fn with_token(&self, token: &str) -> Option<Api> {
        let mut value = HeaderValue::from_str(token).ok().filter(|value| !value.is_empty())?;
        value.set_sensitive(true);
        let mut api = self.clone();
        api.headers.insert(HeaderName::from_static("kong-admin-token"), value);
        Some(api)
    }

    /// What is at a path.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer, ApiError> {
        self.send(Method::GET, path, None, None).await
    }

    /// What is at a path, as it was written: a JSON text.
    pub(crate) async fn get_text(&self, path: &str) -> Result<String, ApiError> {
        let response = self.ask(Method::GET, path, None, None).await?;
        Ok(String::from_utf8_lossy(&response.bytes).into_owned())
    }

    /// What is at a path, passed on as it comes: for events.
    pub(crate) async fn stream(&self, path: &str) -> Response {
        let mut request = Request::new(Body::empty());
        *request.extensions_mut() = self.extensions.clone();
        *request.headers_mut() = self.headers.clone();
        let Ok(uri) = path.parse() else { return StatusCode::NOT_FOUND.into_response() };
        *request.uri_mut() = uri;
        match self.admin.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// Sends a request; `if_match` is the version of the entity that the sender has seen.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        if_match: Option<&str>,
    ) -> Result<Answer, ApiError> {
        let RawAnswer { bytes, etag, is_read_only } = self.ask(method, path, body, if_match).await?;
        Ok(Answer { body: read(&bytes), etag, is_read_only })
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        if_match: Option<&str>,
    ) -> Result<RawAnswer, ApiError> {
        let asked = format!("{method} {path}");
        let mut request = Request::new(body.map_or_else(Body::empty, |body| Body::from(body.to_string())));
        *request.method_mut() = method;
        *request.extensions_mut() = self.extensions.clone();
        *request.headers_mut() = self.headers.clone();
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(etag) = if_match.and_then(|etag| HeaderValue::from_str(etag).ok()) {
            headers.insert(header::IF_MATCH, etag);
        }
        let bad = |status, text: &str| ApiError {
            asked: asked.clone(),
            status,
            body: serde_json::json!({ "message": text }),
        };
        let Ok(uri) = path.parse() else {
            return Err(bad(StatusCode::NOT_FOUND, texts::of("words.not_found")));
        };
        *request.uri_mut() = uri;
        let response = match self.admin.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let status = response.status();
        let etag =
            response.headers().get(header::ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        let is_read_only = response.headers().get(ROLE).is_some_and(|role| role == "read-only");
        let Ok(bytes) = to_bytes(response.into_body(), MAX_ANSWER_LEN).await else {
            return Err(bad(StatusCode::BAD_GATEWAY, texts::of("messages.answer_too_long")));
        };
        match status.is_success() {
            true => Ok(RawAnswer { bytes, etag, is_read_only }),
            false => Err(ApiError { asked, status, body: read(&bytes) }),
        }
    }
}

/// The JSON of an answer, or else its text.
fn read(bytes: &[u8]) -> Value {
    match serde_json::from_slice(bytes) {
        Ok(body) => body,
        Err(_) if bytes.is_empty() => Value::Null,
        Err(_) => Value::String(String::from_utf8_lossy(bytes).into_owned()),
    }
}
