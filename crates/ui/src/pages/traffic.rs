//! Tables of what was measured: routes, services, consumers, upstreams' addresses, and language models.
use super::charts::off;
use super::{Shown, csv};
use crate::chart::{Unit, bytes, number, share, sparkline};
use crate::form::{Pairs, first, plain};
use crate::format::{NONE, count};
use crate::frame::Frame;
use crate::history::{History, Top, is_off};
use crate::page::{Page, Visit};
use crate::texts;
use crate::url::{Address, segment};
use maud::{Markup, html};
use serde_json::Value;

/// The most rows that the node answers with.
const MAX_ROWS: usize = 1_000;
/// The rows of a page.
const PAGE: usize = 100;

/// A kind of row: how questions name it, the collection of its pages, and what people call one and many of them.
struct By {
    name: &'static str,
    collection: &'static str,
    one: &'static str,
    many: &'static str,
    /// What the row is called that counts requests of none of them.
    none: &'static str,
    columns: &'static [Column],
}

/// A number of a row: the metric of questions, and how it is shown.
struct Column {
    metric: &'static str,
    title: &'static str,
    shown: Number,
}

#[derive(Clone, Copy, PartialEq)]
enum Number {
    Count,
    /// A count for each second of the frame.
    Rate,
    /// A count as a part of the requests.
    Share,
    Seconds,
    Bytes,
    /// A number as it is.
    Plain,
}

const fn column(metric: &'static str, title: &'static str, shown: Number) -> Column {
    Column { metric, title, shown }
}

const REQUESTS: Column = column("requests", "words.requests", Number::Count);
const RATE: Column = column("rate", "words.per_second", Number::Rate);
const CLIENT_ERRORS: Column = column("4xx", "traffic.4xx", Number::Share);
const SERVER_ERRORS: Column = column("5xx", "traffic.5xx", Number::Share);
const P50: Column = column("p50", "traffic.p50", Number::Seconds);
const P99: Column = column("p99", "traffic.p99", Number::Seconds);
const GATEWAY: Column = column("p50_gateway", "traffic.gateway_p50", Number::Seconds);
const RECEIVED: Column = column("bytes_in", "words.received", Number::Bytes);
const SENT: Column = column("bytes_out", "words.sent", Number::Bytes);

const ALL: &[Column] = &[REQUESTS, RATE, CLIENT_ERRORS, SERVER_ERRORS, P50, P99, GATEWAY, RECEIVED, SENT];
const OF_CONSUMERS: &[Column] = &[REQUESTS, RATE, CLIENT_ERRORS, SERVER_ERRORS, P50, P99, RECEIVED, SENT];
const OF_ADDRESSES: &[Column] = &[
    REQUESTS,
    RATE,
    CLIENT_ERRORS,
    SERVER_ERRORS,
    column("p50_upstream", "traffic.p50", Number::Seconds),
    column("p99_upstream", "traffic.p99", Number::Seconds),
    RECEIVED,
    SENT,
];
const OF_MODELS: &[Column] = &[
    column("requests", "traffic.calls", Number::Count),
    RATE,
    CLIENT_ERRORS,
    SERVER_ERRORS,
    column("prompt_tokens", "traffic.prompt_tokens", Number::Count),
    column("completion_tokens", "traffic.completion_tokens", Number::Count),
    column("p50_first_token", "traffic.first_token_p50", Number::Seconds),
    column("p99_first_token", "traffic.first_token_p99", Number::Seconds),
    column("mean_tokens_per_second", "traffic.tokens_per_second", Number::Plain),
    P50,
    P99,
];
const IN_SHORT: &[Column] = &[RATE, CLIENT_ERRORS, SERVER_ERRORS, P99];
const OF_PAIRS: &[Column] = &[REQUESTS, RATE, CLIENT_ERRORS, SERVER_ERRORS, P50, P99];

const BY: [By; 5] = [
    By {
        name: "route",
        collection: "routes",
        one: "words.route",
        many: "traffic.routes",
        none: "traffic.no_route",
        columns: ALL,
    },
    By {
        name: "service",
        collection: "services",
        one: "words.service",
        many: "traffic.services",
        none: "traffic.no_service",
        columns: ALL,
    },
    By {
        name: "consumer",
        collection: "consumers",
        one: "words.consumer",
        many: "traffic.consumers",
        none: "traffic.no_consumer",
        columns: OF_CONSUMERS,
    },
    By {
        name: "upstream",
        collection: "addresses",
        one: "words.address",
        many: "traffic.upstreams_addresses",
        none: "traffic.no_upstream",
        columns: OF_ADDRESSES,
    },
    // Models are no entities, and requests are not kept by model.
    By {
        name: "model",
        collection: "",
        one: "words.model",
        many: "traffic.models",
        none: "words.others",
        columns: OF_MODELS,
    },
];

/// What the address of the page asks for.
struct Asked<'a> {
    by: &'static By,
    sort: &'static str,
    wanted: &'a str,
    page: usize,
}

impl<'a> Asked<'a> {
    fn read(asked: &'a Pairs, notes: &mut Vec<String>) -> Asked<'a> {
        let by = BY.iter().find(|by| by.name == first(asked, "by"));
        let (default_by, wanted) = (&BY[0], first(asked, "q").trim());
        let by = by.unwrap_or_else(|| note("by", asked, default_by, notes));
        let sorts = by.columns.iter().map(|column| column.metric).chain(["name"]);
        let sort = sorts.into_iter().find(|metric| *metric == first(asked, "sort"));
        let sort = sort.unwrap_or_else(|| note("sort", asked, REQUESTS.metric, notes));
        let page = first(asked, "page").parse().ok().filter(|page| *page > 0);
        Asked { by, sort, wanted, page: page.unwrap_or_else(|| note("page", asked, 1, notes)) }
    }

    fn address(&self) -> Address {
        Address::new("traffic").with("by", self.by.name).with("sort", self.sort).with("q", self.wanted)
    }
}

/// The default, and a note unless the address says nothing of the parameter.
fn note<T>(name: &str, asked: &Pairs, default: T, notes: &mut Vec<String>) -> T {
    let given = first(asked, name);
    if !given.is_empty() {
        notes.push(texts::overlooked(name, given));
    }
    default
}

pub(super) async fn page(visit: &Visit, given: &Pairs) -> Shown {
    let (frame, mut notes) = Frame::read(given, "-1h");
    let asked = Asked::read(given, &mut notes);
    let history = History { api: &visit.api, frame: &frame };
    let of = if matches!(asked.sort, "rate" | "name") { "requests" } else { asked.sort };
    let mut top = match history.top(asked.by.name, of, MAX_ROWS, None).await {
        Err(error) if is_off(&error) => return Ok(Page::new("traffic", texts::of("words.traffic"), off())),
        found => found?,
    };
    notes.extend(top.source_error.as_deref().map(texts::own_history));
    if top.total > top.rows.len() {
        notes.push(texts::first_of_many(top.rows.len()));
    }
    let wanted = asked.wanted.to_lowercase();
    top.rows.retain(|row| wanted.is_empty() || name(row).to_lowercase().contains(&wanted));
    sort(&mut top.rows, asked.sort);
    let table = Address::new("top").with("by", asked.by.name).with("of", of).with("limit", csv::MAX_ROWS);
    let table = frame.in_seconds(table);
    let content = html! {
        (tabs(visit, &asked, &frame))
        (frame.picker(visit, &frame.on(asked.address())))
        (filter(visit, &asked, &frame))
        div #live data-live=[frame.refresh(3)] {
            section #table.dense {
                @match top.rows.is_empty() {
                    true => div.empty { p { (texts::of("messages.nothing_measured")) } },
                    false => (shown(visit, &asked, &frame, &top)),
                }
            }
        }
        (csv::link(visit, &table.to_string()))
    };
    Ok(Page::new("traffic", texts::of("words.traffic"), content).notes(notes))
}

/// The rows by a number, the highest first, or by their names.
fn sort(rows: &mut [Value], by: &str) {
    let column = [ALL, OF_ADDRESSES, OF_MODELS].into_iter().flatten().find(|column| column.metric == by);
    match column {
        Some(column) => rows.sort_by(|a, b| column.number(b).total_cmp(&column.number(a))),
        None => rows.sort_by_key(name),
    }
}

impl Column {
    /// What rows are ordered by; those without come last.
    fn number(&self, row: &Value) -> f64 {
        let value = |name: &str| row[name].as_f64();
        match self.shown {
            Number::Rate => value("requests"),
            Number::Share => value(self.metric).zip(value("requests")).map(|(part, whole)| part / whole),
            _ => value(self.metric),
        }
        .unwrap_or(-1.0)
    }

    fn text(&self, row: &Value, seconds: f64) -> String {
        let requests = row["requests"].as_f64().unwrap_or_default();
        let value = if self.shown == Number::Rate { Some(requests) } else { row[self.metric].as_f64() };
        let Some(value) = value else { return NONE.to_owned() };
        match self.shown {
            Number::Count => count(value as u64),
            Number::Rate => number(value / seconds),
            Number::Share => share(value, requests),
            Number::Seconds => Unit::Seconds.text(value),
            Number::Bytes => bytes(value),
            Number::Plain => number(value),
        }
    }
}

fn tabs(visit: &Visit, asked: &Asked<'_>, frame: &Frame) -> Markup {
    html! {
        nav.tabs aria-label=(texts::of("traffic.rows")) {
            ul.segments {
                @for by in &BY {
                    @let to = frame.on(Address::new("traffic").with("by", by.name));
                    li { a href=(visit.at(&to.to_string())) aria-current=[(by.name == asked.by.name).then_some("true")] { (texts::of(by.many)) } }
                }
            }
        }
    }
}

fn filter(visit: &Visit, asked: &Asked<'_>, frame: &Frame) -> Markup {
    let kept = frame.on(asked.address());
    html! {
        form.filter action=(visit.at("traffic")) {
            @for (name, value) in kept.members().filter(|(name, _)| *name != "q") { input type="hidden" name=(name) value=(value); }
            label for="q" { (texts::of("words.name")) }
            input id="q" name="q" value=(asked.wanted);
            button { (texts::of("words.filter")) }
        }
    }
}

fn shown(visit: &Visit, asked: &Asked<'_>, frame: &Frame, top: &Top) -> Markup {
    let rows = &top.rows;
    let address = frame.on(asked.address());
    let sorted = |metric: &str| address.clone().with("sort", metric).to_string();
    let is_sorted = |metric: &str, order| (metric == asked.sort).then_some(order);
    let pages = rows.len().div_ceil(PAGE);
    let page = asked.page.min(pages.max(1));
    let lines = Lines { by: asked.by, columns: asked.by.columns, frame, seconds: top.seconds, within: None };
    html! {
        div.scroll #rows tabindex="0" role="region" aria-label=(texts::of(asked.by.many)) {
            table.dense {
                caption.unseen { (texts::filled("traffic.in_frame", &[("rows", &texts::of(asked.by.many)), ("frame", &frame.words())])) }
                thead { tr {
                    th scope="col" aria-sort=[is_sorted("name", "ascending")] { a href=(visit.at(&sorted("name"))) { (texts::of("words.name")) } }
                    @for column in asked.by.columns {
                        th.number scope="col" aria-sort=[is_sorted(column.metric, "descending")] { a href=(visit.at(&sorted(column.metric))) { (texts::of(column.title)) } }
                    }
                    th scope="col" { (texts::of("words.over_time")) }
                } }
                tbody { @for row in rows.iter().skip((page - 1) * PAGE).take(PAGE) { (lines.line(visit, row)) } }
            }
        }
        @if pages > 1 {
            nav.bar aria-label=(texts::of("traffic.pages")) {
                @for number in 1..=pages {
                    a.button href=(visit.at(&address.clone().with("page", &number.to_string()).to_string())) aria-current=[(number == page).then_some("page")] { (number) }
                }
            }
        }
    }
}

/// How the rows of a table are shown.
pub(super) struct Lines<'a> {
    by: &'static By,
    columns: &'static [Column],
    frame: &'a Frame,
    seconds: f64,
    /// The entity whose requests all rows count, by kind and id.
    within: Option<(&'static str, &'a str)>,
}

impl<'a> Lines<'a> {
    /// Rows that count requests of one entity alone, in short; none if there are no such rows.
    pub(super) fn within(
        by: &str,
        frame: &'a Frame,
        top: &Top,
        within: (&'static str, &'a str),
    ) -> Option<Lines<'a>> {
        let by = BY.iter().find(|known| known.name == by)?;
        Some(Lines { by, columns: OF_PAIRS, frame, seconds: top.seconds, within: Some(within) })
    }

    fn line(&self, visit: &Visit, row: &Value) -> Markup {
        html! {
            tr {
                th.name scope="row" { (link(visit, self.by, self.frame, row)) }
                @for column in self.columns {
                    td.number {
                        @let text = column.text(row, self.seconds);
                        @match self.behind(column, row) {
                            Some(address) => a href=(visit.at(&address.to_string())) { (text) },
                            None => (text),
                        }
                    }
                }
                td { (sparkline(&row["sparkline"], texts::of("chart.requests"))) }
            }
        }
    }

    /// The address of what a number counts: groups of errors of a route, or else requests that were kept.
    fn behind(&self, column: &Column, row: &Value) -> Option<Address> {
        let by = self.by.name;
        if self.by.collection.is_empty() {
            return None;
        }
        let [id, name] = ["id", "name"].map(|member| plain(&row[member]));
        let of = Some(if id.is_empty() { name } else { id })
            .filter(|of| !of.is_empty() && column.number(row) > 0.0)?;
        let requests = || {
            let address = Address::new("requests").with(by, &of);
            let address = self.within.iter().fold(address, |address, (kind, id)| address.with(kind, id));
            self.frame.in_seconds(address)
        };
        match column.shown {
            Number::Share if by == "route" && self.within.is_none() => {
                let errors = Address::new("errors").with("route", &of).with("status", column.metric);
                Some(self.frame.carried(errors))
            }
            Number::Share => Some(requests().with("class", column.metric)),
            Number::Count => Some(requests()),
            _ => None,
        }
    }
}

/// The name of a row, which leads to what it is made of.
fn link(visit: &Visit, by: &By, frame: &Frame, row: &Value) -> Markup {
    let id = plain(&row["id"]);
    let to = match (id.as_str(), plain(&row["name"]).as_str()) {
        ("", "none") if by.name == "route" => Some(Address::new("errors").with("route", "none")),
        ("", _) => None,
        _ if by.collection.is_empty() => None,
        (id, _) => Some(Address::new(format!("{}/{}", by.collection, segment(id)))),
    };
    let words = match (id.as_str(), plain(&row["name"]).as_str()) {
        ("", "none") => texts::of(by.none).to_owned(),
        ("", "others") => texts::of("words.others").to_owned(),
        _ => name(row),
    };
    html! {
        @match to {
            Some(to) => a href=(format!("{}#traffic", visit.at(&frame.carried(to).to_string()))) { bdi { (words) } },
            None => bdi { (words) },
        }
    }
}

/// What people call a row.
fn name(row: &Value) -> String {
    let name = plain(&row["name"]);
    if name.is_empty() { plain(&row["id"]) } else { name }
}

/// The busiest routes.
pub(super) fn busiest(visit: &Visit, frame: &Frame, top: &Top) -> Markup {
    let to = frame.carried(Address::new("traffic")).to_string();
    let title = texts::of("traffic.busiest_routes");
    let lines = Lines { by: &BY[0], columns: IN_SHORT, frame, seconds: top.seconds, within: None };
    html! {
        section {
            h2 { a href=(visit.at(&to)) { (title) } }
            @if top.rows.is_empty() { p.help { (texts::of("messages.nothing_measured")) } }
            @else { (short_table(visit, &lines, ("busiest", title), &top.rows)) }
        }
    }
}

/// A table of a few rows.
pub(super) fn short_table(
    visit: &Visit,
    lines: &Lines<'_>,
    (id, title): (&str, &str),
    rows: &[Value],
) -> Markup {
    let values: [(&str, &dyn std::fmt::Display); 2] = [("rows", &title), ("frame", &lines.frame.words())];
    html! {
        div.scroll id=(id) tabindex="0" role="region" aria-label=(title) {
            table.dense {
                caption.unseen { (texts::filled("traffic.in_frame", &values)) }
                thead { tr {
                    th scope="col" { (texts::of(lines.by.one)) }
                    @for column in lines.columns { th.number scope="col" { (texts::of(column.title)) } }
                    th scope="col" { (texts::of("words.over_time")) }
                } }
                tbody { @for row in rows { (lines.line(visit, row)) } }
            }
        }
    }
}
