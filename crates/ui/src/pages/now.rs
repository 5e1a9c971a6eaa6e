//! The first page: what the node does now.
use super::charts::{Charts, missing, off};
use super::{Shown, changes, errors, health, overview, traffic};
use crate::api::ApiError;
use crate::chart::{bytes, number, share};
use crate::form::{Pairs, plain};
use crate::format::{NONE, count};
use crate::frame::Frame;
use crate::history::{Change, Series, is_off};
use crate::page::{Page, Visit};
use crate::texts;
use crate::url::Address;
use maud::{Markup, html};
use serde_json::Value;
use std::time::Instant;

/// The rate that is shown as that of now is one of so many seconds.
const RECENT: usize = 10;
const MAX_ROUTES: usize = 8;
const MAX_CHANGES: usize = 5;

/// What is measured, as numbers; `status` is that of the node.
struct Figures {
    status: Value,
    classes: Series,
    percentiles: [Option<f64>; 3],
    gateway: [Option<f64>; 3],
    received: f64,
    sent: f64,
    errors: Vec<Value>,
}

pub(super) async fn page(visit: &Visit, asked: &Pairs) -> Shown {
    let (frame, mut notes) = Frame::read(asked, "-10m");
    let (charts, changes) = match Charts::of(visit, &frame).await {
        Err(error) if is_off(&error) => return overview::page(visit, "now.overview", off()).await,
        other => other?,
    };
    let ((figures, drawn), routes, health) = tokio::try_join!(
        measured(visit, &charts),
        charts.history.top("route", "requests", MAX_ROUTES, None),
        health::table(visit)
    )?;
    notes.extend(missing(&figures.classes));
    let is_idle = figures.classes.sum() == 0.0 && frame.is_live;
    let content = html! {
        (frame.picker(visit, &frame.on(Address::new(""))))
        div #live data-live=[frame.refresh(1)] {
            section #figures aria-label=(texts::of("now.figures")) { (figures.shown(visit, &frame)) }
            @if is_idle { section #idle { (no_requests(visit).await?) } }
            section #charts.charts aria-label=(texts::of("now.charts")) { (drawn) }
            section #tables.columns {
                (traffic::busiest(visit, &frame, &routes))
                (last_changes(visit, &frame, &changes))
                (health)
            }
        }
    };
    Ok(Page::new("", texts::of("words.now"), content).notes(notes))
}

/// The figures and the charts of the node.
async fn measured(visit: &Visit, charts: &Charts<'_>) -> Result<(Figures, Markup), ApiError> {
    let history = &charts.history;
    let ask = |metric, by| history.series(metric, by, None, charts.points());
    let (classes, received, sent, errors, status) = tokio::try_join!(
        ask("requests", "class"),
        ask("bytes_in", ""),
        ask("bytes_out", ""),
        history.outcomes(),
        visit.api.get("/status")
    )?;
    let latency = charts.percentiles(("latency", texts::of("now.latency_from_head_to_last")), "", None);
    let gateway =
        charts.percentiles(("gateway", texts::of("now.latency_of_the_gateway_alone")), "_gateway", None);
    let ((latency, percentiles), (gateway_chart, gateway)) = tokio::try_join!(latency, gateway)?;
    let (received_bytes, sent_bytes, status) = (received.sum(), sent.sum(), status.body);
    let figures =
        Figures { status, percentiles, gateway, received: received_bytes, sent: sent_bytes, errors, classes };
    let drawn = html! {
        (charts.statuses(&figures.classes)) (latency) (gateway_chart) (charts.bytes(received, sent))
    };
    Ok((figures, drawn))
}

impl Figures {
    fn shown(&self, visit: &Visit, frame: &Frame) -> Markup {
        let all = self.classes.sum();
        let seconds =
            |value: Option<f64>| value.map_or(NONE.to_owned(), |it| crate::chart::Unit::Seconds.text(it));
        html! {
            dl.figures {
                div { dt { (texts::of("words.requests")) } dd #requests { (count(all as u64)) } dd.help { (self.rate(frame)) } }
                @for class in ["4xx", "5xx"] {
                    @let some = self.classes.total(class).unwrap_or(0.0);
                    @let to = frame.carried(Address::new("errors").with("status", class));
                    div { dt { (class) } dd { (share(some, all)) } dd.help { a href=(visit.at(&to.to_string())) { (count(some as u64)) } } }
                }
                @for (index, name) in ["p50", "p90", "p99"].into_iter().enumerate() {
                    div { dt { (name) } dd { (seconds(self.percentiles[index])) } dd.help { (texts::filled("now.of_the_gateway", &[("latency", &seconds(self.gateway[index]))])) } }
                }
                div { dt { (texts::of("words.received")) } dd { (bytes(self.received)) } }
                div { dt { (texts::of("words.sent")) } dd { (bytes(self.sent)) } }
                (self.of_the_process(visit))
            }
            (errors::split(visit, frame, &self.errors))
        }
    }

    /// What the node uses now, whatever the frame.
    fn of_the_process(&self, visit: &Visit) -> Markup {
        let (server, process) = (&self.status["server"], &self.status["process"]);
        let cpu_seconds = process["cpu_seconds"].as_f64().unwrap_or_default();
        let cores = visit.cpu_usage.cores(cpu_seconds, Instant::now());
        let accepted = server["connections_accepted"].as_u64().unwrap_or_default();
        html! {
            div { dt { (texts::of("words.open_connections")) } dd { (count(server["connections_active"].as_u64().unwrap_or_default())) } dd.help { (texts::filled("now.accepted", &[("count", &count(accepted))])) } }
            div { dt { (texts::of("now.cpu")) } dd { (cores.map_or(NONE.to_owned(), |cores| share(cores, 1.0))) } @if cores.is_some() { dd.help { (texts::of("now.of_one_core")) } } }
            div { dt { (texts::of("now.memory_now")) } dd { (bytes(process["resident_bytes"].as_f64().unwrap_or_default())) } }
        }
    }

    /// Requests in a second: of the last ones if the frame ends now.
    fn rate(&self, frame: &Frame) -> String {
        let rates = self.classes.clone().per_second(frame);
        let sums: Vec<f64> = (0..rates.times.len())
            .filter_map(|index| rates.columns.iter().map(|it| it.values.get(index).copied().flatten()).sum())
            .collect();
        let taken = if frame.is_live { (RECENT / rates.step as usize).max(1) } else { sums.len() };
        let recent = &sums[sums.len().saturating_sub(taken)..];
        let rate = number(recent.iter().sum::<f64>() / recent.len().max(1) as f64);
        texts::filled(if frame.is_live { "now.rate" } else { "now.mean_rate" }, &[("rate", &rate)])
    }
}

/// What to do where no request has arrived.
async fn no_requests(visit: &Visit) -> Result<Markup, ApiError> {
    let (node, services) = tokio::try_join!(visit.api.get("/"), visit.api.get("/services?size=1"))?;
    if services.body["data"].as_array().is_some_and(Vec::is_empty) {
        return Ok(overview::first_steps(visit, &node.body));
    }
    let listener = &node.body["configuration"]["proxy_listeners"][0];
    let scheme = if listener["ssl"] == true { "https" } else { "http" };
    Ok(html! {
        div.empty {
            p { (texts::of("messages.no_requests")) }
            @if let Some(port) = listener["port"].as_u64() {
                pre.copyable { "curl -i " (scheme) "://" (plain(&listener["ip"])) ":" (port) "/" }
            }
        }
    })
}

fn last_changes(visit: &Visit, frame: &Frame, all: &[Change]) -> Markup {
    let to = frame.carried(Address::new("changes")).to_string();
    html! {
        section {
            h2 { a href=(visit.at(&to)) { (texts::of("words.changes")) } }
            @match all.is_empty() {
                true => p.help { (texts::of("now.the_configuration_has_not_changed")) },
                false => (changes::table(visit, &all[..all.len().min(MAX_CHANGES)])),
            }
        }
    }
}
