//! Errors by route, status and cause: who is to blame.
use super::charts::off;
use super::{Shown, csv};
use crate::chart::sparkline;
use crate::form::{Pairs, first, plain};
use crate::format::{count, minute};
use crate::frame::Frame;
use crate::history::{Errors, History, is_off};
use crate::page::{Page, Visit};
use crate::texts;
use crate::url::{Address, segment};
use maud::{Markup, html};
use serde_json::Value;
use std::collections::BTreeMap;

/// The most groups of a page.
const MAX_ROWS: usize = 200;

/// Who decided an outcome, as the address says it, and in words.
const WHO: [(&str, &str); 4] = [
    ("upstream-response", "errors.upstream_responded"),
    ("gateway", "errors.gateway"),
    ("upstream-failure", "errors.upstream_failed"),
    ("client", "errors.client"),
];

/// The columns that rows are ordered by.
const SORTS: [(&str, &str); 4] = [
    ("count", "errors.count"),
    ("status", "words.status"),
    ("first", "errors.first"),
    ("last", "errors.last"),
];

/// What the page shows of all groups.
struct Filter<'a> {
    route: &'a str,
    /// Such as `404`, or `4xx`.
    status: &'a str,
    who: &'a str,
    cause: &'a str,
    wanted: String,
}

/// Who decided the outcome of a group.
fn who(group: &Value) -> &'static str {
    let is_upstream = group["origin"] == "upstream";
    let index = match (is_upstream, group["cause"] == "response", group["origin"] == "client") {
        (true, true, _) => 0,
        (true, false, _) => 2,
        (false, _, true) => 3,
        (false, _, false) => 1,
    };
    WHO[index].0
}

fn words(who: &str) -> &'static str {
    WHO.iter().find(|(known, _)| *known == who).map_or("", |(_, words)| texts::of(words))
}

impl<'a> Filter<'a> {
    fn read(asked: &'a Pairs, notes: &mut Vec<String>) -> Filter<'a> {
        let known = |name, value: &'a str, is_known: bool, notes: &mut Vec<String>| {
            if is_known || value.is_empty() {
                return value;
            }
            notes.push(texts::overlooked(name, value));
            ""
        };
        let (status, who) = (first(asked, "status"), first(asked, "who"));
        let is_class = status.strip_suffix("xx").is_some_and(|class| matches!(class, "4" | "5"));
        let is_status = is_class || status.parse::<u16>().is_ok();
        Filter {
            route: first(asked, "route"),
            status: known("status", status, is_status, notes),
            who: known("who", who, WHO.iter().any(|(name, _)| *name == who), notes),
            cause: first(asked, "cause"),
            wanted: first(asked, "q").trim().to_lowercase(),
        }
    }

    /// Whether it lets every group of the route through, or of all routes.
    fn lets_all(&self) -> bool {
        [self.status, self.who, self.cause, self.wanted.as_str()].iter().all(|value| value.is_empty())
    }

    fn lets(&self, group: &Value) -> bool {
        let status = plain(&group["status"]);
        let is_status = match self.status.strip_suffix("xx") {
            Some(class) => status.len() == 3 && status.starts_with(class),
            None => self.status.is_empty() || self.status == status,
        };
        let is_cause = self.cause.is_empty() || group["cause"] == self.cause;
        let is_who = self.who.is_empty() || who(group) == self.who;
        let texts = [route_name(group), plain(&group["cause"]), status];
        let is_wanted = texts.iter().any(|text| text.to_lowercase().contains(&self.wanted));
        is_status && is_cause && is_who && is_wanted
    }

    fn address(&self) -> Address {
        let kept = [("route", self.route), ("status", self.status), ("who", self.who), ("cause", self.cause)];
        let address = Address::new("errors").with("q", &self.wanted);
        kept.into_iter().fold(address, |address, (name, value)| address.with(name, value))
    }
}

pub(super) async fn page(visit: &Visit, asked: &Pairs) -> Shown {
    let (frame, mut notes) = Frame::read(asked, "-1h");
    let filter = Filter::read(asked, &mut notes);
    let sort = SORTS.iter().find(|(name, _)| *name == first(asked, "sort")).map(|(name, _)| *name);
    if sort.is_none() && !first(asked, "sort").is_empty() {
        notes.push(texts::overlooked("sort", first(asked, "sort")));
    }
    let sort = sort.unwrap_or("count");
    let history = History { api: &visit.api, frame: &frame };
    // The largest groups come first. All of them are needed to look for some, or for another order.
    let limit = (filter.lets_all() && sort == "count").then_some(MAX_ROWS);
    let Errors { mut groups, mut total, count: mut errors } = match history.errors(filter.route, limit).await
    {
        Err(error) if is_off(&error) => return Ok(Page::new("errors", texts::of("words.errors"), off())),
        found => found?,
    };
    if limit.is_none() {
        groups.retain(|group| filter.lets(group));
        groups.sort_by_key(|group| std::cmp::Reverse(group[sort].as_u64()));
        (total, errors) = (groups.len(), sum(&groups));
    }
    let address = frame.on(filter.address().with("sort", if sort == "count" { "" } else { sort }));
    let content = html! {
        (frame.picker(visit, &address))
        (filters(visit, &filter, &frame))
        div #live data-live=[frame.refresh(3)] {
            section #groups {
                p.about {
                    (texts::marked_up("errors.total", &[
                        ("count", html! { strong #total { (count(errors)) } }),
                        ("frame", html! { (frame.words()) }),
                        ("groups", html! { (total) }),
                    ]))
                }
                @if total > MAX_ROWS { p.help { (texts::first_of_many(MAX_ROWS)) } }
                @if groups.is_empty() { div.empty { p { (texts::of("messages.no_errors")) } } } @else {
                    (table(visit, &frame, &groups[..groups.len().min(MAX_ROWS)], Some((&address, sort))))
                }
            }
        }
        (csv::link(visit, &frame.in_seconds(Address::new("errors").with("route", filter.route)).to_string()))
    };
    Ok(Page::new("errors", texts::of("words.errors"), content).notes(notes))
}

fn sum(groups: &[Value]) -> u64 {
    groups.iter().filter_map(|group| group["count"].as_u64()).sum()
}

fn filters(visit: &Visit, filter: &Filter<'_>, frame: &Frame) -> Markup {
    let address = frame.on(filter.address());
    let set = [
        ("route", "errors.one_route", filter.route),
        ("status", "errors.one_status", filter.status),
        ("cause", "errors.one_cause", filter.cause),
    ];
    let at = |name, value| visit.at(&address.clone().with(name, value).to_string());
    html! {
        nav.tabs aria-label=(texts::of("errors.who_decided")) {
            ul.segments {
                li { a href=(at("who", "")) aria-current=[filter.who.is_empty().then_some("true")] { (texts::of("errors.all")) } }
                @for (name, words) in WHO {
                    li { a href=(at("who", name)) aria-current=[(name == filter.who).then_some("true")] { (texts::of(words)) } }
                }
            }
        }
        form.filter action=(visit.at("errors")) {
            @for (name, value) in address.members().filter(|(name, _)| *name != "q") { input type="hidden" name=(name) value=(value); }
            label for="q" { (texts::of("errors.route_status_or_cause")) }
            input id="q" name="q" value=(filter.wanted);
            button { (texts::of("words.filter")) }
            @for (name, shown, value) in set.into_iter().filter(|(.., value)| !value.is_empty()) {
                a.button href=(at(name, "")) aria-label=(texts::filled("errors.show_all", &[("value", &value)])) { (texts::marked_up(shown, &[("value", html! { bdi { (value) } })])) }
            }
        }
    }
}

/// Groups of errors; with headings that order them if there is a page to order.
pub(super) fn table(
    visit: &Visit,
    frame: &Frame,
    groups: &[Value],
    sorted: Option<(&Address, &str)>,
) -> Markup {
    html! {
        div.scroll #errors tabindex="0" role="region" aria-label=(texts::of("words.errors")) {
            table.dense {
                caption.unseen { (texts::filled("errors.in_frame", &[("frame", &frame.words())])) }
                thead { tr {
                    th scope="col" { (texts::of("words.route")) } th scope="col" { (texts::of("errors.who_decided")) } th scope="col" { (texts::of("words.cause")) }
                    @for (name, title) in SORTS {
                        @match sorted {
                            Some((address, by)) => th.number scope="col" aria-sort=[(name == by).then_some("descending")] {
                                a href=(visit.at(&address.clone().with("sort", name).to_string())) { (texts::of(title)) }
                            },
                            None => th.number scope="col" { (texts::of(title)) },
                        }
                    }
                    th scope="col" { (texts::of("words.over_time")) }
                } }
                tbody { @for group in groups { (line(visit, frame, group)) } }
            }
        }
    }
}

fn line(visit: &Visit, frame: &Frame, group: &Value) -> Markup {
    let (decided, cause, status) = (who(group), plain(&group["cause"]), plain(&group["status"]));
    let narrowed =
        |name, value: &str| visit.at(&frame.carried(Address::new("errors").with(name, value)).to_string());
    let moment = |name: &str| {
        let at = group[name].as_u64().unwrap_or_default();
        // Errors are counted by minutes.
        let whole = minute(at as i64);
        let shown = if frame.to - frame.from > 86_400 { &whole } else { whole.get(11..16).unwrap_or(&whole) };
        html! { time title=(whole) { (shown) } }
    };
    html! {
        tr {
            th.name scope="row" { (route_link(visit, frame, group)) }
            td { span class={ "who " (decided) } { (words(decided)) } }
            td { a href=(narrowed("cause", &cause)) { bdi { (cause) } } }
            td.number {
                strong {
                    a href=(visit.at(&requests(frame, group).to_string())) title=(texts::of("errors.requests_of_this_group_that")) {
                        (count(group["count"].as_u64().unwrap_or_default()))
                    }
                }
            }
            td.number { a href=(narrowed("status", &status)) { (status) } }
            td.number { (moment("first")) }
            td.number { (moment("last")) }
            td { (sparkline(&group["sparkline"], texts::of("chart.errors"))) }
        }
    }
}

/// The address of the requests that a group is made of, as far as they were kept.
fn requests(frame: &Frame, group: &Value) -> Address {
    let route = &group["route"];
    let route = route["id"].as_str().or(route["name"].as_str()).unwrap_or_default();
    let address = Address::new("requests").with("route", route).with("status", &plain(&group["status"]));
    frame.in_seconds(address.with("cause", &plain(&group["cause"])))
}

fn route_name(group: &Value) -> String {
    let route = &group["route"];
    let name = plain(&route["name"]);
    match (name.as_str(), route["id"].as_str()) {
        ("none", None) => texts::of("errors.no_route").to_owned(),
        ("others", None) => texts::of("words.others").to_owned(),
        ("", Some(id)) => id.to_owned(),
        _ => name,
    }
}

fn route_link(visit: &Visit, frame: &Frame, group: &Value) -> Markup {
    let name = route_name(group);
    html! {
        @match group["route"]["id"].as_str() {
            Some(id) => {
                @let to = frame.carried(Address::new(format!("routes/{}", segment(id))));
                a href=(format!("{}#traffic", visit.at(&to.to_string()))) { bdi { (name) } }
            }
            None => (name),
        }
    }
}

/// Who decided the responses of 5xx, each with the number that leads to them.
pub(super) fn split(visit: &Visit, frame: &Frame, groups: &[Value]) -> Markup {
    let mut parts: BTreeMap<usize, (u64, BTreeMap<String, u64>)> = BTreeMap::new();
    for group in groups.iter().filter(|group| group["status"].as_u64().is_some_and(|it| it / 100 == 5)) {
        let index = WHO.iter().position(|(name, _)| *name == who(group)).unwrap_or_default();
        let (sum, causes) = parts.entry(index).or_default();
        let some = group["count"].as_u64().unwrap_or_default();
        *sum += some;
        *causes.entry(plain(&group["cause"])).or_default() += some;
    }
    let link = |name, cause: &str| {
        let address = Address::new("errors").with("status", "5xx").with("who", name).with("cause", cause);
        visit.at(&frame.carried(address).to_string())
    };
    html! {
        @if !parts.is_empty() {
            ul.split aria-label=(texts::of("errors.5xx_by_who_decided")) {
                li { "5xx:" }
                @for (index, (sum, causes)) in &parts {
                    @let (name, words) = WHO[*index];
                    li {
                        span class={ "who " (name) } { (texts::of(words)) } " " a href=(link(name, "")) { strong { (count(*sum)) } }
                        @if name != WHO[0].0 {
                            @for (cause, some) in causes { " · " a href=(link(name, cause)) { (cause) " " (count(*some)) } }
                        }
                    }
                }
            }
        }
    }
}
