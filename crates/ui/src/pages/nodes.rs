//! The data planes of a control plane.
use super::Shown;
use crate::form::plain;
use crate::format::{NONE, duration, time};
use crate::page::{Page, Visit};
use axum::http::StatusCode;
use maud::{Markup, html};
use serde_json::Value;

pub(super) async fn page(visit: &Visit) -> Shown {
    let rows = match visit.api.get("/clustering/data-planes?size=1000").await {
        Ok(answer) => answer.body["data"].as_array().cloned().unwrap_or_default(),
        Err(error) if error.status == StatusCode::BAD_REQUEST => {
            let content = html! {
                div.empty { p { "This node is no control plane, so it has no data planes." } }
            };
            return Ok(Page::new("nodes", "Nodes", content));
        }
        Err(error) => return Err(error),
    };
    let content = html! {
        @match rows.is_empty() {
            true => div.empty { p { "No data plane has connected yet." } },
            false => (table(&rows)),
        }
    };
    Ok(Page::new("nodes", "Nodes", content))
}

fn table(rows: &[Value]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Nodes" {
            table {
                caption.unseen { "Data planes" }
                thead { tr { @for name in ["Host", "State", "Revision", "Lag", "Version", "Address", "Certificate until", "What is wrong"] { th scope="col" { (name) } } } }
                tbody { @for row in rows { (line(row)) } }
            }
        }
    }
}

fn line(row: &Value) -> Markup {
    let since =
        row["state_seconds"].as_i64().map_or(String::new(), |seconds| format!(" for {}", duration(seconds)));
    let expires = row["cert_details"]["expiry_timestamp"].as_i64().map_or(NONE.to_owned(), time);
    html! {
        tr {
            th scope="row" title=(plain(&row["id"])) { (plain(&row["hostname"])) }
            td { span class={ "state " (plain(&row["state"])) } { (plain(&row["state"])) } (since) }
            td.number { (plain(&row["revision"])) }
            td.number { (plain(&row["lag"])) }
            td { (plain(&row["version"])) }
            td { (plain(&row["ip"])) }
            td { (expires) }
            td { (wrong(row)) }
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
