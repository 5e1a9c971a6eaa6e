//! What was measured of one route, service, consumer or upstream's address: a part of its page.
use super::charts::{Charts, missing, off};
use super::{Shown, costs, errors, health, pairs};
use crate::api::ApiError;
use crate::chart::{HeatMap, Unit, share};
use crate::form::Pairs;
use crate::format::{NONE, count};
use crate::frame::Frame;
use crate::history::{Of, Series, is_off};
use crate::kinds::Kind;
use crate::page::{Page, Visit};
use crate::texts;
use crate::url::{Address, segment};
use maud::{Markup, html};

/// The points of a heat map.
const HEAT_POINTS: u64 = 100;
/// The groups of errors of one route.
const MAX_GROUPS: usize = 10;

/// Whether pages of the kind have a part about traffic.
pub(super) fn is_measured(kind: &Kind) -> bool {
    measured(kind).is_some() || kind.collection == "upstreams"
}

/// How questions name the kinds that are measured.
fn measured(kind: &Kind) -> Option<&'static str> {
    match kind.collection {
        "routes" => Some("route"),
        "services" => Some("service"),
        "consumers" => Some("consumer"),
        _ => None,
    }
}

/// The part of the page at an address of the entity with an id, and notes on what the address says; nothing if the kind
/// is not measured.
pub(super) async fn section(
    visit: &Visit,
    kind: &Kind,
    (at, id): (&str, &str),
    asked: &Pairs,
) -> Result<(Markup, Vec<String>), ApiError> {
    if !is_measured(kind) {
        return Ok((html! {}, Vec::new()));
    }
    let (frame, mut notes) = Frame::read(asked, "-1h");
    let address = Address::new(at);
    let content = match measured(kind) {
        Some(of) => within(visit, &frame, (of, id), &mut notes).await?,
        None => health::addresses(visit, &frame, &kind.path(id)).await?,
    };
    let section = html! {
        section.activity {
            h2 id="traffic" { (texts::of("words.traffic")) }
            (frame.picker(visit, &frame.on(address)))
            div #live data-live=[frame.refresh(3)] { section #measured { (content) } }
        }
    };
    Ok((section, notes))
}

/// The page of an upstream's address, which is no entity.
pub(super) async fn address(visit: &Visit, name: &str, asked: &Pairs) -> Shown {
    let (frame, mut notes) = Frame::read(asked, "-1h");
    let here = Address::new(format!("addresses/{}", segment(name)));
    let content = within(visit, &frame, ("upstream", name), &mut notes).await?;
    let content = html! {
        (frame.picker(visit, &frame.on(here)))
        div #live data-live=[frame.refresh(3)] { section #measured { (content) } }
    };
    Ok(Page::new("traffic", texts::filled("activity.address", &[("name", &name)]), content).notes(notes))
}

async fn within(
    visit: &Visit,
    frame: &Frame,
    (kind, id): (&'static str, &str),
    notes: &mut Vec<String>,
) -> Result<Markup, ApiError> {
    let (charts, _) = match Charts::of(visit, frame).await {
        Err(error) if is_off(&error) => return Ok(off()),
        other => other?,
    };
    let of = Some((kind, id));
    let classes = charts.history.series("requests", "class", of, charts.points()).await?;
    notes.extend(missing(&classes));
    let part = if kind == "upstream" { "_upstream" } else { "" };
    let (latency, percentiles) =
        charts.percentiles(("latency", texts::of("activity.latency")), part, of).await?;
    Ok(html! {
        (figures(&classes, percentiles))
        div.charts {
            (charts.statuses(&classes))
            (latency)
            @if kind != "upstream" { (heat_map(&charts, of).await?) }
            @if matches!(kind, "route" | "service") { (charts.parts(of).await?) }
        }
        (pairs::section(visit, &charts.history, (kind, id)).await?)
        @if kind == "route" { (of_route(visit, &charts, id).await?) }
    })
}

fn figures(classes: &Series, percentiles: [Option<f64>; 3]) -> Markup {
    let all = classes.sum();
    html! {
        dl.figures {
            div { dt { (texts::of("words.requests")) } dd #requests { (count(all as u64)) } }
            @for class in ["4xx", "5xx"] {
                div { dt { (class) } dd { (share(classes.total(class).unwrap_or(0.0), all)) } }
            }
            @for (name, value) in ["p50", "p90", "p99"].into_iter().zip(percentiles) {
                div { dt { (name) } dd { (value.map_or(NONE.to_owned(), |it| Unit::Seconds.text(it))) } }
            }
        }
    }
}

async fn heat_map(charts: &Charts<'_>, of: Of<'_>) -> Result<Markup, ApiError> {
    let series = charts.history.series("requests", "bucket", of, HEAT_POINTS).await?;
    let map = HeatMap {
        title: texts::of("activity.latency_of_each_request"),
        frame: charts.bounds(),
        series: &series,
        marks: &charts.marks,
    };
    Ok(map.draw())
}

/// The errors of a route, and what its plugins cost.
async fn of_route(visit: &Visit, charts: &Charts<'_>, id: &str) -> Result<Markup, ApiError> {
    let frame = charts.history.frame;
    let errors = charts.history.errors(id, Some(MAX_GROUPS));
    let (found, costs) = tokio::try_join!(errors, costs::of_route(visit, id))?;
    let all = frame.carried(Address::new("errors").with("route", id)).to_string();
    Ok(html! {
        @if !found.groups.is_empty() {
            h3 { a href=(visit.at(&all)) { (texts::of("words.errors")) } }
            (errors::table(visit, frame, &found.groups, None))
        }
        (costs)
    })
}
