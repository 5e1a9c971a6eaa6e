//! Responses in APISIX's format.
use super::write::ObjectWriteError;
use crate::admin::warning::{self, WARNING};
use crate::apisix::object::Invalid;
use crate::registry::WriteError;
use axum::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use serde_json::{Value as Json, json};
use weir_model::ConstraintError;

/// The header with the revision of a write.
pub(super) const REVISION: &str = "x-weir-revision";
/// The header with the version of the response format.
pub(super) const API_VERSION: &str = "x-api-version";

/// A response.
pub(super) struct ApiResponse {
    pub(super) status: StatusCode,
    /// A string is sent as it is, and null as an empty body.
    body: Json,
    pub(super) revision: Option<u64>,
    /// Warnings about fields without effect.
    pub(super) warnings: Vec<String>,
    /// More headers.
    pub(super) headers: Vec<(&'static str, String)>,
}

impl ApiResponse {
    pub(super) fn new(status: StatusCode, body: Json) -> ApiResponse {
        ApiResponse { status, body, revision: None, warnings: Vec::new(), headers: Vec::new() }
    }

    pub(super) fn ok(body: Json) -> ApiResponse {
        ApiResponse::new(StatusCode::OK, body)
    }

    pub(super) fn error(status: StatusCode, message: impl Into<String>) -> ApiResponse {
        ApiResponse::new(status, json!({ "error_msg": message.into() }))
    }

    pub(super) fn bad(message: impl Into<String>) -> ApiResponse {
        ApiResponse::error(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn not_found() -> ApiResponse {
        ApiResponse::new(StatusCode::NOT_FOUND, json!({ "message": "Key not found" }))
    }

    pub(super) fn unsupported(method: &str, what: &str) -> ApiResponse {
        ApiResponse::error(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("not supported `{method}` method for {what}"),
        )
    }

    pub(super) fn into_response(self) -> Response<String> {
        let mut response = match self.body {
            Json::Null => Response::new(String::new()),
            Json::String(body) => typed("text/plain", body),
            body => typed("application/json", body.to_string()),
        };
        *response.status_mut() = self.status;
        response.headers_mut().insert(API_VERSION, HeaderValue::from_static("v3"));
        if let Some(revision) = self.revision {
            response.headers_mut().insert(REVISION, revision.into());
        }
        let more = self.headers.into_iter();
        response.headers_mut().extend(more.filter_map(|(name, value)| {
            Some((HeaderName::from_static(name), HeaderValue::from_str(&value).ok()?))
        }));
        if let Some(warning) = warning::header(&self.warnings) {
            response.headers_mut().insert(WARNING, warning);
        }
        response
    }
}

/// A response of this type.
pub(super) fn typed(content_type: &'static str, body: String) -> Response<String> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

impl From<ObjectWriteError> for ApiResponse {
    fn from(refused: ObjectWriteError) -> ApiResponse {
        match refused {
            ObjectWriteError::Invalid(Invalid(message)) => ApiResponse::bad(message),
            ObjectWriteError::NotFound => ApiResponse::not_found(),
            ObjectWriteError::NoConsumer => ApiResponse::error(StatusCode::NOT_FOUND, "consumer not found"),
        }
    }
}

impl From<Invalid> for ApiResponse {
    fn from(invalid: Invalid) -> ApiResponse {
        ObjectWriteError::Invalid(invalid).into()
    }
}

impl From<WriteError<ObjectWriteError>> for ApiResponse {
    fn from(error: WriteError<ObjectWriteError>) -> ApiResponse {
        match error {
            WriteError::Rejected(refused) => refused.into(),
            WriteError::Refused(refusal) => ApiResponse::bad(constraint_message(&refusal)),
            WriteError::Uncompilable(error) => Invalid::configuration(error).into(),
            WriteError::Unavailable(message) => ApiResponse::error(StatusCode::SERVICE_UNAVAILABLE, message),
            WriteError::Uncertain(message) => ApiResponse::error(StatusCode::INTERNAL_SERVER_ERROR, message),
            WriteError::ReadOnly => ApiResponse::error(
                StatusCode::METHOD_NOT_ALLOWED,
                "the configuration is a declarative file: change the file, or start without one to write here",
            ),
        }
    }
}

fn constraint_message(refusal: &ConstraintError) -> String {
    match refusal {
        // The value may be a secret.
        ConstraintError::NotUnique { unique, .. } => {
            let fields: Vec<_> = unique.0.iter().map(|(field, _)| *field).collect();
            format!("duplicate {} found", fields.join(", "))
        }
        ConstraintError::MissingReference(reference) => {
            format!("the {} that it names is gone", reference.field)
        }
        ConstraintError::StillReferenced(kind) => {
            format!("it is still named by {}", kind.as_str())
        }
    }
}
