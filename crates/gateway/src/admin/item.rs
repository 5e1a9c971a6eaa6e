//! One entity: read and written.
use super::auth::AuditedEntities;
use super::collection::EntityPath;
use super::conditions::Conditions;
use super::edit::Edit;
use super::members;
use super::node::Wait;
use super::representation::Representation;
use super::request::ApiRequest;
use super::response::{ApiError, Verb, text_response};
use super::warning::{self, warned};
use crate::registry::CommittedWrite;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::time::SystemTime;
use weir_model::entity::{Entity, EntityKind};

/// The header with the revision of a write.
pub(super) const REVISION: &str = "x-weir-revision";

/// `GET`
pub(super) async fn read(entity_path: EntityPath, call: ApiRequest) -> Result<Response, ApiError> {
    if let EntityPath::Entity(EntityKind::ConsumerGroups) = entity_path {
        return members::read_group(entity_path, &call);
    }
    let shown = {
        let entities = call.control.registry().entities();
        let entity = entity_path.resolve(&call.ids, &entities)?.existing()?;
        Representation::of(entity, &entities)
    };
    let (text, tag) = (shown.to_json().to_string(), shown.etag());
    let answer = if Conditions::of(&call.headers).is_known(&tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        text_response(StatusCode::OK, text)
    };
    Ok(tagged(answer, &tag))
}

/// `POST`, `PUT`, `PATCH`, `DELETE`
pub(super) async fn write(
    verb: Verb,
    entity_path: EntityPath,
    call: ApiRequest,
) -> Result<Response, ApiError> {
    let (kind, waits, wait) = (entity_path.kind(), call.waits(), Wait::asked_for(&call)?);
    let control = call.control.clone();
    let edit = Edit {
        entity_path,
        verb,
        conditions: Conditions::of(&call.headers),
        skip_hash: call.is_on("skip_hash"),
        now: SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default(),
        control: call.control,
        ids: call.ids,
        body: call.body,
    };
    let registry = control.registry();
    if registry.is_translated() {
        return Err(ApiError::ReadOnly(verb, kind));
    }
    let emptied = edit.deletes_target_of(&registry.entities());
    let written = registry.write(move |entities| edit.decide(entities)).await;
    let written = written.map_err(|error| ApiError::of_write(error, verb, kind))?;
    let applied = if waits { registry.wait_active(written.revision).await } else { Ok(()) };
    if let Err(error) = applied {
        return Ok(revised(ApiError::ApplyError(error).into_response(), &written));
    }
    if let Some(wait) = wait
        && let Some(accepted) = wait.end(written.revision).await
    {
        return Ok(revised(accepted, &written));
    }
    let warnings = warning::of(&written, emptied.as_slice(), registry, control.plugins());
    let answer = match (entity_path, verb) {
        (EntityPath::Members(membership), Verb::Create) => membership.added(&written, &registry.entities()),
        _ => {
            let shown = shown(kind, &written).map(|entity| Representation::of(entity, &registry.entities()));
            answer(verb, shown.as_ref())
        }
    };
    Ok(warned(revised(answer, &written), &warnings))
}

/// The entity at the path, among all that a write changed.
pub(super) fn shown(kind: EntityKind, written: &CommittedWrite) -> Option<&Entity> {
    let of_the_kind = written.changes.iter().filter(|change| change.kind == kind);
    of_the_kind.filter_map(|change| change.entity.as_ref()).next()
}

fn answer(verb: Verb, shown: Option<&Representation>) -> Response {
    let (Some(shown), Verb::Create | Verb::Replace | Verb::Update) = (shown, verb) else {
        return StatusCode::NO_CONTENT.into_response();
    };
    let (text, tag) = (shown.to_json().to_string(), shown.etag());
    let status = if verb == Verb::Create { StatusCode::CREATED } else { StatusCode::OK };
    tagged(text_response(status, text), &tag)
}

pub(super) fn tagged(mut answer: Response, tag: &str) -> Response {
    if let Ok(tag) = HeaderValue::from_str(tag) {
        answer.headers_mut().insert(header::ETAG, tag);
    }
    answer
}

fn revised(mut answer: Response, written: &CommittedWrite) -> Response {
    answer.headers_mut().insert(REVISION, written.revision.0.into());
    answer.extensions_mut().insert(AuditedEntities::of(written));
    answer
}
