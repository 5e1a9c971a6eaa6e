//! Requests that were sampled, newest first, and live with script.
use super::{Shown, csv};
use crate::api::ApiError;
use crate::form::{Pairs, first, plain};
use crate::format::{NONE, micros, time};
use crate::page::{Page, Visit};
use crate::texts;
use crate::url::{query, segment};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value;

/// What requests can be filtered by: the name of the argument, and its label.
const FILTERS: [(&str, &str, &str); 11] = [
    ("path", "requests.path_begins_with", "/orders"),
    ("method", "words.method", "GET"),
    ("status", "words.status", "502"),
    ("class", "requests.class", "5xx"),
    ("min_latency", "requests.slower_than", "250ms"),
    ("origin", "words.decided_by", "upstream"),
    ("cause", "words.cause", "timeout"),
    ("route", "words.route", ""),
    ("service", "words.service", ""),
    ("consumer", "words.consumer", ""),
    ("upstream", "words.upstream", "10.0.0.1:80"),
];

/// Arguments that links have beside the filters.
const FRAME: [&str; 2] = ["from", "to"];

/// The rows of a page.
const ROWS: &str = "100";

/// The requests in a second that a page takes: more can be neither read nor drawn in time.
const MAX_PER_SECOND: &str = "40";

pub(super) async fn page(visit: &Visit, asked: &Pairs) -> Shown {
    let (mut notes, cursor) = (Vec::new(), first(asked, "cursor"));
    let mut answer = list(visit, filters(asked).chain([("cursor", cursor)])).await;
    if let Err(error) = &answer
        && error.status == StatusCode::BAD_REQUEST
    {
        notes.push(texts::filled("requests.all_are_shown", &[("problem", &error.message())]));
        answer = list(visit, []).await;
    }
    let content = match answer {
        Ok(answer) => html! { (form(visit, asked)) (content(visit, asked, &answer, !notes.is_empty())) },
        Err(error) if error.status == StatusCode::NOT_FOUND => {
            html! { (form(visit, asked)) div.empty { p { (error.message()) } } }
        }
        Err(error) => return Err(error),
    };
    Ok(Page::new("requests", texts::of("words.requests"), content).notes(notes))
}

/// Requests as they end, as the Admin API sends them.
pub(super) async fn tail(visit: &Visit, asked: &Pairs) -> Response {
    let arguments = filters(asked).filter(|(name, _)| !FRAME.contains(name));
    let arguments = arguments.chain([("after", first(asked, "after")), ("max_per_second", MAX_PER_SECOND)]);
    visit.api.stream(&format!("/analytics/requests/tail{}", query(arguments))).await
}

/// The arguments that are filters, with their values.
fn filters(asked: &Pairs) -> impl Iterator<Item = (&str, &str)> {
    let names = FILTERS.into_iter().map(|(name, ..)| name).chain(FRAME);
    names.map(|name| (name, first(asked, name).trim()))
}

async fn list<'a>(
    visit: &Visit,
    arguments: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Value, ApiError> {
    let arguments = query(arguments.into_iter().chain([("limit", ROWS)]));
    Ok(visit.api.get(&format!("/analytics/requests{arguments}")).await?.body)
}

fn form(visit: &Visit, asked: &Pairs) -> Markup {
    html! {
        p.about { (texts::of("requests.about")) " " a href=(visit.at("requests")) { (texts::of("words.show_all")) } }
        form.filters action=(visit.at("requests")) {
            @for (name, label, example) in FILTERS {
                div {
                    label for={ "filter-" (name) } { (texts::of(label)) }
                    input id={ "filter-" (name) } name=(name) value=(first(asked, name)) placeholder=(example) autocomplete="off";
                }
            }
            @for name in FRAME {
                @let value = first(asked, name);
                @if !value.is_empty() { input type="hidden" name=(name) value=(value); }
            }
            button.primary { (texts::of("words.filter")) }
        }
    }
}

fn content(visit: &Visit, asked: &Pairs, answer: &Value, is_unfiltered: bool) -> Markup {
    let rows = answer["data"].as_array().map_or(&[][..], Vec::as_slice);
    let kept: Vec<_> = filters(asked).filter(|_| !is_unfiltered).collect();
    let is_newest = first(asked, "cursor").is_empty() && first(asked, "to").is_empty();
    let newest = plain(&answer["newest"]);
    let arrivals = kept.iter().copied().filter(|(name, _)| !FRAME.contains(name));
    let tail = query(arrivals.chain([("after", newest.as_str())]));
    let older = answer["next"].as_str().map(|next| query(kept.iter().copied().chain([("cursor", next)])));
    let table = query(kept.iter().copied().chain([("limit", csv::MAX_ROWS)]));
    html! {
        @if is_newest {
            div.bar.live hidden data-tail=(visit.at(&format!("requests/tail{tail}"))) {
                button type="button" data-pause aria-pressed="false" { (texts::of("requests.pause")) }
                button.primary type="button" data-resume hidden {}
                span role="status" data-state {}
                span.help data-counts {}
            }
        }
        div.scroll tabindex="0" role="region" aria-label=(texts::of("words.requests")) {
            table.requests {
                caption.unseen { (texts::of("requests.requests_newest_first_times_in")) }
                thead { tr {
                    th.when scope="col" { (texts::of("requests.time_utc")) } th.verb scope="col" { (texts::of("words.method")) } th scope="col" { (texts::of("requests.path")) }
                    th.code scope="col" { (texts::of("words.status")) } th.number.took scope="col" { (texts::of("words.total")) } th.by scope="col" { (texts::of("words.decided_by")) } th.of scope="col" { (texts::of("words.route")) }
                    th.of scope="col" { (texts::of("words.consumer")) } th.address scope="col" { (texts::of("words.upstream")) }
                    th.number.took scope="col" { (texts::of("words.gateway")) }
                } }
                tbody data-rows { @for request in rows { (row(visit, request)) } }
            }
        }
        @if is_newest { template data-row { (row(visit, &Value::Null)) } }
        @if rows.is_empty() {
            div.empty data-empty { p { (texts::of("requests.no_request_is_kept_that")) } }
        }
        @if !rows.is_empty() { (csv::link(visit, &format!("requests{table}"))) }
        @if let Some(older) = older { p { a href=(format!("{}{older}", visit.at("requests"))) { (texts::of("requests.older_requests")) } } }
    }
}

/// A row. Script fills copies of an empty one, by `data-field`.
fn row(visit: &Visit, request: &Value) -> Markup {
    let id = plain(&request["id"]);
    let took = |phase: &str| request["us"][phase].as_f64().map_or(String::new(), micros);
    html! {
        tr class=(class(request)) {
            td.when { time data-field="at" { (request["at"].as_f64().map_or(String::new(), clock)) } }
            td.verb data-field="method" { (plain(&request["method"])) }
            th scope="row" {
                // The row that script copies has no request yet.
                @let base = visit.at("requests/");
                a href=(if id.is_empty() { visit.at("requests") } else { format!("{base}{}", segment(&id)) })
                    data-base=[id.is_empty().then_some(&base)] title=(plain(&request["path"])) {
                    bdi data-field="path" { (plain(&request["path"])) }
                }
            }
            td.code data-field="status" { (plain(&request["status"])) }
            td.number.took data-field="total" { (took("total")) }
            td data-field="decided" title=(decided(request)) { (decided(request)) }
            td data-field="route" data-base=(visit.at("routes/")) { (entity(visit, "routes", &request["route"])) }
            td data-field="consumer" data-base=(visit.at("consumers/")) { (entity(visit, "consumers", &request["consumer"])) }
            td data-field="upstream" { (request["upstream"].as_str().unwrap_or(NONE)) }
            td.number.took data-field="gateway" { (took("gateway")) }
        }
    }
}

/// Whether the row is an error, for its colour.
fn class(request: &Value) -> &'static str {
    match request["reason"].as_str() {
        Some("error") => "failed",
        _ => "",
    }
}

/// Who decided the outcome, and why.
pub(super) fn decided(request: &Value) -> String {
    let (origin, cause) = (plain(&request["origin"]), plain(&request["cause"]));
    if cause.is_empty() { origin } else { format!("{origin}: {cause}") }
}

/// A link to an entity, which may be gone.
pub(super) fn entity(visit: &Visit, collection: &str, entity: &Value) -> Markup {
    let id = plain(&entity["id"]);
    let name = Some(plain(&entity["name"])).filter(|name| !name.is_empty()).unwrap_or_else(|| id.clone());
    html! {
        @match id.is_empty() {
            true => span.none { (NONE) },
            false => a href=(format!("{}{}", visit.at(&format!("{collection}/")), segment(&id))) { bdi { (name) } },
        }
    }
}

/// The time of a day, with milliseconds.
fn clock(at: f64) -> String {
    let (seconds, millis) = ((at * 1_000.0) as i64 / 1_000, (at * 1_000.0) as i64 % 1_000);
    format!("{}.{millis:03}", &time(seconds)[11..19])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_says_when_and_by_whom() {
        assert_eq!(clock(1_795_457_084.25), "18:04:44.250");
        assert_eq!(
            decided(&json!({ "origin": "gateway", "cause": "plugin key-auth" })),
            "gateway: plugin key-auth"
        );
        assert_eq!(decided(&Value::Null), "");
    }
}
