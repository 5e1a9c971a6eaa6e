//! The health of upstreams and of their addresses.
use crate::api::ApiError;
use crate::chart::{Unit, number, sparkline};
use crate::form::plain;
use crate::format::{NONE, count, time};
use crate::frame::Frame;
use crate::history::{History, Top, is_off};
use crate::page::Visit;
use crate::texts;
use crate::url::{Address, segment};
use maud::{Markup, html};
use serde_json::Value;

/// The upstreams of the first page.
const MAX_UPSTREAMS: usize = 12;
/// The addresses whose traffic is asked for.
const MAX_ADDRESSES: usize = 1_000;

/// The health of the first upstreams, in short; nothing if there are none.
pub(super) async fn table(visit: &Visit) -> Result<Markup, ApiError> {
    let found = visit.api.get(&format!("/upstreams?size={MAX_UPSTREAMS}")).await?.body;
    let upstreams = found["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut rows = Vec::new();
    for upstream in upstreams {
        let path = format!("/upstreams/{}/health?balancer_health=1", segment(&plain(&upstream["id"])));
        rows.push(visit.api.get(&path).await?.body["data"].take());
    }
    Ok(html! {
        @if !rows.is_empty() {
            section {
                h2 { a href=(visit.at("upstreams")) { (texts::of("health.upstreams")) } }
                div.scroll #upstreams tabindex="0" role="region" aria-label=(texts::of("health.upstreams")) {
                    table {
                        caption.unseen { (texts::of("health.upstreams")) }
                        thead { tr { th scope="col" { (texts::of("words.upstream")) } th scope="col" { (texts::of("health.health")) } th.number scope="col" { (texts::of("health.weight_available")) } } }
                        tbody {
                            @for row in &rows {
                                tr {
                                    th.name scope="row" { a href=(visit.at(&format!("upstreams/{}", segment(&plain(&row["id"]))))) { bdi { (plain(&row["name"])) } } }
                                    td { (state(&row["health"])) }
                                    td.number { (weight(&row["details"]["weight"])) }
                                }
                            }
                        }
                    }
                }
                @if !found["offset"].is_null() { p.help { a href=(visit.at("upstreams")) { (texts::of("health.all_upstreams")) } } }
            }
        }
    })
}

fn weight(weight: &Value) -> String {
    match (weight["available"].as_u64(), weight["total"].as_u64()) {
        (Some(available), Some(total)) => {
            texts::filled("health.weight", &[("available", &available), ("total", &total)])
        }
        _ => NONE.to_owned(),
    }
}

/// Kong's words for health, as people read them.
pub(super) fn state(health: &Value) -> Markup {
    let (class, words) = match health.as_str() {
        Some("HEALTHY") => ("connected", texts::of("health.healthy")),
        Some("UNHEALTHY") => ("failed", texts::of("health.unhealthy")),
        Some("DNS_ERROR") => ("failed", texts::of("health.dns_error")),
        _ => ("unchecked", texts::of("health.not_checked")),
    };
    html! { span class={ "state " (class) } { (words) } }
}

/// Since when an address is healthy or not, and why, if that is known.
fn since(address: &Value) -> Markup {
    let Some(since) = address["since"].as_f64() else { return html! {} };
    let by = match address["decided_by"].as_str() {
        Some("active") => Some("health.by_probes"),
        Some("passive") => Some("health.by_requests"),
        Some("operator") => Some("health.by_operator"),
        _ => None,
    };
    let reason = plain(&address["reason"]);
    html! {
        p.help {
            (texts::filled("health.since", &[("time", &time(since as i64))]))
            @if let Some(by) = by { ", " (texts::of(by)) @if !reason.is_empty() { ": " bdi { (reason) } } }
        }
    }
}

/// Each address of an upstream: how it is, and what was sent to it.
pub(super) async fn addresses(visit: &Visit, frame: &Frame, path: &str) -> Result<Markup, ApiError> {
    let found = visit.api.get(&format!("{path}/health")).await?.body;
    let history = History { api: &visit.api, frame };
    let measured = match history.top("upstream", "requests", MAX_ADDRESSES, None).await {
        Err(error) if is_off(&error) => return Ok(super::charts::off()),
        found => found?,
    };
    let targets = found["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(html! {
        @if !targets.is_empty() {
            div.scroll #addresses tabindex="0" role="region" aria-label=(texts::of("health.addresses")) {
                table {
                    caption.unseen { (texts::filled("health.in_frame", &[("frame", &frame.words())])) }
                    thead { tr {
                        @for title in [texts::of("words.address"), texts::of("health.target"), texts::of("health.health")] { th scope="col" { (title) } }
                        @for title in [texts::of("words.requests"), texts::of("words.per_second"), texts::of("words.errors"), "p99"] { th.number scope="col" { (title) } }
                        th scope="col" { (texts::of("words.over_time")) }
                    } }
                    tbody {
                        @for target in targets {
                            @for address in target["data"]["addresses"].as_array().into_iter().flatten() {
                                (line(visit, frame, (target, address), &measured))
                            }
                            @if target["data"]["addresses"].as_array().is_none_or(Vec::is_empty) {
                                tr { th scope="row" { (NONE) } td { (plain(&target["target"])) } td { (state(&target["health"])) " " (plain(&target["data"]["dns"])) } td colspan="5" {} }
                            }
                        }
                    }
                }
            }
        }
    })
}

fn line(visit: &Visit, frame: &Frame, (target, address): (&Value, &Value), measured: &Top) -> Markup {
    let ip = plain(&address["ip"]);
    let host = if ip.contains(':') { format!("[{ip}]") } else { ip };
    let name = format!("{host}:{}", plain(&address["port"]));
    let row = measured.rows.iter().find(|row| row["name"] == name.as_str()).unwrap_or(&Value::Null);
    let requests = row["requests"].as_u64().unwrap_or_default();
    let to = frame.carried(Address::new(format!("addresses/{}", segment(&name))));
    html! {
        tr {
            th scope="row" { a href=(visit.at(&to.to_string())) { (name) } }
            td { (plain(&target["target"])) }
            td { (state(&address["health"])) (since(address)) }
            td.number { (count(requests)) }
            td.number { (number(requests as f64 / measured.seconds)) }
            td.number { (count(row["errors"].as_u64().unwrap_or_default())) }
            td.number { (row["p99_upstream"].as_f64().map_or(NONE.to_owned(), |it| Unit::Seconds.text(it))) }
            td { (sparkline(&row["sparkline"], texts::of("chart.requests"))) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_address_says_since_when_and_why() {
        let address = json!({ "since": 1_795_457_084.5, "decided_by": "passive", "reason": "3 <b>failures" });
        let expected = "<p class=\"help\">since 2026-11-23 18:04:44 UTC, by passive checks: <bdi>3 &lt;b&gt;failures</bdi></p>";
        assert_eq!(since(&address).into_string(), expected);
        let configured = json!({ "since": 0, "decided_by": "configuration", "reason": "-" });
        assert_eq!(since(&configured).into_string(), "<p class=\"help\">since 1970-01-01 00:00:00 UTC</p>");
        assert_eq!(since(&json!({})).into_string(), "");
    }
}
