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
use serde::Deserialize;
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};

/// The rows of a page, unless the address says otherwise.
const DEFAULT_SIZE: usize = 100;

/// The most rows of a page.
const MAX_SIZE: usize = 1_000;

/// The most entities that the Admin API lists at once.
const MAX_LISTED: usize = 1_000;

/// Which part of a collection the address asks for.
struct Asked<'a> {
    size: usize,
    /// The number of the page, as far as it is known.
    page: Option<usize>,
    /// Where the page before left off.
    offset: &'a str,
    tags: &'a str,
}

impl<'a> Asked<'a> {
    fn read(asked: &'a Pairs, notes: &mut Vec<String>) -> Asked<'a> {
        let [size, page] = ["size", "page"].map(|name| first(asked, name));
        let number = |name, given: &str, most| match given.parse() {
            Ok(number) if (1..=most).contains(&number) => (Some(number), None),
            _ => (None, Some(texts::overlooked(name, given)).filter(|_| !given.is_empty())),
        };
        let ((size, of_size), (page, of_page)) =
            (number("size", size, MAX_SIZE), number("page", page, usize::MAX / MAX_SIZE));
        notes.extend(of_size.into_iter().chain(of_page));
        let (offset, tags) = (first(asked, "offset"), first(asked, "tags"));
        let page = page.or(offset.is_empty().then_some(1));
        Asked { size: size.unwrap_or(DEFAULT_SIZE), page, offset, tags }
    }

    /// The address of a page of the list.
    fn address(&self, kind: &Kind, (page, offset): (Option<usize>, &str)) -> String {
        let page = page.filter(|page| *page > 1).map(|page| page.to_string()).unwrap_or_default();
        let size = Some(self.size).filter(|size| *size != DEFAULT_SIZE).map(|size| size.to_string());
        let size = size.unwrap_or_default();
        let members = [("size", &*size), ("tags", self.tags), ("page", &*page), ("offset", offset)];
        format!("{}{}", kind.collection, query(members))
    }

    /// What the Admin API has from an offset on.
    fn question(&self, kind: &Kind, size: usize, offset: &str) -> String {
        let size = size.to_string();
        format!("/{}{}", kind.collection, query([("size", &*size), ("offset", offset), ("tags", self.tags)]))
    }

    /// Where the page begins; none if the list ends before.
    async fn begin(&self, visit: &Visit, kind: &Kind) -> Result<Option<String>, ApiError> {
        let mut offset = self.offset.to_owned();
        let pages = self.page.filter(|_| offset.is_empty()).map_or(0, |page| page - 1);
        let mut left = pages * self.size;
        while left > 0 {
            let size = left.min(MAX_LISTED);
            let text = visit.api.get_text(&self.question(kind, size, &offset)).await?;
            let Some(next) = next_offset(&text) else { return Ok(None) };
            (offset, left) = (next, left - size);
        }
        Ok(Some(offset))
    }
}

/// Where a page of a collection leaves off, if more follows; to read the rest of it takes longer.
pub(super) fn next_offset(page: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Next {
        offset: Option<String>,
    }
    serde_json::from_str::<Next>(page).ok()?.offset
}

pub(super) async fn page(visit: &Visit, kind: &Kind, given: &Pairs) -> Shown {
    let mut notes = Vec::new();
    let mut asked = Asked::read(given, &mut notes);
    let begin = asked.begin(visit, kind).await?.unwrap_or_else(|| {
        notes.push(texts::overlooked("page", first(given, "page")));
        asked.page = Some(1);
        String::new()
    });
    let found = match visit.api.get(&asked.question(kind, asked.size, &begin)).await {
        // An offset of another time or place: begin anew.
        Err(error) if error.status == 400 && !asked.offset.is_empty() => {
            notes.push(texts::overlooked("offset", asked.offset));
            (asked.page, asked.offset) = (Some(1), "");
            visit.api.get(&asked.question(kind, asked.size, "")).await
        }
        found => found,
    };
    let mut found = found?.body;
    references::add_names(visit, rows_of(&mut found)).await;
    let command = first_command(visit, kind, &found).await?;
    Ok(render(visit, kind, &asked, (&found, command), notes))
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
    asked: &Asked<'_>,
    (found, command): (&Value, Option<String>),
    notes: Vec<String>,
) -> Page {
    let rows = found["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    let content = html! {
        p.about { (kind.about()) }
        div.bar {
            @if let Some(why) = visit.read_only { p.help { (why) } } @else {
                a.button href=(visit.at(&format!("new/{}", kind.collection))) { (texts::filled("list.new", &[("kind", &kind.one())])) }
            }
            form.filter action=(visit.at(kind.collection)) {
                label for="tags" { (texts::of("list.tags")) }
                input id="tags" name="tags" value=(asked.tags) placeholder=(texts::of("list.ab_or_a_b"));
                button { (texts::of("words.filter")) }
            }
        }
        @match rows.is_empty() {
            true => (empty(visit, kind, asked.tags, command)),
            false => (table(visit, kind, rows)),
        }
        (pages(visit, kind, asked, found["offset"].as_str()))
    };
    Page::new(kind.collection, kind.many(), content).notes(notes)
}

/// The way to other pages of a list that has any.
fn pages(visit: &Visit, kind: &Kind, asked: &Asked<'_>, next: Option<&str>) -> Markup {
    let link = |page, offset: &str| visit.at(&asked.address(kind, (page, offset)));
    let before = asked.page.filter(|page| *page > 1).map(|page| page - 1);
    html! {
        @if next.is_some() || asked.page != Some(1) {
            nav.bar aria-label=(texts::of("traffic.pages")) {
                @if let Some(before) = before { a.button rel="prev" href=(link(Some(before), "")) { (texts::of("list.previous_page")) } }
                form.jump action=(visit.at(kind.collection)) {
                    @for (name, value) in [("size", asked.size.to_string()), ("tags", asked.tags.to_owned())] {
                        input type="hidden" name=(name) value=(value);
                    }
                    label for="page" { (texts::of("list.page")) }
                    input id="page" type="number" name="page" min="1" value=[asked.page];
                    button { (texts::of("list.go")) }
                }
                @if let Some(next) = next {
                    a.button rel="next" href=(link(asked.page.map(|page| page + 1), next)) { (texts::of("list.next_page")) }
                }
            }
        }
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
