//! A parsed request.
use super::form::MAX_ARGUMENTS;
use super::request_body::Body;
use super::response::ApiError;
use crate::control::Control;
use crate::listener::BodyError;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use std::sync::Arc;

/// A parsed request: path parameters, query and body.
pub(super) struct ApiRequest {
    pub(super) control: Arc<Control>,
    pub(super) path: String,
    /// The ids, or names, in the path.
    pub(super) ids: Vec<String>,
    query: Vec<(String, String)>,
    pub(super) headers: HeaderMap,
    pub(super) body: Body,
}

impl ApiRequest {
    /// The arguments in the query.
    pub(super) fn query(&self) -> &[(String, String)] {
        &self.query
    }

    /// The value of an argument in the query.
    pub(super) fn argument(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(argument, _)| argument == name).map(|(_, value)| value.as_str())
    }

    /// An argument in the query that is not among these.
    pub(super) fn argument_beside(&self, known: &[&str]) -> Option<&str> {
        self.query.iter().map(|(name, _)| name.as_str()).find(|name| !known.contains(name))
    }

    /// Whether an argument in the query is switched on.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.argument(name).is_some_and(|value| matches!(value, "" | "1" | "true" | "on" | "yes"))
    }

    /// Whether the client wants the response only once the write is active.
    pub(super) fn waits(&self) -> bool {
        let preferences = self.headers.get_all("prefer").into_iter().filter_map(|value| value.to_str().ok());
        let mut preferences = preferences.flat_map(|value| value.split(','));
        self.is_on("wait") || preferences.any(|preference| preference.trim().eq_ignore_ascii_case("wait"))
    }
}

impl FromRequest<Arc<Control>> for ApiRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, control: &Arc<Control>) -> Result<ApiRequest, ApiError> {
        let (mut parts, body) = request.into_parts();
        let unreadable = |_| ApiError::Malformed("the path is not UTF-8 text".to_owned());
        let ids = RawPathParams::from_request_parts(&mut parts, control).await.map_err(unreadable)?;
        let ids = ids.iter().map(|(_, id)| id.to_owned()).collect();
        let query = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
        let query: Vec<_> = query.into_owned().take(MAX_ARGUMENTS + 1).collect();
        if query.len() > MAX_ARGUMENTS {
            return Err(ApiError::Malformed("Too many arguments".to_owned()));
        }
        let path = parts.uri.path().to_owned();
        let (method, headers) = (parts.method.clone(), parts.headers.clone());
        let body = if matches!(method, Method::POST | Method::PUT | Method::PATCH) {
            let bytes = Bytes::from_request(Request::from_parts(parts, body), control).await;
            let bytes = bytes.map_err(|rejection| ApiError::BodyError(BodyError::of(&rejection)))?;
            Body::read(content_type(&headers), bytes).await?
        } else {
            Body::default()
        };
        Ok(ApiRequest { control: control.clone(), path, ids, query, headers, body })
    }
}

/// The one parameter of a path.
pub(super) struct PathParam(pub(super) String);

impl FromRequestParts<Arc<Control>> for PathParam {
    type Rejection = ApiError;

    /// A name that is not UTF-8 text is not found.
    async fn from_request_parts(parts: &mut Parts, control: &Arc<Control>) -> Result<PathParam, ApiError> {
        let names = RawPathParams::from_request_parts(parts, control).await;
        let names = names.map_err(|_| ApiError::NotFound)?;
        let name = names.iter().next().ok_or(ApiError::NotFound)?;
        Ok(PathParam(name.1.to_owned()))
    }
}

fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::CONTENT_TYPE)?.to_str().ok()
}
