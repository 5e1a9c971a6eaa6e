//! The pages.
mod activity;
mod change;
mod changes;
mod charts;
mod costs;
mod csv;
mod entity;
mod errors;
mod export;
mod health;
mod list;
pub(crate) mod login;
mod nodes;
mod now;
mod overview;
mod pairs;
mod references;
mod remove;
mod request;
mod requests;
mod search;
mod traffic;
mod try_it;

use crate::api::ApiError;
use crate::form::Pairs;
use crate::kinds;
use crate::page::{Page, Visit, failed};
use crate::texts;
use crate::url::{query, segments};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::html;

/// What a page is made of, or what the Admin API did not do for it.
type Shown = Result<Page, ApiError>;

/// The page at an address.
pub(crate) async fn show(visit: &Visit, path: &str, asked: &Pairs) -> Response {
    let segments = segments(path);
    if let Some(page) = only_shown(visit, &segments) {
        return page.render(visit);
    }
    if lacks_a_segment(&segments) {
        return unknown(visit, path).render(visit);
    }
    let shown = match &*segments.iter().map(String::as_str).collect::<Vec<_>>() {
        [""] => now::page(visit, asked).await,
        ["traffic"] => traffic::page(visit, asked).await,
        ["errors"] => errors::page(visit, asked).await,
        ["changes"] => changes::page(visit, asked).await,
        ["addresses", name] => activity::address(visit, name, asked).await,
        ["node"] => overview::page(visit, overview::NODE, html! {}).await,
        ["login"] => return login::page(visit, crate::form::first(asked, "next"), None),
        ["search"] => search::page(visit, asked).await,
        ["try"] => try_it::page(visit, asked).await,
        ["plugin-costs"] => costs::page(visit, asked).await,
        ["nodes"] => nodes::page(visit).await,
        ["requests"] => requests::page(visit, asked).await,
        ["csv", table] => return csv::download(visit, table, asked).await,
        ["requests", "tail"] => return requests::tail(visit, asked).await,
        ["requests", id] => request::page(visit, id).await,
        ["new", kind] => match kinds::of(kind) {
            Some(kind) => change::create(visit, kind, asked).await,
            None => Ok(unknown(visit, path)),
        },
        [action @ ("edit" | "delete" | "export"), kind, id] => match (kinds::of(kind), *action) {
            (Some(kind), "edit") => change::edit(visit, kind, id, asked).await,
            (Some(kind), "delete") => remove::page(visit, kind, id).await,
            (Some(kind), _) => export::page(visit, kind, id).await,
            (None, _) => Ok(unknown(visit, path)),
        },
        [kind] => match kinds::of(kind) {
            Some(kind) => list::page(visit, kind, asked).await,
            None => Ok(unknown(visit, path)),
        },
        [kind, id] => match kinds::of(kind) {
            Some(kind) => entity::page(visit, kind, id, asked).await,
            None => Ok(unknown(visit, path)),
        },
        _ => Ok(unknown(visit, path)),
    };
    finish(visit, path, asked, shown)
}

/// What a form of a page does.
pub(crate) async fn submit(visit: &Visit, path: &str, asked: &Pairs, form: &Pairs) -> Response {
    let segments = segments(path);
    if let Some(page) = only_shown(visit, &segments) {
        return page.status(StatusCode::FORBIDDEN).render(visit);
    }
    if lacks_a_segment(&segments) {
        return unknown(visit, path).render(visit);
    }
    let shown = match &*segments.iter().map(String::as_str).collect::<Vec<_>>() {
        ["try"] => try_it::send(visit, form).await.map(Submitted::Page),
        ["new", kind] => match kinds::of(kind) {
            Some(kind) => change::submit(visit, kind, None, asked, form).await,
            None => Ok(Submitted::Page(unknown(visit, path))),
        },
        ["edit", kind, id] => match kinds::of(kind) {
            Some(kind) => change::submit(visit, kind, Some(id), asked, form).await,
            None => Ok(Submitted::Page(unknown(visit, path))),
        },
        ["delete", kind, id] => match kinds::of(kind) {
            Some(kind) => remove::submit(visit, kind, id, form).await,
            None => Ok(Submitted::Page(unknown(visit, path))),
        },
        _ => Ok(Submitted::Page(unknown(visit, path))),
    };
    match shown {
        Ok(Submitted::Done(address)) => redirect(&address),
        Ok(Submitted::Page(page)) => finish(visit, path, asked, Ok(page)),
        Err(error) => finish(visit, path, asked, Err(error)),
    }
}

/// Whether there is no id of an entity or a request, for which the Admin API would take the whole list.
fn lacks_a_segment(segments: &[String]) -> bool {
    segments.len() > 1 && segments.iter().any(String::is_empty)
}

/// The page in the place of one that changes an entity, for a person who may change none.
fn only_shown(visit: &Visit, segments: &[String]) -> Option<Page> {
    let [action, kind, ..] = segments else { return None };
    let is_change = matches!(action.as_str(), "new" | "edit" | "delete") && kinds::of(kind).is_some();
    let why = visit.read_only.filter(|_| is_change)?;
    Some(Page::new("", texts::of("pages.read_only"), html! { p { (why) } }))
}

/// What comes of a form.
enum Submitted {
    /// The browser is sent on, to this address.
    Done(String),
    Page(Page),
}

fn finish(visit: &Visit, path: &str, asked: &Pairs, shown: Shown) -> Response {
    match shown {
        Ok(page) => page.render(visit),
        Err(error) if error.status == StatusCode::UNAUTHORIZED => {
            let members = asked.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let next = format!("{path}{}", query(members));
            redirect(&visit.at(&format!("login{}", query([("next", next.as_str())]))))
        }
        Err(error) => failed(visit, &error),
    }
}

/// Sends the browser to another page.
pub(crate) fn redirect(address: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    if let Ok(address) = HeaderValue::from_str(address) {
        response.headers_mut().insert(header::LOCATION, address);
    }
    response
}

fn unknown(visit: &Visit, path: &str) -> Page {
    let content = html! {
        p { (texts::marked_up("pages.no_page", &[("path", html! { code { (path) } })])) }
        p { a href=(visit.at("")) { (texts::of("pages.to_the_overview")) } }
    };
    Page::new("", texts::of("words.not_found"), content).status(StatusCode::NOT_FOUND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Api;
    use crate::page::{Drafts, Theme};
    use axum::Router;
    use axum::http::Request;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[tokio::test]
    async fn an_address_without_an_id_is_no_page_and_no_form() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let admin = Router::new().fallback(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            async { "{}" }
        });
        let (parts, ()) = Request::new(()).into_parts();
        let visit = Visit {
            api: Api::of(&admin, &parts, None),
            root: String::new(),
            address: String::new(),
            form_token: String::new(),
            read_only: None,
            drafts: Arc::new(Drafts::new(Duration::from_secs(1), 1)),
            cpu_usage: Arc::default(),
            is_logged_in: false,
            theme: Theme::System,
        };
        let nothing = Pairs::new();
        for path in ["edit/services/", "delete/services/", "delete//a", "new/"] {
            let shown = show(&visit, path, &nothing).await;
            let submitted = submit(&visit, path, &nothing, &nothing).await;
            assert_eq!((shown.status(), submitted.status()), (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND));
        }
        assert_eq!(asked.load(Ordering::Relaxed), 0, "the Admin API is not asked");
    }
}
