//! What is answered, in APISIX's forms.
use super::write::Refused;
use crate::admin::warning::{self, WARNING};
use crate::apisix::object::Invalid;
use crate::registry::WriteError;
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value as Json, json};
use weir_model::ConstraintError;

/// The header that tells which revision a write made.
pub(super) const REVISION: &str = "x-weir-revision";
/// The header that tells which form answers have.
pub(super) const API_VERSION: &str = "x-api-version";

/// What is answered.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// A text is sent as it is, and null as nothing.
    body: Json,
    pub(super) revision: Option<u64>,
    /// Of what is accepted without effect.
    pub(super) warnings: Vec<String>,
}

impl Answer {
    pub(super) fn new(status: StatusCode, body: Json) -> Answer {
        Answer { status, body, revision: None, warnings: Vec::new() }
    }

    pub(super) fn ok(body: Json) -> Answer {
        Answer::new(StatusCode::OK, body)
    }

    pub(super) fn error(status: StatusCode, message: impl Into<String>) -> Answer {
        Answer::new(status, json!({ "error_msg": message.into() }))
    }

    pub(super) fn bad(message: impl Into<String>) -> Answer {
        Answer::error(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn not_found() -> Answer {
        Answer::new(StatusCode::NOT_FOUND, json!({ "message": "Key not found" }))
    }

    pub(super) fn unsupported(method: &str, what: &str) -> Answer {
        Answer::error(StatusCode::METHOD_NOT_ALLOWED, format!("not supported `{method}` method for {what}"))
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

impl From<Refused> for Answer {
    fn from(refused: Refused) -> Answer {
        match refused {
            Refused::Invalid(Invalid(message)) => Answer::bad(message),
            Refused::NotFound => Answer::not_found(),
            Refused::NoConsumer => Answer::error(StatusCode::NOT_FOUND, "consumer not found"),
        }
    }
}

impl From<Invalid> for Answer {
    fn from(invalid: Invalid) -> Answer {
        Refused::Invalid(invalid).into()
    }
}

impl From<WriteError<Refused>> for Answer {
    fn from(error: WriteError<Refused>) -> Answer {
        match error {
            WriteError::Decided(refused) => refused.into(),
            WriteError::Refused(refusal) => Answer::bad(told(&refusal)),
            WriteError::Uncompilable(error) => Invalid::configuration(error).into(),
            WriteError::Unavailable(message) => Answer::error(StatusCode::SERVICE_UNAVAILABLE, message),
            WriteError::ReadOnly => Answer::error(
                StatusCode::METHOD_NOT_ALLOWED,
                "the configuration is a declarative file: change the file, or start without one to write here",
            ),
        }
    }
}

fn told(refusal: &ConstraintError) -> String {
    match refusal {
        // Its value may be a secret.
        ConstraintError::NotUnique { unique, .. } => {
            let fields: Vec<_> = unique.0.iter().map(|(field, _)| *field).collect();
            format!("duplicate {} found", fields.join(", "))
        }
        ConstraintError::MissingReference(reference) => {
            format!("the {} that it names is gone", reference.field)
        }
        ConstraintError::StillReferenced(kind) => {
            use weir_model::schema::Choice;
            format!("it is still named by {}", kind.as_str())
        }
    }
}
