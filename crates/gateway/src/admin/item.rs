//! One entity: read and written.
use super::auth::Wrote;
use super::collection::Place;
use super::conditions::Conditions;
use super::edit::Edit;
use super::members;
use super::representation::{Shown, etag};
use super::request::Call;
use super::response::{Denied, Verb, text_answer};
use super::warning::{self, warned};
use crate::registry::Written;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::time::SystemTime;
use weir_model::entity::{Entity, EntityKind};

/// Which revision a write made.
pub(super) const REVISION: &str = "x-weir-revision";

/// `GET`
pub(super) async fn read(place: Place, call: Call) -> Result<Response, Denied> {
    if let Place::Entity(EntityKind::ConsumerGroups) = place {
        return members::read_group(place, &call);
    }
    let shown = {
        let entities = call.control.registry().entities();
        let entity = place.spot(&call.ids, &entities)?.here()?;
        Shown::of(entity, &entities)
    };
    let text = shown.to_json().to_string();
    let tag = etag(&text);
    let answer = if Conditions::of(&call.headers).is_known(&tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        text_answer(StatusCode::OK, text)
    };
    Ok(tagged(answer, &tag))
}

/// `POST`, `PUT`, `PATCH`, `DELETE`
pub(super) async fn write(verb: Verb, place: Place, call: Call) -> Result<Response, Denied> {
    let (kind, waits) = (place.kind(), call.waits());
    let control = call.control.clone();
    let edit = Edit {
        place,
        verb,
        conditions: Conditions::of(&call.headers),
        skip_hash: call.is_on("skip_hash"),
        now: SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default(),
        control: call.control,
        ids: call.ids,
        body: call.body,
    };
    let registry = control.registry();
    let written = registry.write(move |entities| edit.decide(entities)).await;
    let written = written.map_err(|error| Denied::of_write(error, verb, kind))?;
    let in_force = if waits { registry.wait_in_force(written.revision).await } else { Ok(()) };
    if let Err(not_in_force) = in_force {
        return Ok(revised(Denied::NotInForce(not_in_force).into_response(), &written));
    }
    let warnings = warning::of(written.entities(), control.plugins());
    let answer = match (place, verb) {
        (Place::Members(membership), Verb::Create) => membership.added(&written, &registry.entities()),
        _ => {
            let shown = shown(kind, &written).map(|entity| Shown::of(entity, &registry.entities()));
            answer(verb, shown.as_ref())
        }
    };
    Ok(warned(revised(answer, &written), &warnings))
}

/// The entity that was asked for, among all that a write changed.
fn shown(kind: EntityKind, written: &Written) -> Option<&Entity> {
    let of_the_kind = written.changes.iter().filter(|change| change.kind == kind);
    of_the_kind.filter_map(|change| change.entity.as_ref()).next()
}

fn answer(verb: Verb, shown: Option<&Shown>) -> Response {
    let (Some(shown), Verb::Create | Verb::Replace | Verb::Update) = (shown, verb) else {
        return StatusCode::NO_CONTENT.into_response();
    };
    let text = shown.to_json().to_string();
    let tag = etag(&text);
    let status = if verb == Verb::Create { StatusCode::CREATED } else { StatusCode::OK };
    tagged(text_answer(status, text), &tag)
}

pub(super) fn tagged(mut answer: Response, tag: &str) -> Response {
    if let Ok(tag) = HeaderValue::from_str(tag) {
        answer.headers_mut().insert(header::ETAG, tag);
    }
    answer
}

fn revised(mut answer: Response, written: &Written) -> Response {
    answer.headers_mut().insert(REVISION, written.revision.0.into());
    answer.extensions_mut().insert(Wrote::of(written));
    answer
}
