//! `/tags`: which entities carry which tags.
use crate::admin::request::Call;
use crate::admin::response::{Denied, json_answer};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use weir_model::Entities;
use weir_model::schema::Choice;

/// Kong's bounds of a page.
const SIZES: std::ops::RangeInclusive<usize> = 1..=1000;

pub(super) async fn list(call: Call) -> Result<Response, Denied> {
    page(&call, |_| true)
}

pub(super) async fn list_one(call: Call) -> Result<Response, Denied> {
    page(&call, |tag| call.ids.first().is_some_and(|wanted| wanted == tag))
}

fn page(call: &Call, wanted: impl Fn(&str) -> bool) -> Result<Response, Denied> {
    let size = call.argument("size").map_or(Some(100), |size| size.parse().ok());
    let size = size.filter(|size| SIZES.contains(size));
    let size = size.ok_or(Denied::Size("size must be an integer between 1 and 1000"))?;
    let offset = call.argument("offset").unwrap_or("0");
    let from = offset.parse().map_err(|_| Denied::Offset(offset.to_owned()))?;
    let found = find(&call.control.registry().entities(), from, size + 1, wanted);
    Ok(json_answer(StatusCode::OK, &page_of(found, &call.path, from, size)))
}

fn find(entities: &Entities, from: usize, most: usize, wanted: impl Fn(&str) -> bool) -> Vec<Value> {
    let tagged = entities.iter().flat_map(|entity| entity.tags().iter().map(move |tag| (entity, tag)));
    let wanted = tagged.filter(|(_, tag)| wanted(tag)).skip(from).take(most);
    let told = wanted.map(|(entity, tag)| {
        json!({ "entity_name": entity.kind().as_str(), "entity_id": entity.id().to_string(), "tag": tag })
    });
    told.collect()
}

/// One more than fits has been looked for, to know whether there is another page.
fn page_of(mut found: Vec<Value>, path: &str, from: usize, size: usize) -> Value {
    if found.len() <= size {
        return json!({ "data": found, "next": null });
    }
    found.truncate(size);
    let offset = (from + size).to_string();
    json!({ "data": found, "next": format!("{path}?offset={offset}&size={size}"), "offset": offset })
}
