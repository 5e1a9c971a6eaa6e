//! A collection as a table.
use super::{Shown, health, overview, references};
use crate::api::ApiError;
use crate::form::{Pairs, first, plain};
use crate::format::{NONE, duration, time};
use crate::kinds::Kind;
use crate::page::{Page, Visit};
use crate::texts;
use crate::url::{query, segment};
use maud::{Markup, html};
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};

/// The rows of a page, unless the address says otherwise.
const DEFAULT_SIZE: usize = 100;

/// The most rows of a page.
const MAX_SIZE: usize = 1_000;

pub(super) async fn page(visit: &Visit, kind: &Kind, asked: &Pairs) -> Shown {
    let (size, notes) = size(asked);
    let (offset, tags) = (first(asked, "offset"), first(asked, "tags"));
    let rows = size.to_string();
    let path =
        format!("/{}{}", kind.collection, query([("size", &*rows), ("offset", offset), ("tags", tags)]));
    let mut found = match visit.api.get(&path).await {
        // An offset of another time or place: begin anew.
        Err(error) if error.status == 400 && !offset.is_empty() => {
            let path = format!("/{}{}", kind.collection, query([("size", &*rows), ("tags", tags)]));
            let note = texts::overlooked("offset", offset);
            let mut found = visit.api.get(&path).await?.body;
            references::add_names(visit, rows_of(&mut found)).await;
            return Ok(render(visit, kind, asked, (&found, None), vec![note]));
        }
        found => found?.body,
    };
    references::add_names(visit, rows_of(&mut found)).await;
    let command = first_command(visit, kind, &found).await?;
    Ok(render(visit, kind, asked, (&found, command), notes))
}

/// The command that makes the first entity of a kind, where the list is empty and the person may make one.
async fn first_command(visit: &Visit, kind: &Kind, found: &Value) -> Result<Option<String>, ApiError> {
    let has_any = found["data"].as_array().is_some_and(|rows| !rows.is_empty());
    if has_any || kind.example.is_empty() || visit.read_only.is_some() {
        return Ok(None);
    }
    let admin_api = overview::admin_api(&visit.api.get("/").await?.body);
    Ok(Some(format!("curl -X POST {admin_api}/{}", kind.example)))
}

fn rows_of(answer: &mut Value) -> impl Iterator<Item = &mut Value> {
    answer["data"].as_array_mut().into_iter().flatten()
}

fn render(
    visit: &Visit,
    kind: &Kind,
    asked: &Pairs,
    (found, command): (&Value, Option<String>),
    notes: Vec<String>,
) -> Page {
    let rows = found["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    let (size, tags) = (first(asked, "size"), first(asked, "tags"));
    let next = found["offset"].as_str();
    let content = html! {
        p.about { (kind.about()) }
        div.bar {
            @if let Some(why) = visit.read_only { p.help { (why) } } @else {
                a.button href=(visit.at(&format!("new/{}", kind.collection))) { (texts::filled("list.new", &[("kind", &kind.one())])) }
            }
            form.filter action=(visit.at(kind.collection)) {
                label for="tags" { (texts::of("list.tags")) }
                input id="tags" name="tags" value=(tags) placeholder=(texts::of("list.ab_or_a_b"));
                button { (texts::of("words.filter")) }
            }
        }
        @match rows.is_empty() {
            true => (empty(visit, kind, tags, command)),
            false => (table(visit, kind, rows)),
        }
        @if let Some(next) = next {
            a.button rel="next" href=(format!("{}{}", visit.at(kind.collection), query([("size", size), ("tags", tags), ("offset", next)]))) { (texts::of("list.next_page")) }
        }
    };
    Page::new(kind.collection, kind.many(), content).notes(notes)
}

fn size(asked: &Pairs) -> (usize, Vec<String>) {
    match first(asked, "size") {
        "" => (DEFAULT_SIZE, Vec::new()),
        given => match given.parse() {
            Ok(size @ 1..=MAX_SIZE) => (size, Vec::new()),
            _ => (DEFAULT_SIZE, vec![texts::overlooked("size", given)]),
        },
    }
}

fn empty(visit: &Visit, kind: &Kind, tags: &str, command: Option<String>) -> Markup {
    html! {
        div.empty {
            @if tags.is_empty() {
                p { (texts::none_yet(kind.one())) }
                @if let Some(command) = command { pre.copyable { (command) } }
            } @else {
                p { (texts::of("list.nothing_has_these_tags")) " " a href=(visit.at(kind.collection)) { (texts::of("words.show_all")) } }
            }
        }
    }
}

/// Entities of a kind as a table; each row leads to its page.
pub(super) fn table(visit: &Visit, kind: &Kind, rows: &[Value]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(kind.many()) {
            table {
                caption.unseen { (kind.many()) }
                thead { tr { th scope="col" { (texts::of("words.name")) } @for column in kind.columns { th scope="col" { (title(column)) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            th scope="row" { (link(visit, kind, row)) }
                            @for column in kind.columns { td { (cell(visit, column, &row[column])) } }
                        }
                    }
                }
            }
        }
    }
}

/// A link to an entity, with its name.
pub(super) fn link(visit: &Visit, kind: &Kind, entity: &Value) -> Markup {
    let at = format!("{}/{}", kind.collection, segment(&kind.id(entity)));
    html! { a href=(visit.at(&at)) { (name(kind, entity)) } }
}

/// What people call an entity.
pub(super) fn name(kind: &Kind, entity: &Value) -> String {
    let shown = |field: &str| match &entity[field] {
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        value => plain(value),
    };
    let named = kind.names.iter().map(|field| shown(field)).find(|text| !text.is_empty());
    named.unwrap_or_else(|| plain(&entity["id"]))
}

fn title(column: &str) -> String {
    match column {
        "name" => texts::of("list.type").to_owned(),
        "not_after" => texts::of("list.valid_until").to_owned(),
        other => other.replace('_', " "),
    }
}

fn cell(visit: &Visit, column: &str, value: &Value) -> Markup {
    match (column, value) {
        (_, Value::Null) => html! { span.none { (NONE) } },
        ("not_after", value) => expiry(value),
        ("health", value) => health::state(value),
        (_, Value::Bool(on)) => html! { (texts::of(if *on { "list.yes" } else { "list.no" })) },
        (_, Value::Object(members)) if members.contains_key("id") => referred(visit, column, value),
        (_, Value::Array(items)) => html! {
            ul.values { @for item in items { li { code { (plain(item)) } } } }
        },
        (_, value) => html! { (plain(value)) },
    }
}

/// A link to the entity that a field refers to.
fn referred(visit: &Visit, column: &str, value: &Value) -> Markup {
    let id = plain(&value["id"]);
    match references::kind_of(column) {
        Some(kind) => {
            let known = name(kind, value);
            let shown = if known == id { id.chars().take(8).collect() } else { known };
            html! { a href=(visit.at(&format!("{}/{}", kind.collection, segment(&id)))) { bdi { (shown) } } }
        }
        None => html! { (id) },
    }
}

/// When a certificate ends, and how soon that is.
pub(super) fn expiry(value: &Value) -> Markup {
    let Some(end) = value.as_i64() else { return html! { (plain(value)) } };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let left = end - now;
    html! {
        time.soon[left < 30 * 86_400] { (time(end)) }
        " " @if left < 0 { strong.error { (texts::of("list.expired")) } } @else { (texts::filled("list.in", &[("duration", &duration(left))])) }
    }
}
