//! The data planes of a control plane: what each one serves of the configuration, and how it does.
use super::Shown;
use crate::chart::sparkline;
use crate::form::plain;
use crate::format::{NONE, duration, micros, time};
use crate::page::{Page, Visit};
use crate::texts;
use axum::http::StatusCode;
use maud::{Markup, html};
use serde_json::Value;
use std::collections::HashMap;

/// The part of an id that tells nodes of one host apart.
const SHORT_ID: usize = 8;

/// The columns, and whether they hold numbers.
const COLUMNS: [(&str, bool); 11] = [
    ("words.host", false),
    ("nodes.state", false),
    ("nodes.requests_s", true),
    ("nodes.last_10_minutes", false),
    ("words.errors", true),
    ("nodes.p99", true),
    ("words.revision", true),
    ("nodes.lag", true),
    ("nodes.version", false),
    ("words.address", false),
    ("nodes.certificate_until", false),
];

/// After how many seconds the page shows them anew.
const REFRESH: u32 = 5;

/// What data planes have handed in, by their ids; or why that is not known.
struct Analytics {
    rows: HashMap<String, Value>,
    note: Option<String>,
}

pub(super) async fn page(visit: &Visit) -> Shown {
    let rows = match visit.api.get("/clustering/data-planes?size=1000").await {
        Ok(answer) => answer.body["data"].as_array().cloned().unwrap_or_default(),
        Err(error) if error.status == StatusCode::BAD_REQUEST => {
            let content = html! {
                div.empty { p { (texts::of("nodes.this_node_is_no_control")) } }
            };
            return Ok(Page::new("nodes", texts::of("words.nodes"), content));
        }
        Err(error) => return Err(error),
    };
    let analytics = analytics(visit).await;
    let content = html! {
        div #live data-live=(REFRESH) {
            section #nodes {
                @match rows.is_empty() {
                    true => div.empty { p { (texts::of("nodes.no_data_plane_has_connected")) } },
                    false => {
                        @if let Some(note) = &analytics.note { p.about { (note) } }
                        (table(&rows, &analytics))
                    }
                }
            }
        }
    };
    Ok(Page::new("nodes", texts::of("words.nodes"), content))
}

async fn analytics(visit: &Visit) -> Analytics {
    let body = match visit.api.get("/analytics/nodes").await {
        Ok(answer) => answer.body,
        Err(error) => return Analytics { rows: HashMap::new(), note: Some(error.message()) },
    };
    let rows = body["data"].as_array().into_iter().flatten();
    let rows = rows.map(|row| (plain(&row["id"]), row.clone())).collect();
    Analytics { rows, note: missing(&body["fleet"]) }
}

/// What the figures lack, if anything.
fn missing(fleet: &Value) -> Option<String> {
    let lacks = [
        ("silent", texts::of("nodes.connected_data_planes_that_hand")),
        ("elsewhere", texts::of("nodes.data_planes_of_other_control")),
        ("offline", texts::of("nodes.data_planes_that_are_offline")),
        ("pending", texts::of("nodes.intervals_of_ten_seconds_that")),
        ("lost", texts::of("nodes.requests_that_data_planes_could")),
    ];
    let counts =
        lacks.iter().filter_map(|(name, what)| Some((fleet[name].as_u64().filter(|it| *it > 0)?, what)));
    let parts: Vec<_> = counts.map(|(count, what)| format!("{count} {what}")).collect();
    (!parts.is_empty()).then(|| texts::filled("nodes.figures_lack", &[("parts", &parts.join(", "))]))
}

fn table(rows: &[Value], analytics: &Analytics) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts::of("words.nodes")) {
            table.dense {
                caption.unseen { (texts::of("nodes.data_planes")) }
                thead { tr { @for (name, is_number) in COLUMNS { th.number[is_number] scope="col" { (texts::of(name)) } } } }
                tbody { @for row in rows { (line(row, analytics.rows.get(&plain(&row["id"])).unwrap_or(&Value::Null))) } }
            }
        }
    }
}

fn line(row: &Value, measured: &Value) -> Markup {
    let since = row["state_seconds"]
        .as_i64()
        .map_or(String::new(), |seconds| texts::filled("nodes.for", &[("duration", &duration(seconds))]));
    let expires = row["cert_details"]["expiry_timestamp"].as_i64().map_or(NONE.to_owned(), time);
    let day = expires.split(' ').next().unwrap_or_default();
    let id = plain(&row["id"]);
    let figure = |name: &str, text: fn(f64) -> String| measured[name].as_f64().map_or(NONE.to_owned(), text);
    html! {
        tr {
            th scope="row" { (plain(&row["hostname"])) div.help title=(id) { (id.chars().take(SHORT_ID).collect::<String>()) } }
            td { span class={ "state " (plain(&row["state"])) } { (plain(&row["state"])) } (since) (wrong(row)) }
            td.number { (figure("requests_per_second", |rate| format!("{rate:.1}"))) }
            td { @if measured.is_null() { (NONE) } @else { (sparkline(&measured["sparkline"], texts::of("chart.requests"))) } }
            td.number { (figure("error_rate", |share| format!("{:.2} %", share * 100.0))) }
            td.number { (figure("p99", |seconds| micros(seconds * 1e6))) }
            td.number { (plain(&row["revision"])) }
            td.number { (plain(&row["lag"])) }
            td { (plain(&row["version"])) }
            td.address { (plain(&row["ip"])) }
            td.time { time title=(expires) { (day) } }
        }
    }
}

fn wrong(row: &Value) -> Markup {
    let refusals = row["last_refusal"].as_array();
    html! {
        @if let Some(reason) = row["held_back"].as_str() { p { (reason) } }
        @for refusal in refusals.into_iter().flatten() {
            p { (plain(&refusal["entity"])) " " code { (plain(&refusal["field"])) } ": " (plain(&refusal["message"])) }
        }
        @for altered in row["altered"].as_array().into_iter().flatten() { p.help { (plain(altered)) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_figures_lack_is_listed() {
        assert_eq!(missing(&json!({ "silent": 0, "lost": 0 })), None);
        let note = missing(&json!({ "offline": 2, "lost": 7 })).unwrap_or_default();
        let expected = "The figures lack: 2 data planes that are offline, 7 requests that data planes could not hand in.";
        assert_eq!(note, expected);
    }

    #[test]
    fn a_data_plane_without_analytics_has_no_figures() {
        let row = json!({ "id": "i", "hostname": "<b>", "state": "connected" });
        let text = line(&row, &Value::Null).into_string();
        assert!(text.contains("&lt;b&gt;") && text.contains(NONE), "{text}");
    }
}
