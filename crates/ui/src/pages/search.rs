//! Entities by a part of their name, path, host, id or tags.
use super::{Shown, list, references};
use crate::api::ApiError;
use crate::form::{Pairs, first, plain};
use crate::kinds::{self, Kind};
use crate::page::{Page, Visit};
use crate::texts;
use maud::html;
use serde_json::Value;

/// How many are shown of a kind.
const MAX_SHOWN: usize = 50;

/// How many are looked through at once.
const PAGE: &str = "100";

/// The fields that are searched, of each kind beside those that name one.
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
        for kind in kinds::with_lists() {
            let mut rows = matching(visit, kind, &wanted).await?;
            if !rows.is_empty() {
                references::add_names(visit, rows.iter_mut().take(MAX_SHOWN)).await;
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
                @if rows.len() > MAX_SHOWN { p.help { (texts::filled("search.more", &[("count", &MAX_SHOWN)])) } }
            }
        }
    };
    Ok(Page::new("search", texts::filled("search.title", &[("wanted", &wanted)]), content))
}

/// The first entities of a kind that have the text in a field that is searched, and one more than is shown if there are.
async fn matching(visit: &Visit, kind: &Kind, wanted: &str) -> Result<Vec<Value>, ApiError> {
    let written = written(wanted);
    let (mut rows, mut offset) = (Vec::new(), String::new());
    loop {
        let page = crate::url::query([("size", PAGE), ("offset", &*offset)]);
        let text = visit.api.get_text(&format!("/{}{page}", kind.collection)).await?;
        if text.to_lowercase().contains(&written) {
            rows.extend(entities(&text).into_iter().filter(|entity| is_match(kind, entity, wanted)));
        }
        match list::next_offset(&text) {
            Some(next) if rows.len() <= MAX_SHOWN => offset = next,
            _ => return Ok(rows),
        }
    }
}

fn entities(text: &str) -> Vec<Value> {
    match serde_json::from_str(text).map(|mut page: Value| page["data"].take()) {
        Ok(Value::Array(entities)) => entities,
        _ => Vec::new(),
    }
}

/// A text as it stands in JSON, without the quotes around it.
fn written(text: &str) -> String {
    let json = Value::from(text).to_string();
    json[1..json.len() - 1].to_owned()
}

fn is_match(kind: &Kind, entity: &Value, wanted: &str) -> bool {
    let has = |value: &Value| plain(value).to_lowercase().contains(wanted);
    SEARCHED.iter().chain(kind.names).any(|field| match &entity[*field] {
        Value::Null => false,
        Value::Array(items) => items.iter().any(has),
        value => has(value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_names_an_entity_is_searched_and_a_secret_is_not() {
        let is_found = |collection, entity| is_match(kinds::of(collection).unwrap(), &entity, "wanted");
        assert!(is_found("oauth2", json!({ "name": "app", "client_id": "wanted" })));
        assert!(is_found("acls", json!({ "group": "wanted" })));
        assert!(!is_found("key-auths", json!({ "key": "wanted" })));
    }

    #[test]
    fn what_is_wanted_is_found_in_json_wherever_it_is_written() {
        for wanted in ["a", "\"quoted\"", "back\\slash", "tab\there", "ümlaut"] {
            let page = json!({ "data": [{ "name": format!("x{wanted}y") }] }).to_string();
            assert!(page.to_lowercase().contains(&written(wanted)), "{wanted}: {page}");
            assert!(
                entities(&page).iter().all(|entity| is_match(kinds::of("services").unwrap(), entity, wanted)),
                "{wanted}"
            );
        }
    }
}
