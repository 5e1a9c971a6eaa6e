//! What a request says: its arguments, its body, and what its path leads to.
use super::api::ADMIN;
use super::response::ApiResponse;
use crate::apisix::object::{Key, Kind};
use crate::json_body;
use axum::body::Bytes;
use axum::http::{HeaderMap, Request, StatusCode};
use serde_json::Value as Json;
use weir_model::Format;
use weir_model::declarative::to_json;

/// The names in a path below the Admin API.
pub(super) fn segments(request: &Request<Bytes>) -> Vec<&str> {
    let path = request.uri().path().strip_prefix(ADMIN).unwrap_or_default();
    path.split('/').filter(|segment| !segment.is_empty()).collect()
}

/// The argument of this name.
pub(super) fn argument(request: &Request<Bytes>, name: &str) -> Option<String> {
    let query = request.uri().query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

pub(super) fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

pub(super) fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let pairs = header(headers, "cookie")?.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).next()
}

/// The body, or null if it is empty.
pub(super) fn body(request: &Request<Bytes>) -> Result<Option<Json>, ApiResponse> {
    if request.body().trim_ascii().is_empty() {
        return Ok(None);
    }
    let read = json_body::read(request.body());
    read.map(Some).map_err(|error| ApiResponse::bad(format!("invalid request body: {error}")))
}

/// The same of a body that may be YAML, if its `Content-Type` says so.
pub(super) fn body_or_yaml(request: &Request<Bytes>) -> Result<Option<Json>, ApiResponse> {
    let content_type = header(request.headers(), "content-type").unwrap_or_default();
    if !["application/yaml", "application/x-yaml"].iter().any(|yaml| content_type.starts_with(yaml)) {
        return body(request);
    }
    let text = std::str::from_utf8(request.body()).map_err(|error| error.to_string());
    let read = text.and_then(|text| {
        let read = to_json(text, Format::Yaml);
        read.map_err(|errors| errors.first().map(ToString::to_string).unwrap_or_default())
    });
    let read = read.map_err(|error| ApiResponse::bad(format!("invalid request body: {error}")))?;
    Ok(Some(read).filter(|read| !read.is_null()))
}

/// Refuses to forget an object after a while, which cannot be done here.
pub(super) fn no_ttl(request: &Request<Bytes>) -> Result<(), ApiResponse> {
    let Some(ttl) = argument(request, "ttl") else { return Ok(()) };
    match ttl.parse::<f64>() {
        Err(_) => Err(ApiResponse::bad("invalid argument ttl: should be a number")),
        Ok(0.0) => Ok(()),
        Ok(_) => {
            Err(ApiResponse::bad("`ttl` is not available here: delete the object when its time is over"))
        }
    }
}

/// What a path leads to.
pub(super) struct ObjectPath {
    pub(super) kind: Kind,
    /// The consumer whose credentials are meant, or the manager of secrets.
    pub(super) owner: Option<String>,
    /// One object, or all of them.
    pub(super) id: Option<String>,
    /// The path within the object.
    pub(super) below: Vec<String>,
}

impl ObjectPath {
    pub(super) fn find(segments: &[&str]) -> Result<ObjectPath, ApiResponse> {
        let owned = |text: &&str| (*text).to_owned();
        if let ["consumers", owner, "credentials", rest @ ..] = segments {
            let (id, below) = (rest.first().map(owned), rest.iter().skip(1).map(owned).collect());
            let owner = Some((*owner).to_owned());
            return Ok(ObjectPath { kind: Kind::Credentials, owner, id, below });
        }
        if let ["secrets", manager, rest @ ..] = segments {
            let (id, below) = (rest.first().map(owned), rest.iter().skip(1).map(owned).collect());
            return Ok(ObjectPath { kind: Kind::Secrets, owner: Some((*manager).to_owned()), id, below });
        }
        let name = segments.first().copied().unwrap_or_default();
        let kind = Kind::from_name(name).filter(|kind| kind.is_listed());
        let kind = kind.ok_or_else(|| unsupported(name))?;
        let (id, below) = (segments.get(1).map(owned), segments.iter().skip(2).map(owned).collect());
        Ok(ObjectPath { kind, owner: None, id, below })
    }

    /// The object with this id there.
    pub(super) fn key(&self, id: &str) -> Result<Key, ApiResponse> {
        Ok(match &self.owner {
            Some(manager) if self.kind == Kind::Secrets => Key::secret(manager, id)?,
            Some(owner) => Key::credential(owner, id)?,
            None => Key::below(self.kind, id)?,
        })
    }
}

/// The answer about a kind that there is not.
pub(super) fn unsupported(name: &str) -> ApiResponse {
    ApiResponse::error(StatusCode::NOT_FOUND, format!("Unsupported resource type: {name}"))
}
