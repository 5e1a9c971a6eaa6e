//! Validates a whole configuration without storing it: all errors at once.
use super::request::body_or_yaml;
use super::response::ApiResponse;
use super::write::take_modified_index;
use crate::apisix::object::{Invalid, Key, Kind, Objects, id_text};
use crate::apisix::translate::translate;
use axum::body::Bytes;
use axum::http::{Method, Request, StatusCode};
use serde_json::{Value as Json, json};
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;
use weir_model::PluginSchema;

/// The objects of the request. References to others are taken to exist.
struct Requested(HashMap<Key, Json>);

impl Objects for Requested {
    fn value(&self, key: &Key) -> Option<&Json> {
        self.0.get(key).or_else(|| (key.kind == Kind::Protos).then_some(&*ANY_PROTO))
    }
}

/// Any proto: what is read of it, without what it says.
static ANY_PROTO: LazyLock<Json> = LazyLock::new(|| json!({ "content": ";" }));

/// An object of the request, and its place there.
struct Entry<'j> {
    kind: Kind,
    index: usize,
    key: Result<Key, Invalid>,
    value: &'j Json,
}

/// Answers `POST configs/validate`.
pub(super) fn answer(request: &Request<Bytes>, plugins: &[PluginSchema]) -> Result<ApiResponse, ApiResponse> {
    if *request.method() != Method::POST {
        return Err(ApiResponse::error(StatusCode::NOT_FOUND, "not found"));
    }
    let empty = || ApiResponse::bad("invalid request body: empty request body");
    let body = body_or_yaml(request)?.ok_or_else(empty)?;
    let entries = entries(&body);
    let requested = entries.iter().filter_map(|entry| Some((entry.key.clone().ok()?, entry.value.clone())));
    let objects = Requested(requested.collect());
    let (mut known, mut errors) = (HashSet::new(), Vec::new());
    for entry in &entries {
        let checked = match &entry.key {
            Ok(key) if !known.insert(key.clone()) => {
                Err(Invalid(format!("found duplicate id {} in {}", key.id, entry.kind.name())))
            }
            Ok(key) => check(key, entry.value, &objects, plugins),
            Err(invalid) => Err(invalid.clone()),
        };
        errors.extend(checked.err().map(|invalid| entry.error(&invalid)));
    }
    if errors.is_empty() {
        return Ok(ApiResponse::ok(Json::Null));
    }
    let body = json!({ "error_msg": "Configuration validation failed", "errors": errors });
    Err(ApiResponse::new(StatusCode::BAD_REQUEST, body))
}

/// Translates the object; what it refers to may be elsewhere.
fn check(key: &Key, value: &Json, objects: &Requested, plugins: &[PluginSchema]) -> Result<(), Invalid> {
    let mut value = value.clone();
    take_modified_index(&mut value)?;
    if let Json::Object(members) = &mut value {
        let naming = [
            ("upstream_id", Kind::Upstreams),
            ("service_id", Kind::Services),
            ("plugin_config_id", Kind::PluginConfigs),
            ("group_id", Kind::ConsumerGroups),
        ];
        for (field, kind) in naming {
            let id = members.get(field).and_then(id_text);
            let named = id.and_then(|id| Key::new(kind, id).ok());
            if named.is_some_and(|named| objects.value(&named).is_none()) {
                members.remove(field);
            }
        }
    }
    for place in ["/tls", "/upstream/tls"] {
        let Some(Json::Object(tls)) = value.pointer_mut(place) else { continue };
        let named = tls.get("client_cert_id").and_then(id_text).and_then(|id| Key::new(Kind::Ssls, id).ok());
        if named.is_some_and(|named| objects.value(&named).is_none()) {
            tls.remove("client_cert_id");
        }
    }
    translate(key, &value, objects, plugins).map(drop)
}

fn entries(body: &Json) -> Vec<Entry<'_>> {
    let lists = body.as_object().into_iter().flatten();
    let kinds = lists.filter_map(|(name, list)| Some((Kind::from_name(name)?, list.as_array()?)));
    let entries = kinds.flat_map(|(kind, list)| {
        list.iter().enumerate().map(move |(index, value)| {
            let id = id_text(&value[kind.id_field()]).or_else(|| id_text(&value["id"]));
            let key = Key::below(kind, &id.unwrap_or_else(|| format!("arr_{}", index + 1)));
            Entry { kind, index, key, value }
        })
    });
    entries.collect()
}

impl Entry<'_> {
    fn error(&self, Invalid(message): &Invalid) -> Json {
        json!({
            "resource_type": self.kind.name(),
            "resource_id": self.key.as_ref().ok().map(|key| key.id.as_str()),
            "index": self.index,
            "error": message,
        })
    }
}
