//! Entities by a part of their name, path, host, id or tags.
use super::Shown;
use super::list;
use crate::api::ApiError;
use crate::form::{Pairs, first, plain};
use crate::kinds::{IN_NAVIGATION, KINDS, Kind};
use crate::page::{Page, Visit};
use crate::texts;
use maud::html;
use serde_json::Value;

/// How many are shown of a kind.
const MAX_SHOWN: usize = 50;

/// The fields that are searched.
const SEARCHED: [&str; 16] = [
    "id",
    "name",
    "instance_name",
    "username",
    "custom_id",
    "host",
    "hosts",
    "path",
    "paths",
    "expression",
    "tags",
    "snis",
    "target",
    "prefix",
    "kid",
    "description",
];

pub(super) async fn page(visit: &Visit, asked: &Pairs) -> Shown {
    let wanted = first(asked, "q").trim().to_lowercase();
    let mut found = Vec::new();
    if !wanted.is_empty() {
        for kind in &KINDS[..IN_NAVIGATION] {
            let rows = matching(visit, kind, &wanted).await?;
            if !rows.is_empty() {
                found.push((kind, rows));
            }
        }
    }
    let content = html! {
        @if found.is_empty() { div.empty { p { (texts::filled("search.nothing", &[("wanted", &wanted)])) } } }
        @for (kind, rows) in &found {
            section {
                h2 { (kind.many()) }
                (list::table(visit, kind, &rows[..rows.len().min(MAX_SHOWN)]))
                @if rows.len() > MAX_SHOWN { p.help { (texts::filled("search.more", &[("count", &(rows.len() - MAX_SHOWN))])) } }
            }
        }
    };
    Ok(Page::new("search", texts::filled("search.title", &[("wanted", &wanted)]), content))
}

/// Every entity of a kind that has the text in a field that is searched.
async fn matching(visit: &Visit, kind: &Kind, wanted: &str) -> Result<Vec<Value>, ApiError> {
    let (mut rows, mut offset) = (Vec::new(), String::new());
    loop {
        let page = crate::url::query([("size", "1000"), ("offset", &*offset)]);
        let mut body = visit.api.get(&format!("/{}{page}", kind.collection)).await?.body;
        if let Value::Array(data) = body["data"].take() {
            rows.extend(data.into_iter().filter(|entity| is_match(entity, wanted)));
        }
        match body["offset"].as_str() {
            Some(next) => offset = next.to_owned(),
            None => return Ok(rows),
        }
    }
}

fn is_match(entity: &Value, wanted: &str) -> bool {
    let has = |value: &Value| plain(value).to_lowercase().contains(wanted);
    SEARCHED.iter().any(|field| match &entity[*field] {
        Value::Null => false,
        Value::Array(items) => items.iter().any(has),
        value => has(value),
    })
}
