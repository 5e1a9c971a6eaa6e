//! One entity: its fields, and what belongs to it.
use super::list::{self, link};
use super::{Shown, list::expiry};
use super::{activity, references};
use crate::form::{Pairs, plain};
use crate::format::{NONE, time};
use crate::kinds::{self, Kind};
use crate::page::{Page, Visit};
use crate::schema::{Field, fields, leaves, value_at};
use crate::texts;
use crate::url::segment;
use maud::{Markup, html};
use serde_json::Value;
use std::iter;

/// How many entities that belong to one are shown, of a kind.
const MAX_CHILDREN: usize = 1_000;

pub(super) async fn page(visit: &Visit, kind: &Kind, id: &str, asked: &Pairs) -> Shown {
    let at = format!("{}/{}", kind.collection, segment(id));
    let path = kind.path(id);
    let mut entity = visit.api.get(&path).await?.body;
    if entity["id"].is_null() {
        return Ok(super::unknown(visit, &at));
    }
    references::add_names(visit, iter::once(&mut entity)).await;
    let fields = schema(visit, kind, &entity).await?;
    let children = children(visit, kind, &path).await;
    let (activity, notes) = activity::section(visit, kind, (&at, &plain(&entity["id"])), asked).await?;
    let new =
        |child: &str| visit.at(&format!("new/{child}?{}={}", kind.field, segment(&plain(&entity["id"]))));
    let content = html! {
        div.bar {
            @if activity::is_measured(kind) { a.button href="#traffic" { (texts::of("words.traffic")) } }
            a.button href=(visit.at(&format!("export/{at}"))) { (texts::of("entity.export")) }
            @if visit.read_only.is_none() {
                a.button href=(visit.at(&format!("edit/{at}"))) { (texts::of("entity.edit")) }
                a.button href=(visit.at(&format!("delete/{at}"))) { (texts::of("words.delete")) }
                @for (_, child) in kind.children.iter().filter(|(_, child)| *child != "consumers") {
                    @if let Some(child) = kinds::of(child) { a.button href=(new(child.collection)) { (texts::filled("entity.add", &[("kind", &child.one())])) } }
                }
            }
        }
        (facts(visit, &fields, &entity))
        (activity)
        @for (child, rows) in &children {
            section {
                h2 { (child.many()) }
                (list::table(visit, child, rows))
                @if rows.len() == MAX_CHILDREN { p.help { (texts::first_of_many(MAX_CHILDREN)) } }
            }
        }
    };
    let name = list::name(kind, &entity);
    let title = texts::filled("entity.title", &[("kind", &capitalised(kind.one())), ("name", &name)]);
    Ok(Page::new(kind.collection, title, content).notes(notes))
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// The fields of an entity; those of its configuration, too, if it is a plugin or a vault.
pub(super) async fn schema(
    visit: &Visit,
    kind: &Kind,
    entity: &Value,
) -> Result<Vec<Field>, crate::api::ApiError> {
    let mut all = fields(&visit.api.get(&format!("/schemas/{}", kind.schema())).await?.body);
    if !matches!(kind.collection, "plugins" | "vaults") {
        return Ok(all);
    }
    let Some(name) = entity["name"].as_str() else { return Ok(all) };
    let path = format!("/schemas/{}/{}", kind.collection, segment(name));
    let own = fields(&visit.api.get(&path).await?.body);
    for field in own {
        match all.iter_mut().find(|known| known.name == field.name) {
            Some(known) => *known = field,
            None => all.push(field),
        }
    }
    Ok(all)
}

/// What belongs to an entity, of the kinds that there are any of.
async fn children(visit: &Visit, kind: &Kind, of: &str) -> Vec<(&'static Kind, Vec<Value>)> {
    let mut found = Vec::new();
    for (path, collection) in kind.children {
        // With their health, where they have one.
        let path = if *path == "targets" { "health" } else { path };
        let mut rows = match visit.api.get(&format!("{of}/{path}?size={MAX_CHILDREN}")).await {
            Ok(answer) => answer.body["data"].as_array().cloned().unwrap_or_default(),
            Err(_) => continue,
        };
        references::add_names(visit, rows.iter_mut()).await;
        if let Some(child) = kinds::of(collection).filter(|_| !rows.is_empty()) {
            found.push((child, rows));
        }
    }
    found
}

fn facts(visit: &Visit, fields: &[Field], entity: &Value) -> Markup {
    let all: Vec<_> =
        leaves(fields).into_iter().map(|field| (field, value_at(entity, &field.path))).collect();
    let (set, unset): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, value)| !value.is_null());
    let (defaults, given): (Vec<_>, Vec<_>) =
        set.into_iter().partition(|(field, value)| field.default.as_ref() == Some(value));
    html! {
        (listed(visit, &given))
        @if !defaults.is_empty() {
            details {
                summary { (texts::filled("entity.defaults", &[("count", &defaults.len())])) }
                (listed(visit, &defaults))
            }
        }
        @if !unset.is_empty() {
            p.help { (texts::marked_up("entity.not_set", &[("fields", html! { @for (field, _) in &unset { code { (field.path) } " " } })])) }
        }
    }
}

fn listed(visit: &Visit, fields: &[(&Field, &Value)]) -> Markup {
    html! {
        dl.facts {
            @for (field, value) in fields {
                dt title=[field.description.as_ref().map(|it| it.replace('`', ""))] { (field.path) }
                dd { (shown(visit, field, value)) }
            }
        }
    }
}

fn shown(visit: &Visit, field: &Field, value: &Value) -> Markup {
    use crate::schema::Kind::{Json, Reference};
    match (&field.kind, value) {
        _ if field.is_secret && !is_reference(value) => {
            html! { span.none { (texts::of("messages.hidden")) } }
        }
        (Reference(collection), value) => match kinds::of(collection) {
            Some(kind) => link(visit, kind, value),
            None => html! { (plain(&value["id"])) },
        },
        (_, Value::Number(number)) if field.name.ends_with("_at") => {
            html! { (number.as_f64().map_or(NONE.to_owned(), |seconds| time(seconds as i64))) }
        }
        (_, value) if field.name == "not_after" => expiry(value),
        (Json, value) => html! { pre { (serde_json::to_string_pretty(value).unwrap_or_default()) } },
        (_, Value::Array(items)) => {
            html! { ul.values { @for item in items { li { code { (plain(item)) } } } } }
        }
        (_, Value::String(text)) if text.contains('\n') => html! { pre { (text) } },
        (_, value) => html! { (plain(value)) },
    }
}

/// A reference to a secret says nothing of it.
pub(super) fn is_reference(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.starts_with("{vault://"))
}
