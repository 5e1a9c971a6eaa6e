//! Deleting an entity, which asks for its name.
use super::list;
use super::{Shown, Submitted};
use crate::api::ApiError;
use crate::form::{Pairs, first};
use crate::kinds::Kind;
use crate::page::{Page, Visit};
use crate::texts;
use crate::url::segment;
use axum::http::Method;
use maud::html;
use serde_json::Value;

pub(super) async fn page(visit: &Visit, kind: &'static Kind, id: &str) -> Shown {
    let answer = visit.api.get(&kind.path(id)).await?;
    Ok(ask(visit, kind, id, &answer.body, answer.etag.as_deref().unwrap_or_default(), Vec::new()))
}

pub(super) async fn submit(
    visit: &Visit,
    kind: &'static Kind,
    id: &str,
    form: &Pairs,
) -> Result<Submitted, ApiError> {
    let answer = visit.api.get(&kind.path(id)).await?;
    let expected = list::name(kind, &answer.body);
    let etag = answer.etag.as_deref().unwrap_or_default();
    let note = match (first(form, "name") == expected, first(form, "etag") == etag) {
        (true, true) => {
            visit
                .api
                .send(Method::DELETE, &kind.path(id), None, Some(etag).filter(|etag| !etag.is_empty()))
                .await?;
            return Ok(Submitted::Done(visit.at(kind.collection)));
        }
        (false, _) => texts::filled("remove.wrong_name", &[("name", &expected)]),
        (true, false) => texts::of("remove.somebody_has_changed_it_since").to_owned(),
    };
    Ok(Submitted::Page(ask(visit, kind, id, &answer.body, etag, vec![note])))
}

fn ask(visit: &Visit, kind: &'static Kind, id: &str, entity: &Value, etag: &str, notes: Vec<String>) -> Page {
    let name = list::name(kind, entity);
    let content = html! {
        p { (texts::marked_up("remove.about", &[("kind", html! { (kind.one()) }), ("name", html! { strong { (name) } })])) }
        @if !kind.children.is_empty() { p { (texts::of("remove.what_belongs_to_it_alone")) } }
        form.card method="post" action=(visit.at(&format!("delete/{}/{}", kind.collection, segment(id)))) {
            (visit.proof())
            input type="hidden" name="etag" value=(etag);
            div.field {
                label for="name" { (texts::marked_up("remove.confirm", &[("name", html! { code { (name) } })])) }
                input id="name" name="name" required autocomplete="off";
            }
            div.bar {
                button.danger { (texts::of("words.delete")) }
                a.button href=(visit.at(&format!("{}/{}", kind.collection, segment(id)))) { (texts::of("words.back")) }
            }
        }
    };
    let title = texts::filled("remove.title", &[("kind", &kind.one()), ("name", &name)]);
    Page::new(kind.collection, title, content).notes(notes)
}
