//! `/tags`: which entities carry which tags.
use crate::admin::request::ApiRequest;
use crate::admin::response::{ApiError, json_response};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use weir_model::Entities;

/// Kong's bounds of a page.
const SIZES: std::ops::RangeInclusive<usize> = 1..=1000;

pub(super) async fn list(call: ApiRequest) -> Result<Response, ApiError> {
    page(&call, |_| true)
}

pub(super) async fn list_one(call: ApiRequest) -> Result<Response, ApiError> {
    page(&call, |tag| call.ids.first().is_some_and(|wanted| wanted == tag))
}

fn page(call: &ApiRequest, wanted: impl Fn(&str) -> bool) -> Result<Response, ApiError> {
    let size = call.argument("size").map_or(Some(100), |size| size.parse().ok());
    let size = size.filter(|size| SIZES.contains(size));
    let size = size.ok_or(ApiError::Size("size must be an integer between 1 and 1000"))?;
    let offset = call.argument("offset").unwrap_or("0");
    let from = offset.parse().map_err(|_| ApiError::Offset(offset.to_owned()))?;
    let found = find(&call.control.registry().entities(), from, size + 1, wanted);
    Ok(json_response(StatusCode::OK, &page_of(found, &call.path, from, size)))
}

fn find(entities: &Entities, from: usize, most: usize, wanted: impl Fn(&str) -> bool) -> Vec<Value> {
    let tagged = entities.iter().flat_map(|entity| entity.tags().iter().map(move |tag| (entity, tag)));
    let wanted = tagged.filter(|(_, tag)| wanted(tag)).skip(from).take(most);
    let rows = wanted.map(|(entity, tag)| {
        json!({ "entity_name": entity.kind().as_str(), "entity_id": entity.id().to_string(), "tag": tag })
    });
    rows.collect()
}

/// One more than the page holds was collected, to know whether another page follows.
fn page_of(mut found: Vec<Value>, path: &str, from: usize, size: usize) -> Value {
    if found.len() <= size {
        return json!({ "data": found, "next": null });
    }
    found.truncate(size);
    let offset = (from + size).to_string();
    json!({ "data": found, "next": format!("{path}?offset={offset}&size={size}"), "offset": offset })
}
