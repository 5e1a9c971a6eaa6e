//! Tables as files in CSV, as the Admin API makes them.
use super::redirect;
use crate::form::Pairs;
use crate::page::Visit;
use crate::texts;
use crate::url::{query, segment};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};

/// The most rows of a file.
pub(super) const MAX_ROWS: &str = "1000";

/// The link to what the Admin API answers to a question about analytics.
pub(super) fn link(visit: &Visit, question: &str) -> Markup {
    html! { p.download { a href=(visit.at(&format!("csv/{question}"))) { (texts::of("csv.download_csv")) } } }
}

/// The answer to a question, as a file.
pub(super) async fn download(visit: &Visit, question: &str, asked: &Pairs) -> Response {
    let members = asked.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let members = members.filter(|(name, _)| *name != "format").chain([("format", "csv")]);
    let path = format!("/analytics/{}{}", segment(question), query(members));
    match visit.api.stream(&path).await {
        refused if refused.status() == StatusCode::UNAUTHORIZED => redirect(&visit.at("login")),
        answer => answer,
    }
}
