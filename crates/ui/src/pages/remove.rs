//! Deleting an entity, which asks for its name.
use super::list;
use super::{Shown, Submitted};
use crate::api::ApiError;
use crate::form::{Pairs, first};
use crate::kinds::Kind;
use crate::page::{Page, Visit};
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
        (false, _) => format!("This is not its name, so it is still there. Its name is {expected}."),
        (true, false) => "Somebody has changed it since you loaded this page. Look at it again.".to_owned(),
    };
    Ok(Submitted::Page(ask(visit, kind, id, &answer.body, etag, vec![note])))
}

fn ask(visit: &Visit, kind: &'static Kind, id: &str, entity: &Value, etag: &str, notes: Vec<String>) -> Page {
    let name = list::name(kind, entity);
    let content = html! {
        p { "This removes the " (kind.one) " " strong { (name) } " for good." }
        @if !kind.children.is_empty() { p { "What belongs to it alone goes too, or keeps it from being removed." } }
        form.card method="post" action=(visit.at(&format!("delete/{}/{}", kind.collection, segment(id)))) {
            (visit.proof())
            input type="hidden" name="etag" value=(etag);
            div.field {
                label for="name" { "Write its name to confirm: " code { (name) } }
                input id="name" name="name" required autocomplete="off";
            }
            div.bar {
                button.danger { "Delete" }
                a.button href=(visit.at(&format!("{}/{}", kind.collection, segment(id)))) { "Back" }
            }
        }
    };
    Page::new(kind.collection, format!("Delete {} {name}", kind.one), content).notes(notes)
}
