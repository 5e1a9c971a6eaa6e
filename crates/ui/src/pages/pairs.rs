//! The requests of one consumer by route, or of one route by consumer.
use super::csv;
use super::traffic::{Lines, short_table};
use crate::api::ApiError;
use crate::format::count;
use crate::history::History;
use crate::page::Visit;
use crate::texts;
use crate::url::Address;
use maud::{Markup, html};

/// The rows that are shown.
const MAX_ROWS: usize = 20;

/// The part of the page of a consumer or a route, which the kind and the id name; nothing of other kinds.
pub(super) async fn section(
    visit: &Visit,
    history: &History<'_>,
    (kind, id): (&'static str, &str),
) -> Result<Markup, ApiError> {
    let (by, title) = match kind {
        "consumer" => ("route", "pairs.routes"),
        "route" => ("consumer", "pairs.consumers"),
        _ => return Ok(html! {}),
    };
    let top = history.top(by, "requests", MAX_ROWS, Some((kind, id))).await?;
    if top.rows.is_empty() && top.missing == 0 {
        return Ok(html! {});
    }
    let Some(lines) = Lines::within(by, history.frame, &top, (kind, id)) else { return Ok(html! {}) };
    let all = Address::new("top").with("by", by).with(kind, id).with("limit", csv::MAX_ROWS);
    Ok(html! {
        h3 { (texts::of(title)) }
        (short_table(visit, &lines, ("pairs", texts::of(title)), &top.rows))
        @if top.total > top.rows.len() { p.help { (texts::first_of_many(top.rows.len())) } }
        @if top.missing > 0 { p.help { (texts::filled("pairs.missing", &[("count", &count(top.missing))])) } }
        (csv::link(visit, &history.frame.in_seconds(all).to_string()))
    })
}
