//! Entities by a part of their name, path, host, id or tags.
use super::{Shown, list, references};
use crate::api::{Api, ApiError};
use crate::form::{Pairs, first, plain};
use crate::kinds::{self, Kind};
use crate::page::{Page, Visit};
use crate::texts;
use crate::url::segment;
use maud::{Markup, html};
use serde_json::Value;

/// How many are shown of a kind.
const MAX_SHOWN: usize = 50;

/// How many are looked through at once.
const PAGE: usize = 100;

/// How many pages of a kind are looked through.
const MAX_PAGES: usize = 100;

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

/// What is found of a kind.
struct Found {
    rows: Vec<Value>,
    /// There are entities that were not looked through.
    is_cut: bool,
}

pub(super) async fn page(visit: &Visit, asked: &Pairs) -> Shown {
    let typed = first(asked, "q").trim();
    let wanted = typed.to_lowercase();
    let mut found = Vec::new();
    if !wanted.is_empty() {
        for kind in kinds::with_lists() {
            let mut of_kind = matching(&visit.api, kind, typed).await?;
            if !of_kind.rows.is_empty() || of_kind.is_cut {
                references::add_names(visit, of_kind.rows.iter_mut().take(MAX_SHOWN)).await;
                found.push((kind, of_kind));
            }
        }
    }
    let is_nothing = found.iter().all(|(_, of_kind)| of_kind.rows.is_empty());
    let content = html! {
        @if is_nothing { div.empty { p { (texts::filled("search.nothing", &[("wanted", &wanted)])) } } }
        @for (kind, of_kind) in &found { (section(visit, kind, of_kind)) }
    };
    Ok(Page::new("search", texts::filled("search.title", &[("wanted", &wanted)]), content))
}

fn section(visit: &Visit, kind: &Kind, Found { rows, is_cut }: &Found) -> Markup {
    let searched = crate::format::count((MAX_PAGES * PAGE) as u64);
    html! {
        section {
            h2 { (kind.many()) }
            @if !rows.is_empty() { (list::table(visit, kind, &rows[..rows.len().min(MAX_SHOWN)])) }
            @if rows.len() > MAX_SHOWN { p.help { (texts::filled("search.more", &[("count", &MAX_SHOWN)])) } }
            @if *is_cut { p.help { (texts::filled("search.cut", &[("count", &searched)])) } }
        }
    }
}

/// The first entities of a kind that have the text in a field that is searched, and one more than is shown if there are.
async fn matching(api: &Api, kind: &Kind, typed: &str) -> Result<Found, ApiError> {
    let wanted = typed.to_lowercase();
    let written = written(&wanted);
    let (mut rows, mut offset, size) = (Vec::new(), String::new(), PAGE.to_string());
    for _ in 0..MAX_PAGES {
        let page = crate::url::query([("size", &*size), ("offset", &*offset)]);
        let text = api.get_text(&format!("/{}{page}", kind.collection)).await?;
        if text.to_lowercase().contains(&written) {
            rows.extend(entities(&text).into_iter().filter(|entity| is_match(kind, entity, &wanted)));
        }
        match list::next_offset(&text) {
            Some(next) if rows.len() <= MAX_SHOWN => offset = next,
            _ => return Ok(Found { rows, is_cut: false }),
        }
    }
    // Among those that were not looked through, the Admin API knows one by its whole name or id.
    if let Ok(answer) = api.get(&format!("/{}/{}", kind.collection, segment(typed))).await {
        let is_known = rows.iter().any(|row| row["id"] == answer.body["id"]);
        rows.extend(Some(answer.body).filter(|named| !is_known && is_match(kind, named, &wanted)));
    }
    Ok(Found { rows, is_cut: true })
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
    use axum::Router;
    use axum::http::{Request, Uri};
    use serde_json::json;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn an_endless_collection_is_looked_through_in_part_and_by_name() {
        let pages = Arc::new(AtomicUsize::new(0));
        let counted = pages.clone();
        let admin = Router::new().fallback(move |uri: Uri| {
            let body = match uri.path() {
                "/consumers" => {
                    let number = counted.fetch_add(1, Ordering::Relaxed);
                    let name = if number == 50 { "An-Ant" } else { "bee" };
                    json!({ "data": [{ "id": number, "username": name }], "offset": "next" })
                }
                "/consumers/Ant" => json!({ "id": 7000, "username": "Ant" }),
                "/consumers/An-Ant" => json!({ "id": 50, "username": "An-Ant" }),
                _ => json!({ "id": 7001, "username": "other" }),
            };
            async move { body.to_string() }
        });
        let (parts, ()) = Request::new(()).into_parts();
        let (api, consumers) = (Api::of(&admin, &parts, None), kinds::of("consumers").unwrap());
        for (typed, expected) in [("Ant", &["An-Ant", "Ant"][..]), ("An-Ant", &["An-Ant"]), ("wasp", &[])] {
            pages.store(0, Ordering::Relaxed);
            let Found { rows, is_cut } = matching(&api, consumers, typed).await.unwrap();
            let names: Vec<_> = rows.iter().map(|row| row["username"].as_str().unwrap()).collect();
            assert_eq!((names.as_slice(), is_cut), (expected, true), "{typed}");
            assert_eq!(pages.load(Ordering::Relaxed), MAX_PAGES, "{typed}");
        }
        let Found { rows, is_cut } = matching(&api, consumers, "bee").await.unwrap();
        assert_eq!((rows.len(), is_cut), (MAX_SHOWN + 1, false));
    }

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
