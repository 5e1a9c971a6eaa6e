//! Objects as clients see them, and lists of them: filters and pages.
use super::request::{ObjectPath, argument};
use super::response::ApiResponse;
use crate::apisix::object::{Key, Kind, all, id_text};
use axum::body::Bytes;
use axum::http::{Request, StatusCode};
use regex::Regex;
use serde_json::{Value as Json, json};
use weir_model::Entities;
use weir_model::entity::ApisixObject;

/// The fields by which a list of routes can be filtered.
const FILTER_FIELDS: [&str; 2] = ["service_id", "upstream_id"];

/// The objects of one kind that the arguments select.
pub(super) fn list(
    entities: &Entities,
    request: &Request<Bytes>,
    place: &ObjectPath,
) -> Result<ApiResponse, ApiResponse> {
    let (kind, filter) = (place.kind, Filter::of(request, place.kind));
    let here = all(entities, kind).filter(|(key, object)| {
        let is_here = key.owner == place.owner || kind == Kind::Secrets && place.owner.is_none();
        is_here && filter.as_ref().is_none_or(|filter| filter.admits(&object.value))
    });
    let mut objects: Vec<&ApisixObject> = here.map(|(_, object)| object).collect();
    objects.sort_by(|a, b| a.key.cmp(&b.key));
    let total = objects.len();
    if total == 0 && place.owner.is_some() {
        // As in APISIX, where a consumer's credentials are keys below its own.
        return Err(ApiResponse::not_found());
    }
    let list: Vec<Json> = page(request, objects)?.into_iter().map(item).collect();
    Ok(ApiResponse::ok(json!({ "total": total, "list": list })))
}

/// One object of a list, which is also the response for that object alone.
pub(super) fn item(object: &ApisixObject) -> Json {
    json!({
        "key": path(object),
        "value": shown(object),
        "createdIndex": object.created_index,
        "modifiedIndex": object.modified_index,
    })
}

/// An object as clients see it: without private keys, as in APISIX.
pub(super) fn shown(object: &ApisixObject) -> Json {
    let mut value = object.value.clone();
    let is_ssl = Key::of(object).is_some_and(|key| key.kind == Kind::Ssls);
    if let (true, Json::Object(members)) = (is_ssl, &mut value) {
        members.remove("key");
        members.remove("keys");
    }
    for place in ["/tls", "/upstream/tls"] {
        if let Some(Json::Object(tls)) = value.pointer_mut(place) {
            tls.remove("client_key");
        }
    }
    value
}

pub(super) fn path(object: &ApisixObject) -> String {
    format!("/apisix/{}", object.key)
}

/// Which objects are selected.
struct Filter {
    name: Option<Option<Regex>>,
    uri: Option<Option<Regex>>,
    label: Option<String>,
    fields: Vec<(String, String)>,
}

impl Filter {
    /// None selects all.
    fn of(request: &Request<Bytes>, kind: Kind) -> Option<Filter> {
        // An invalid regex matches nothing.
        let regex = |name: &str| argument(request, name).map(|text| Regex::new(&text).ok());
        let mut fields = Vec::new();
        if let (Some(filter), Kind::Routes) = (argument(request, "filter"), kind) {
            let pairs = form_urlencoded::parse(filter.as_bytes()).into_owned();
            fields.extend(pairs.filter(|(field, _)| FILTER_FIELDS.contains(&field.as_str())));
        }
        let filter =
            Filter { name: regex("name"), uri: regex("uri"), label: argument(request, "label"), fields };
        let by_words = filter.name.is_some() || filter.uri.is_some() || filter.label.is_some();
        (by_words || !filter.fields.is_empty()).then_some(filter)
    }

    fn admits(&self, value: &Json) -> bool {
        let finds = |regex: &Option<Regex>, text: &Json| {
            regex.as_ref().zip(text.as_str()).is_some_and(|(regex, text)| regex.is_match(text))
        };
        let uris = || value["uris"].as_array().into_iter().flatten().chain([&value["uri"]]);
        self.name.as_ref().is_none_or(|name| finds(name, &value["name"]))
            && self.uri.as_ref().is_none_or(|regex| uris().any(|uri| finds(regex, uri)))
            && self.label.as_ref().is_none_or(|label| value["labels"].get(label).is_some())
            && self.fields.iter().all(|(field, id)| id_text(&value[field]).as_ref() == Some(id))
    }
}

/// The objects of the selected page; all of them, if none is selected.
fn page<'o>(
    request: &Request<Bytes>,
    mut objects: Vec<&'o ApisixObject>,
) -> Result<Vec<&'o ApisixObject>, ApiResponse> {
    let number = |name: &str| argument(request, name)?.parse::<i64>().ok();
    let (Some(page), Some(size)) = (number("page"), number("page_size")) else { return Ok(objects) };
    let size = usize::try_from(size).unwrap_or(0);
    if !(10..=500).contains(&size) {
        let message = "page_size must be between 10 and 500";
        return Err(ApiResponse::new(StatusCode::BAD_REQUEST, message.into()));
    }
    objects.sort_by_key(|object| object.created_index);
    let before = usize::try_from(page.max(1) - 1).unwrap_or(usize::MAX);
    Ok(objects.into_iter().skip(before.saturating_mul(size)).take(size).collect())
}
