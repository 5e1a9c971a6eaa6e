//! Responses of the Admin API, and its errors in Kong's form.
use super::kong_words::of_certificate;
use super::violations::{Violation, Violations};
use crate::listener::BodyError;
pub(crate) use crate::listener::json_response;
use crate::registry::{ApplyError, WriteError};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::borrow::Cow;
use std::fmt;
use weir_model::ConstraintError;
use weir_model::Uuid;
use weir_model::entity::{EntityKind, Reference, Unique};
use weir_model::schema::{FieldError, Json, JsonMap, quoted};
use weir_proxy::CompileError;

/// A response with a body that is JSON already.
pub(super) fn text_response(status: StatusCode, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json; charset=utf-8")], body).into_response()
}

/// The kind of a write, in Kong's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    Replace,
    Update,
    Delete,
}

impl Verb {
    fn as_str(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Replace => "create or update",
            Verb::Update => "update",
            Verb::Delete => "remove",
        }
    }
}

/// A reference by something other than an id that names no entity.
pub(crate) struct UnresolvedReference {
    /// The field that refers.
    pub(crate) field: &'static str,
    /// To what kind of entity.
    pub(crate) kind: EntityKind,
    /// The field of that entity, and the value.
    pub(crate) by: (String, Json),
}

/// Why a request fails.
pub(crate) enum ApiError {
    /// Nothing exists at this path.
    NotFound,
    /// The path does not allow this method.
    Method,
    /// No revision has this number yet.
    NoRevision(u64),
    /// The body has an unsupported `Content-Type`.
    MediaType,
    /// The body was not read to its end.
    BodyError(BodyError),
    /// The body, or the path, is malformed.
    Malformed(String),
    /// `If-Match` or `If-None-Match` does not hold.
    Precondition,
    /// The entity violates its schema.
    Schema(Vec<Violation>),
    /// A unique value that a list is to be searched by is invalid.
    UniqueValue(&'static str, &'static str),
    /// An entity with this id exists already.
    PrimaryKeyTaken(Uuid),
    /// The path has no valid id, and entities of this kind have no name.
    PrimaryKeyInvalid,
    /// A write of an entity of this kind breaks a rule across entities.
    Refused(EntityKind, ConstraintError),
    /// A reference names no entity.
    UnresolvedReference(UnresolvedReference),
    /// The offset of a list is invalid.
    Offset(String),
    /// The size of a page is invalid.
    Size(&'static str),
    /// The filter by tags is invalid.
    Tags,
    /// The configuration is a file.
    ReadOnly(Verb, EntityKind),
    /// Only control planes have this.
    NoControlPlane,
    /// The store cannot be reached now.
    Unavailable(String),
    /// The change may have been stored, or not.
    Uncertain(String),
    /// The change was saved but could not be applied.
    ApplyError(ApplyError),
}

impl ApiError {
    /// The entity violates its schema.
    pub(super) fn schema(errors: &[FieldError]) -> ApiError {
        ApiError::Schema(errors.iter().map(Violation::of).collect())
    }

    /// One field violates its schema; without a path, the whole entity does.
    pub(super) fn violation(path: &str, message: impl Into<String>) -> ApiError {
        ApiError::schema(&[FieldError::new(path, message)])
    }

    /// The error of an entity that cannot be compiled.
    pub(super) fn of_entity(error: CompileError) -> ApiError {
        let is_certificate = matches!(error.of, Some((EntityKind::Certificates, _)));
        match of_certificate(&error.message).filter(|_| is_certificate) {
            Some(violation) => ApiError::Schema(vec![violation]),
            None => {
                let (field, message) = error.field();
                ApiError::violation(field, message)
            }
        }
    }

    /// The error of a write.
    pub(super) fn of_write(error: WriteError<ApiError>, verb: Verb, kind: EntityKind) -> ApiError {
        match error {
            WriteError::Rejected(error) => error,
            WriteError::Refused(refusal) => ApiError::Refused(kind, refusal),
            WriteError::Uncompilable(error) => ApiError::of_entity(error),
            WriteError::Unavailable(reason) => ApiError::Unavailable(reason),
            WriteError::Uncertain(reason) => ApiError::Uncertain(reason),
            WriteError::ReadOnly => ApiError::ReadOnly(verb, kind),
        }
    }

    /// Kong's number and name of the error, if it has one, and the fields with errors.
    pub(super) fn into_parts(self) -> (Option<(u8, Cow<'static, str>)>, Option<Json>) {
        (self.code(), self.fields())
    }

    fn status(&self) -> StatusCode {
        match self {
            ApiError::NotFound | ApiError::NoRevision(_) => StatusCode::NOT_FOUND,
            ApiError::Method | ApiError::ReadOnly(..) => StatusCode::METHOD_NOT_ALLOWED,
            ApiError::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ApiError::BodyError(unread) => unread.status(),
            ApiError::Precondition => StatusCode::PRECONDITION_FAILED,
            ApiError::Refused(_, ConstraintError::NotUnique { .. }) => StatusCode::CONFLICT,
            ApiError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            ApiError::Uncertain(_) | ApiError::ApplyError(_) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    /// Kong's number and name of the error, if it has one.
    fn code(&self) -> Option<(u8, Cow<'static, str>)> {
        let (code, name) = match self {
            ApiError::PrimaryKeyInvalid => (1, "invalid primary key"),
            ApiError::Schema(_) => (2, "schema violation"),
            ApiError::PrimaryKeyTaken(_) => (3, "primary key violation"),
            ApiError::Refused(EntityKind::CaCertificates, ConstraintError::StillReferenced(_)) => {
                (19, "referenced by others")
            }
            ApiError::Refused(
                _,
                ConstraintError::MissingReference(_) | ConstraintError::StillReferenced(_),
            ) => (4, "foreign key violation"),
            ApiError::Refused(_, ConstraintError::NotUnique { .. }) => (5, "unique constraint violation"),
            ApiError::UniqueValue(field, _) => return Some((10, format!("invalid unique {field}").into())),
            ApiError::Offset(_) => (7, "invalid offset"),
            ApiError::Size(_) => (9, "invalid size"),
            ApiError::Tags => (11, "invalid options"),
            ApiError::ReadOnly(..) => (12, "operation unsupported"),
            ApiError::UnresolvedReference(_) => (13, "foreign keys unresolved"),
            _ => return None,
        };
        Some((code, name.into()))
    }

    /// The fields with errors.
    fn fields(&self) -> Option<Json> {
        Some(match self {
            ApiError::PrimaryKeyInvalid => json!({ "id": "expected a valid UUID" }),
            ApiError::Schema(violations) => Violations::of(violations).fields,
            ApiError::PrimaryKeyTaken(id) => json!({ "id": id.to_string() }),
            ApiError::Refused(EntityKind::CaCertificates, ConstraintError::StillReferenced(_)) => {
                return None;
            }
            ApiError::Refused(kind, ConstraintError::NotUnique { unique, .. }) => taken(*kind, unique),
            ApiError::Refused(_, ConstraintError::MissingReference(reference)) => {
                json!({ reference.field: { "id": reference.id.to_string() } })
            }
            ApiError::Refused(_, ConstraintError::StillReferenced(by)) => {
                json!({ "@referenced_by": by.as_str() })
            }
            ApiError::Tags => json!({ "tags": "invalid filter syntax" }),
            ApiError::UnresolvedReference(unresolved) => {
                json!({ unresolved.field: { unresolved.by.0.as_str(): unresolved.to_string() } })
            }
            _ => return None,
        })
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApiError::NotFound => f.write_str("Not found"),
            ApiError::NoRevision(newest) => write!(f, "no such revision: the newest is {newest}"),
            ApiError::Method => f.write_str("Method not allowed"),
            ApiError::MediaType => f.write_str(
                "Unsupported media type: send application/json, application/x-www-form-urlencoded or multipart/form-data",
            ),
            ApiError::BodyError(unread) => f.write_str(&unread.message(super::request_body::MAX_BODY_LEN)),
            ApiError::Malformed(message) | ApiError::Unavailable(message) | ApiError::Uncertain(message) => {
                f.write_str(message)
            }
            ApiError::Precondition => f.write_str("Precondition failed: read the entity again for its ETag"),
            ApiError::Schema(violations) => f.write_str(&Violations::of(violations).message),
            ApiError::PrimaryKeyTaken(id) => write!(f, "primary key violation on key '{{id=\"{id}\"}}'"),
            ApiError::PrimaryKeyInvalid => f.write_str("invalid primary key: '{id=\"expected a valid UUID\"}'"),
            ApiError::Refused(kind, refusal) => refused(*kind, refusal, f),
            ApiError::UnresolvedReference(unresolved) => {
                let (field, key) = (unresolved.field, &unresolved.by.0);
                write!(f, "foreign key unresolved ({field}.{key}: {unresolved})")
            }
            ApiError::Offset(offset) => write!(f, "'{offset}' is not a valid offset: take it from the page before"),
            ApiError::Size(message) | ApiError::UniqueValue(_, message) => f.write_str(message),
            ApiError::Tags => f.write_str("invalid option (tags: invalid filter syntax)"),
            ApiError::NoControlPlane => f.write_str(
                "this endpoint is only available when Kong is configured to run as Control Plane for the cluster",
            ),
            ApiError::ApplyError(error) => error.fmt(f),
            ApiError::ReadOnly(verb, kind) => {
                write!(f, "cannot {} '{}' entities when not using a database", verb.as_str(), kind.as_str())
            }
        }
    }
}

impl fmt::Display for UnresolvedReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, value) = &self.by;
        let by = lua(&json!({ key.as_str(): value }));
        write!(
            f,
            "the foreign key cannot be resolved with '{by}' for an existing '{}' entity",
            self.kind.as_str()
        )
    }
}

fn refused(kind: EntityKind, refusal: &ConstraintError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match refusal {
        ConstraintError::NotUnique { unique, .. } => {
            write!(f, "UNIQUE violation detected on '{}'", lua(&taken(kind, unique)))
        }
        ConstraintError::MissingReference(Reference { kind, id, .. }) => {
            let kind = kind.as_str();
            write!(f, "the foreign key '{{id=\"{id}\"}}' does not reference an existing '{kind}' entity.")
        }
        ConstraintError::StillReferenced(by) => {
            write!(f, "an existing '{}' entity references this '{}' entity", by.as_str(), kind.as_str())
        }
    }
}

/// The value that another entity has; secrets are left out, and long values such as certificates are shortened.
fn taken(kind: EntityKind, unique: &Unique) -> Json {
    let secret = |name: &str| kind.schema().field(name).is_some_and(|field| field.is_confidential());
    let shown = unique.0.iter().map(|(name, value)| {
        let value = match value.as_str() {
            _ if secret(name) => "(secret)".into(),
            Some(text) => quoted(text).into(),
            None => value.clone(),
        };
        ((*name).to_owned(), value)
    });
    Json::Object(shown.collect())
}

/// A value as Kong writes it in messages.
fn lua(value: &Json) -> String {
    match value {
        Json::Object(members) => {
            let members = members.iter().map(|(name, value)| format!("{name}={}", lua(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut body = JsonMap::new();
        let hint = match &self {
            ApiError::Schema(violations) => Violations::of(violations).hint,
            _ => None,
        };
        if let Some((code, name)) = self.code() {
            body.insert("code".to_owned(), code.into());
            body.insert("name".to_owned(), name.as_ref().into());
        }
        body.insert("message".to_owned(), self.to_string().into());
        if let Some(fields) = self.fields() {
            let name = if matches!(self, ApiError::Tags) { "options" } else { "fields" };
            body.insert(name.to_owned(), fields);
        }
        if let Some(hint) = hint {
            body.insert("hint".to_owned(), hint.into());
        }
        json_response(self.status(), &Json::Object(body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_is_not_repeated_whole() {
        let pem = "x".repeat(4000);
        for (kind, field, shown) in [
            (EntityKind::CaCertificates, "cert", "x…'"),
            (EntityKind::Certificates, "key", "key=\"(secret)\""),
        ] {
            let unique = Unique(vec![(field, pem.as_str().into())]);
            let error = ApiError::Refused(kind, ConstraintError::NotUnique { unique, by: Uuid::nil() });
            let text = format!("{error} {}", error.fields().unwrap());
            assert!(text.len() < 400, "{} bytes", text.len());
            assert!(text.contains(shown.trim_end_matches('\'')), "{text}");
        }
    }

    #[test]
    fn values_are_written_as_kong_does() {
        let value = json!({ "consumer": null, "name": "cors", "route": { "id": "x" } });
        assert_eq!(lua(&value), r#"{consumer=null,name="cors",route={id="x"}}"#);
    }

    #[test]
    fn a_secret_is_in_no_answer() {
        let unique = Unique(vec![("key", "hush".into())]);
        let refusal = ConstraintError::NotUnique { unique, by: Uuid::nil() };
        let error = ApiError::Refused(EntityKind::Certificates, refusal);
        let fields = error.fields().unwrap().to_string();
        assert!(!error.to_string().contains("hush") && !fields.contains("hush"), "{error}: {fields}");
    }
}
