//! What each plugin costs.
use super::Shown;
use crate::api::ApiError;
use crate::form::{Pairs, first, plain};
use crate::format::{NONE, count, micros};
use crate::page::{Page, Visit};
use crate::texts;
use crate::url::query;
use axum::http::StatusCode;
use maud::{Markup, html};
use serde_json::Value;

/// The columns that the table can be sorted by, with the field, the heading and what explains each.
const COLUMNS: [(&str, &str, &str); 6] = [
    ("us_mean", "costs.mean_per_call", "costs.about_times"),
    ("us_p99", "costs.p99", "costs.about_times"),
    ("calls", "costs.calls", "costs.about_calls"),
    ("answers", "costs.answers", "costs.about_answers"),
    ("errors", "words.errors", "costs.about_errors"),
    ("us_waited_mean", "costs.mean_wait", "costs.about_times"),
];

pub(super) async fn page(visit: &Visit, asked: &Pairs) -> Shown {
    let mut body = visit.api.get("/plugins/costs").await?.body;
    let given = first(asked, "sort");
    let known = COLUMNS.iter().find(|(field, ..)| *field == given);
    let notes = match (given, known) {
        ("", _) | (_, Some(_)) => Vec::new(),
        (given, None) => vec![texts::overlooked("sort", given)],
    };
    let sorted_by = known.map_or("us_mean", |(field, ..)| field);
    let is_off = body["sampling"] == 0;
    let mut rows = match body["data"].take() {
        Value::Array(rows) => rows,
        _ => Vec::new(),
    };
    rows.sort_by(|a, b| figure(b, sorted_by).total_cmp(&figure(a, sorted_by)));
    let content = html! {
        p.about { (texts::of("costs.time_that_each_plugin_takes")) }
        @match rows.is_empty() {
            true => div.empty { p { (texts::of(if is_off { "costs.nothing_is_measured" } else { "costs.no_plugin_has_run_yet" })) } },
            false => (table(visit, &rows, sorted_by)),
        }
    };
    Ok(Page::new("plugin-costs", texts::of("words.plugin_costs"), content).notes(notes))
}

/// The table of one route; nothing if no plugin has run there.
pub(super) async fn of_route(visit: &Visit, route: &str) -> Result<Markup, ApiError> {
    let body = match visit.api.get(&format!("/plugins/costs{}", query([("route", route)]))).await {
        Err(error) if error.status == StatusCode::NOT_FOUND => return Ok(html! {}),
        answer => answer?.body,
    };
    let rows = body["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(html! {
        @if !rows.is_empty() {
            h3 { a href=(visit.at("plugin-costs")) { (texts::of("words.plugin_costs")) } }
            (table(visit, rows, ""))
        }
    })
}

fn figure(row: &Value, field: &str) -> f64 {
    row[field].as_f64().unwrap_or(-1.0)
}

fn table(visit: &Visit, rows: &[Value], sorted_by: &str) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts::of("words.plugin_costs")) {
            table {
                caption.unseen { (texts::of("words.plugin_costs")) }
                thead { tr {
                    th scope="col" { (texts::of("words.plugin")) } th scope="col" { (texts::of("words.route")) }
                    @for (field, name, about) in COLUMNS {
                        th.number scope="col" title=(texts::of(about)) aria-sort=[(field == sorted_by).then_some("descending")] {
                            @match sorted_by {
                                // The table of a route is not sorted, and a link would lead away from its page.
                                "" => (texts::of(name)),
                                _ => a href=(format!("{}{}", visit.at("plugin-costs"), query([("sort", field)]))) { (texts::of(name)) },
                            }
                        }
                    }
                } }
                tbody { @for row in rows { (line(visit, row)) } }
            }
        }
    }
}

fn line(visit: &Visit, row: &Value) -> Markup {
    let shown = |field: &str| match (row[field].as_f64(), field.starts_with("us_")) {
        (None, _) => NONE.to_owned(),
        (Some(value), true) => micros(value),
        (Some(value), false) => count(value as u64),
    };
    let route = &row["route"];
    html! {
        tr {
            th scope="row" { a href=(visit.at(&format!("plugins/{}", plain(&row["id"])))) { (plain(&row["name"])) } }
            td {
                @match route.is_null() {
                    true => span.none { (NONE) },
                    false => a href=(visit.at(&format!("routes/{}", plain(&route["id"])))) {
                        (Some(plain(&route["name"])).filter(|name| !name.is_empty()).unwrap_or_else(|| plain(&route["id"])))
                    },
                }
            }
            @for (field, ..) in COLUMNS { td.number { (shown(field)) } }
        }
    }
}
