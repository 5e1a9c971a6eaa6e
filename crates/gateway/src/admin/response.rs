//! Answers of the Admin API, and Kong's form for what it refuses.
use super::violations::Violations;
use crate::listener::Unread;
use crate::registry::{NotInForce, WriteError};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::fmt;
use weir_model::ConstraintError;
use weir_model::Uuid;
use weir_model::entity::{EntityKind, Reference, Unique};
use weir_model::schema::{Choice, FieldError, Json, JsonMap, quoted};

/// An answer with a JSON body.
pub(crate) fn json_answer(status: StatusCode, body: &Json) -> Response {
    text_answer(status, body.to_string())
}

/// The same of JSON that is text already.
pub(super) fn text_answer(status: StatusCode, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json; charset=utf-8")], body).into_response()
}

/// What a write does, in Kong's words.
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

/// A reference by something else than an id, to nothing.
pub(crate) struct Unresolved {
    /// The field that refers.
    pub(crate) field: &'static str,
    /// To what kind of entity.
    pub(crate) kind: EntityKind,
    /// By what: a field there, and its value.
    pub(crate) by: (String, Json),
}

/// Why a request is refused.
pub(crate) enum Denied {
    /// There is nothing here.
    NotFound,
    /// This cannot be done here.
    Method,
    /// The body is not of a type that is read.
    MediaType,
    /// The body was not read to its end.
    Unread(Unread),
    /// The body, or the path, cannot be read.
    Malformed(String),
    /// The entity is not the one that the client knows.
    Precondition,
    /// What is wrong with an entity.
    Schema(Vec<FieldError>),
    /// An entity of this id is there already.
    PrimaryKeyTaken(Uuid),
    /// Entities of this kind have no name, and this is no id.
    PrimaryKeyInvalid,
    /// A rule across entities, broken by a write of one of this kind.
    Refused(EntityKind, ConstraintError),
    /// A reference to nothing.
    Unresolved(Unresolved),
    /// The offset of a list is none.
    Offset(String),
    /// The size of a page is none.
    Size(&'static str),
    /// Tags cannot be looked for like this.
    Tags,
    /// The configuration is a file.
    ReadOnly(Verb, EntityKind),
    /// The store cannot be reached now.
    Unavailable(String),
    /// It is stored, and cannot be served.
    NotInForce(NotInForce),
}

impl Denied {
    /// What became of a write.
    pub(super) fn of_write(error: WriteError<Denied>, verb: Verb, kind: EntityKind) -> Denied {
        match error {
            WriteError::Decided(denied) => denied,
            WriteError::Refused(refusal) => Denied::Refused(kind, refusal),
            WriteError::Uncompilable(error) => {
                let (field, message) = error.field();
                Denied::Schema(vec![FieldError::new(field, message)])
            }
            WriteError::Unavailable(reason) => Denied::Unavailable(reason),
            WriteError::ReadOnly => Denied::ReadOnly(verb, kind),
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Denied::NotFound => StatusCode::NOT_FOUND,
            Denied::Method | Denied::ReadOnly(..) => StatusCode::METHOD_NOT_ALLOWED,
            Denied::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Denied::Unread(unread) => unread.status(),
            Denied::Precondition => StatusCode::PRECONDITION_FAILED,
            Denied::Refused(_, ConstraintError::NotUnique { .. }) => StatusCode::CONFLICT,
            Denied::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Denied::NotInForce(_) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    /// Kong's number and name of the error, if it has one.
    fn code(&self) -> Option<(u8, &'static str)> {
        Some(match self {
            Denied::PrimaryKeyInvalid => (1, "invalid primary key"),
            Denied::Schema(_) => (2, "schema violation"),
            Denied::PrimaryKeyTaken(_) => (3, "primary key violation"),
            Denied::Refused(EntityKind::CaCertificates, ConstraintError::StillReferenced(_)) => {
                (19, "referenced by others")
            }
            Denied::Refused(
                _,
                ConstraintError::MissingReference(_) | ConstraintError::StillReferenced(_),
            ) => (4, "foreign key violation"),
            Denied::Refused(_, ConstraintError::NotUnique { .. }) => (5, "unique constraint violation"),
            Denied::Offset(_) => (7, "invalid offset"),
            Denied::Size(_) => (9, "invalid size"),
            Denied::Tags => (11, "invalid options"),
            Denied::ReadOnly(..) => (12, "operation unsupported"),
            Denied::Unresolved(_) => (13, "foreign keys unresolved"),
            _ => return None,
        })
    }

    /// Which fields are at fault.
    fn fields(&self) -> Option<Json> {
        Some(match self {
            Denied::PrimaryKeyInvalid => json!({ "id": "expected a valid UUID" }),
            Denied::Schema(violations) => Violations::of(violations).fields,
            Denied::PrimaryKeyTaken(id) => json!({ "id": id.to_string() }),
            Denied::Refused(EntityKind::CaCertificates, ConstraintError::StillReferenced(_)) => return None,
            Denied::Refused(kind, ConstraintError::NotUnique { unique, .. }) => taken(*kind, unique),
            Denied::Refused(_, ConstraintError::MissingReference(reference)) => {
                json!({ reference.field: { "id": reference.id.to_string() } })
            }
            Denied::Refused(_, ConstraintError::StillReferenced(by)) => {
                json!({ "@referenced_by": by.as_str() })
            }
            Denied::Tags => json!({ "tags": "invalid filter syntax" }),
            Denied::Unresolved(unresolved) => {
                json!({ unresolved.field: { unresolved.by.0.as_str(): unresolved.to_string() } })
            }
            _ => return None,
        })
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Denied::NotFound => f.write_str("Not found"),
            Denied::Method => f.write_str("Method not allowed"),
            Denied::MediaType => f.write_str(
                "Unsupported media type: send application/json, application/x-www-form-urlencoded or multipart/form-data",
            ),
            Denied::Unread(unread) => f.write_str(&unread.message(super::request_body::LONGEST)),
            Denied::Malformed(message) | Denied::Unavailable(message) => f.write_str(message),
            Denied::Precondition => f.write_str("Precondition failed: read the entity again for its ETag"),
            Denied::Schema(violations) => f.write_str(&Violations::of(violations).message),
            Denied::PrimaryKeyTaken(id) => write!(f, "primary key violation on key '{{id=\"{id}\"}}'"),
            Denied::PrimaryKeyInvalid => f.write_str("invalid primary key: '{id=\"expected a valid UUID\"}'"),
            Denied::Refused(kind, refusal) => refused(*kind, refusal, f),
            Denied::Unresolved(unresolved) => {
                let (field, key) = (unresolved.field, &unresolved.by.0);
                write!(f, "foreign key unresolved ({field}.{key}: {unresolved})")
            }
            Denied::Offset(offset) => write!(f, "'{offset}' is not a valid offset: take it from the page before"),
            Denied::Size(message) => f.write_str(message),
            Denied::Tags => f.write_str("invalid option (tags: invalid filter syntax)"),
            Denied::NotInForce(not_in_force) => not_in_force.fmt(f),
            Denied::ReadOnly(verb, kind) => {
                write!(f, "cannot {} '{}' entities when not using a database", verb.as_str(), kind.as_str())
            }
        }
    }
}

impl fmt::Display for Unresolved {
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

/// The value that another entity has, without what is secret, and shortened where it is long, as a certificate is.
fn taken(kind: EntityKind, unique: &Unique) -> Json {
    let secret = |name: &str| kind.schema().field(name).is_some_and(|field| field.secret);
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

impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        let mut body = JsonMap::new();
        if let Some((code, name)) = self.code() {
            body.insert("code".to_owned(), code.into());
            body.insert("name".to_owned(), name.into());
        }
        body.insert("message".to_owned(), self.to_string().into());
        if let Some(fields) = self.fields() {
            let name = if matches!(self, Denied::Tags) { "options" } else { "fields" };
            body.insert(name.to_owned(), fields);
        }
        json_answer(self.status(), &Json::Object(body))
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
            (EntityKind::KeyauthCredentials, "key", "key=\"(secret)\""),
        ] {
            let unique = Unique(vec![(field, pem.as_str().into())]);
            let denied = Denied::Refused(kind, ConstraintError::NotUnique { unique, by: Uuid::nil() });
            let told = format!("{denied} {}", denied.fields().unwrap());
            assert!(told.len() < 400, "{} bytes", told.len());
            assert!(told.contains(shown.trim_end_matches('\'')), "{told}");
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
        let denied = Denied::Refused(EntityKind::KeyauthCredentials, refusal);
        let fields = denied.fields().unwrap().to_string();
        assert!(!denied.to_string().contains("hush") && !fields.contains("hush"), "{denied}: {fields}");
    }
}
