//! `configs`: everything at once, as APISIX has it in its API-driven standalone mode.
use super::api::Api;
use super::request::{argument, body_or_yaml, header};
use super::response::ApiResponse;
use super::write::{Configs, MODIFIED_INDEX, Write, kinds, state_key, version_field};
use crate::apisix::object::{Key, Kind, all, stored};
use axum::body::Bytes;
use axum::http::{Method, Request, StatusCode};
use serde_json::{Value as Json, json};
use std::time::Duration;
use weir_model::Entities;

/// The header with the client's name of the state.
pub(super) const DIGEST: &str = "x-digest";
/// The header with the time of the last change, in seconds since 1970.
pub(super) const LAST_MODIFIED: &str = "x-last-modified";

/// How long a client waits at most until a write is active.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Answers a request about everything.
pub(super) async fn answer(api: &Api, request: &Request<Bytes>) -> Result<ApiResponse, ApiResponse> {
    match *request.method() {
        Method::GET | Method::HEAD => Ok(show(&api.entities())),
        Method::PUT => put(api, request).await,
        _ => Err(ApiResponse::error(StatusCode::NOT_FOUND, "not found")),
    }
}

fn show(entities: &Entities) -> ApiResponse {
    let state = state(entities);
    let mut shown = json!({});
    for kind in kinds() {
        let field = version_field(kind);
        shown[&field] = state["versions"][&field].as_u64().unwrap_or(0).into();
        let of_kind = [Some(kind), (kind == Kind::Consumers).then_some(Kind::Credentials)];
        let objects = of_kind.into_iter().flatten().flat_map(|kind| all(entities, kind));
        let list: Vec<Json> =
            objects.map(|(key, object)| shown_object(kind, &key, object.value.clone(), &state)).collect();
        if !list.is_empty() {
            shown[kind.name()] = list.into();
        }
    }
    with_digest(ApiResponse::ok(shown), &state)
}

/// An object with its id in the list, and with the number that its client wrote.
fn shown_object(kind: Kind, key: &Key, mut value: Json, state: &Json) -> Json {
    let id = key.id_in_list();
    if let Some(index) = state[MODIFIED_INDEX][kind.name()].get(&*id) {
        value[MODIFIED_INDEX] = index.clone();
    }
    if key.owner.is_some() || kind == Kind::PluginMetadata {
        value["id"] = id.into();
    }
    value
}

/// The digest, the versions and the numbers of objects; null before the first write.
fn state(entities: &Entities) -> Json {
    stored(entities, &state_key()).map_or(Json::Null, |state| state.value.clone())
}

/// Adds the headers about the state.
fn with_digest(mut answer: ApiResponse, state: &Json) -> ApiResponse {
    let texts = [(DIGEST, state["digest"].as_str().map(str::to_owned))];
    let numbers = [(LAST_MODIFIED, state["last_modified"].as_i64().map(|time| time.to_string()))];
    let headers = texts.into_iter().chain(numbers);
    answer.headers.extend(headers.filter_map(|(name, value)| Some((name, value?))));
    answer
}

async fn put(api: &Api, request: &Request<Bytes>) -> Result<ApiResponse, ApiResponse> {
    let digest =
        header(request.headers(), DIGEST).ok_or_else(|| ApiResponse::bad("missing digest header"))?;
    let empty = || ApiResponse::bad("invalid request body: empty request body");
    let body = body_or_yaml(request)?.ok_or_else(empty)?;
    if !body.is_object() {
        return Err(ApiResponse::bad("invalid request body: expected an object"));
    }
    if state(&api.entities())["digest"] == digest {
        return Ok(ApiResponse::new(StatusCode::NO_CONTENT, Json::Null));
    }
    let wait = argument(request, "wait").and_then(|wait| wait.parse().ok()).map(Duration::from_millis);
    let written = api.commit(Write::Replace(Configs { digest: digest.to_owned(), body })).await?;
    let is_active = match wait {
        Some(wait) => {
            let active = api.wait_active(&written);
            tokio::time::timeout(wait.min(MAX_WAIT), active).await.is_ok_and(|active| active.is_ok())
        }
        None => false,
    };
    let status = if is_active { StatusCode::OK } else { StatusCode::ACCEPTED };
    let mut answer = with_digest(ApiResponse::new(status, Json::Null), &state(&api.entities()));
    answer.revision = Some(written.revision.0);
    Ok(answer)
}
